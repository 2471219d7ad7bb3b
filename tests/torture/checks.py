"""The quantities that are compared with the oracle, each in posterior units.

A check returns findings: (quantity, error), where an error of one is just tolerated.
"""

import copy
import math
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from tests.torture.dense import DenseModel
from tests.torture.problems import BY_RESIDUAL
from tests.torture.tolerances import (
    ENTRY_ROUNDING,
    NORMAL_LIMIT,
    SAME_DRAWS,
    STATED_ERRORS,
    TOLERANCES,
    chi_square_limits,
)

from lkgp import LKGP
from lkgp.inference import Probes, log_likelihood

SAMPLES = 300
# Largest number of cells whose joint covariance is compared.
JOINT_CELLS = 40
# The relative error of a large gradient that is not yet wrong; lkgp trusts solves with up to twice this error.
FAR_FROM_OPTIMUM = 0.05
# Largest n + N for a gradient with probes of the whole space, in which an estimated trace is exact.
MOST_PROBES = 160


@dataclass(frozen=True)
class Finding:
    """How far one quantity is from the oracle.

    error: in the unit of the quantity; excess: the error in tolerances, above one if it is wrong
    """

    quantity: str
    error: float
    excess: float
    detail: str = ""


class Comparison:
    """A fitted model beside its dense twin, in the units of the model.

    problem: a `Problem`; gp: a fitted `LKGP`
    """

    def __init__(self, problem, gp):
        self.problem, self.gp = problem, gp
        values = gp.standardization_.values
        self.shift, self.unit = float(values.shift), float(values.scale)
        y = (problem.Y.astype(np.longdouble) - self.shift) / self.unit
        model = copy.deepcopy(gp.model_).double()
        if problem.noise_variance is not None:
            noise = problem.noise_variance.astype(problem.Y.dtype).astype(np.longdouble) / self.unit**2
        else:
            noise = np.full(problem.Y.shape, model.noise_variance().item())
        self.model = model
        self.dense = DenseModel(model.kernels, self.scaled(problem.coords), y, noise, model.mean.constant.item())

    def scaled(self, coords):
        """Coordinates in the units of the model."""
        scalings = self.gp.standardization_.coords
        return [
            (x.astype(np.longdouble) - s.shift.numpy()) / s.scale.numpy() for x, s in zip(coords, scalings, strict=True)
        ]

    @property
    def kind(self):
        """Which tolerance applies: "exact", "solved" or "single"."""
        if self.problem.dtype == torch.float32:
            return "single"
        return "exact" if self.gp.posterior_.variance_error == 0 and not self.by_residual else "solved"

    @property
    def by_residual(self):
        return self.problem.way in BY_RESIDUAL and self.gp.posterior_.variance_error != 0

    def tolerance(self, quantity):
        return getattr(TOLERANCES[quantity], self.kind)

    @cached_property
    def on_grid(self):
        return self.dense.at(self.dense.coords)

    @cached_property
    def off_grid(self):
        return self.dense.at(self.scaled(self.problem.new))

    def rounding(self, mean):
        """Rounding errors of results in the precision of the caller's values, in the units of the model, as `mean`."""
        eps = np.finfo(self.problem.Y.dtype).eps
        return 4 * eps * (np.abs(mean) + abs(self.shift) / self.unit)

    def allowed_by_residual(self, place, columns):
        """|A^-1 c| times the norm of the residual that a custom solver may leave, (N',); 0 for the library's own.

        columns: the norms of the right-hand sides
        """
        if not self.by_residual:
            return 0.0
        return place.sensitivity() * self.gp.posterior_.plan.method.solver.rtol * columns

    def decidable(self, *places):
        """Whether the oracle's own error is far below the tolerances."""
        limits = [self.tolerance("mean"), self.tolerance("standard deviation")]
        return all(error <= 0.1 * limit for p in places for error, limit in zip(p.own_error, limits, strict=True))

    def to_model(self, values):
        return (np.asarray(values, dtype=float).ravel() - self.shift) / self.unit


def worst(quantity, error, allowed, detail="", shown=None):
    """The finding at the entry with the largest error in units of what is allowed.

    shown: the error for the table, if it is not the one that is judged
    """
    error, allowed, shown = np.broadcast_arrays(np.abs(error), allowed, np.abs(error if shown is None else shown))
    if not np.isfinite(error).all():
        return Finding(quantity, math.inf, math.inf, f"{detail} is not finite")
    at = int(np.argmax(error / allowed))
    return Finding(quantity, float(shown.max()), float(error.flat[at] / allowed.flat[at]), detail)


def mean_finding(c, place, found, quantity, detail):
    mean = c.to_model(found)
    allowed = c.tolerance(quantity) * place.std + c.rounding(mean)
    allowed = allowed + c.allowed_by_residual(place, float(np.linalg.norm(c.dense.residuals.astype(float))))
    error = (mean - place.mean).astype(float)
    return worst(quantity, error / place.std, allowed / place.std, detail)


def std_finding(c, place, found, quantity, detail, samples=0):
    """samples: the number of samples behind a standard deviation, 0 if it is exact."""
    std, true = np.maximum(np.asarray(found, dtype=float).ravel() / c.unit, place.floor), place.std
    if samples:
        norm = 1.5 * math.sqrt(float(np.trace(c.dense.matrix)))
        extra = c.tolerance(quantity) * true + c.allowed_by_residual(place, norm)
        low, high = (math.sqrt(limit) for limit in chi_square_limits(samples))
        beyond = np.maximum(std / high - true, true - std / low).clip(min=0)
        return worst("sampled standard deviation", beyond / true, extra / true, detail, shown=std / true - 1)
    extra = 0.0
    if c.by_residual:
        # c^T A^-1 res for the column c itself
        norms = np.linalg.norm(place.cross.astype(float), axis=1)
        extra = c.allowed_by_residual(place, norms) / true**2
    return worst(quantity, (std - true) / true, c.tolerance(quantity) + extra, detail)


def check_moments(c):
    """Mean and standard deviation on the grid and off it, with and without the noise of an observation."""
    samples = 0 if c.gp.posterior_.variance_error == 0 else c.gp.posterior_.plan.method.num_samples
    for place, coords, words in ((c.on_grid, None, "on the grid"), (c.off_grid, c.problem.new, "off the grid")):
        mean, std = c.gp.predict(coords)
        yield mean_finding(c, place, mean, "mean", words)
        yield std_finding(c, place, std, "standard deviation", words, samples)
        if c.problem.noise_variance is None:
            _, noisy = c.gp.predict(coords, observation_noise=True)
            expected = np.hypot(std, math.sqrt(c.model.noise_variance().item()) * c.unit)
            yield worst("observation noise", (noisy - expected) / expected, 1e-5, words)


def check_covariance(c):
    """The joint covariance of a few cells, and single cells as rows."""
    rng = np.random.default_rng(c.problem.seed)
    for coords, words in ((c.problem.coords, "on the grid"), (c.problem.new, "off the grid")):
        most = max(2, math.floor(JOINT_CELLS ** (1 / len(coords))))
        chosen = [x[np.sort(rng.permutation(len(x))[:most])] for x in coords]
        place = c.dense.at(c.scaled(chosen))
        found = np.asarray(c.gp.covariance(chosen), dtype=float) / c.unit**2
        scale = np.outer(place.std, place.std)
        allowed = c.tolerance("covariance")
        if c.by_residual:
            norms = np.linalg.norm(place.cross.astype(float), axis=1)
            allowed = allowed + np.outer(c.allowed_by_residual(place, 1.0), norms) / scale
            allowed = np.maximum(allowed, allowed.T)
        yield worst("covariance", (found - place.covariance).astype(float) / scale, allowed, words)
        cells = np.stack(np.meshgrid(*(np.arange(len(x)) for x in chosen), indexing="ij"), axis=-1)
        rows = [x[i] for x, i in zip(chosen, cells.reshape(-1, len(chosen)).T, strict=True)]
        mean, std = c.gp.predict_rows(rows)
        yield mean_finding(c, place, mean, "rows", f"mean {words}")
        yield std_finding(c, place, std, "rows", f"standard deviation {words}")


def check_samples(c):
    """Mean and covariance of samples at a few cells on and off the grid, and that they are functions."""
    rng = np.random.default_rng(c.problem.seed)
    most = max(2, math.floor(JOINT_CELLS ** (1 / len(c.problem.coords))))
    seed = c.problem.seed % 1000
    own, chosen = [rng.permutation(len(x))[: most - 1] for x in c.problem.coords], []
    for x, i, new in zip(c.problem.coords, own, c.problem.new, strict=True):
        fresh = new[~(new[:, None] == x[None]).all(axis=2).any(axis=1)]
        chosen.append(np.concatenate([x[i], fresh[:1]]))
    place = c.dense.at(c.scaled(chosen))
    drawn = np.asarray(c.gp.sample(SAMPLES, chosen, seed=seed), dtype=float).reshape(SAMPLES, -1)
    drawn = (drawn - c.shift) / c.unit
    extra = c.allowed_by_residual(place, 1.5 * math.sqrt(float(np.trace(c.dense.matrix)))) / place.std
    deviations = (drawn - place.mean.astype(float)) / place.std
    rounding = c.rounding(drawn).max() / place.std
    slack = c.tolerance("samples") + extra + rounding
    off = deviations.mean(axis=0) * math.sqrt(SAMPLES)
    beyond = (np.abs(off) - NORMAL_LIMIT).clip(min=0) / math.sqrt(SAMPLES)
    yield worst("samples", beyond, slack, "mean of samples", shown=off)
    true = place.covariance.astype(float) / np.outer(place.std, place.std)
    found = deviations.T @ deviations / SAMPLES
    # sqrt((C_ii C_jj + C_ij^2) / s) is the standard error of a covariance of deviations from the exact mean.
    # The tail of a chi-square is heavier than that of a normal number: 15 % more at this many samples.
    standard = np.sqrt((1 + true**2) / SAMPLES)
    slack = c.tolerance("sample covariance") + 2 * np.add.outer(extra + rounding, extra + rounding)
    beyond = (np.abs(found - true) - 1.15 * NORMAL_LIMIT * standard).clip(min=0)
    yield worst("sample covariance", beyond, slack, "of samples", shown=(found - true) / standard)
    # The same functions at all cells of the grid.
    everywhere = np.asarray(c.gp.sample(SAMPLES, seed=seed), dtype=float)
    at_own = drawn.reshape(SAMPLES, *(len(x) for x in chosen))[(slice(None), *(slice(0, len(i)) for i in own))]
    same = everywhere[np.ix_(range(SAMPLES), *own)]
    std = place.std.reshape([len(x) for x in chosen])[tuple(slice(0, len(i)) for i in own)]
    error = (at_own - (same - c.shift) / c.unit) / std
    yield worst("draws", error, SAME_DRAWS[c.kind] + 2 * rounding.max(), "at some cells and at all")


def entry_rounding(c):
    """The change of a^T A a by the rounding of the entries of the kernels."""
    return ENTRY_ROUNDING * float(c.dense.signal) * float(np.abs(c.dense.weights).sum()) ** 2


def check_likelihood(c):
    """The log likelihood: its error in nats if it is exact, else in stated standard errors."""
    value, stated = c.gp.posterior_.log_likelihood()
    n, true = len(c.dense.residuals), c.dense.log_likelihood()
    quantity = "estimated likelihood" if stated else "likelihood"
    # Rounding of the sums, and the change by omitted eigenvalues that the report states.
    allowed = c.tolerance(quantity) + c.gp.report_.truncation * n
    allowed += 1e-9 * (abs(true) + float(c.dense.whitened @ c.dense.whitened)) + entry_rounding(c)
    if c.by_residual:
        weights = np.linalg.norm(c.dense.weights.astype(float))
        allowed += weights * c.gp.posterior_.plan.method.solver.rtol * np.linalg.norm(c.dense.residuals.astype(float))
    for found, truth, words in (
        (value, true, "in the units of the model"),
        (c.gp.log_marginal_likelihood(), true - n * math.log(c.unit), "in the units of the data"),
    ):
        error = abs(found - truth)
        shown = max(0, error - allowed) / stated if stated else error
        detail = f"{words}, {error:.2g} nats at a stated {stated:.1g}"
        yield worst(quantity, error, allowed + 1e-9 * abs(truth) + STATED_ERRORS * stated, detail, shown=shown)


def check_gradient(c):
    """The gradient by the logarithm of every continuous hyperparameter, in posterior standard deviations of it."""
    posterior = c.gp.posterior_
    data, method, model = posterior.data, posterior.plan.method, copy.deepcopy(posterior.model)
    n, cells = data.grid.num_observed, data.grid.num_cells
    probes = None
    if posterior.system.needs_probes:
        if n + cells > MOST_PROBES:
            return
        whole = math.sqrt(n + cells) * torch.eye(n + cells, dtype=torch.float64)
        probes = Probes(whole[:cells], whole[cells:])
    found = log_likelihood(model, data, method, probes, value=False)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(found.objective, list(parameters.values()), allow_unused=True)
    by_name = dict(zip(parameters, gradients, strict=True))
    twins = dict(c.model.named_modules())
    rounding = entry_rounding(c)
    for name, gradient in by_name.items():
        owner, _, raw = name.rpartition(".")
        if gradient is None or not raw.startswith("raw_") or "noise" in name or raw == "raw_var":
            continue
        module, twin, attribute = model.get_submodule(owner), twins[owner], raw.removeprefix("raw_")
        constraint = getattr(module, f"{raw}_constraint")
        inner = parameters[name].detach().double().requires_grad_(True)
        value = constraint.transform(inner)
        (slope,) = torch.autograd.grad(value.sum(), inner)
        # d/d log theta = theta d/d raw / (d theta / d raw)
        by_log = (gradient.double() * value.detach() / slope).flatten().numpy()
        for position, slope_found in enumerate(by_log):
            true, information = c.dense.score(twin, attribute, position)
            # The oracle's own error, by half the step.
            doubt = abs(c.dense.score(twin, attribute, position, 1e-4)[0] - true)
            unit = math.hypot(information, 1.0)
            # Far from an optimum, only the direction of a step depends on it.
            allowed = c.tolerance("gradient") + (rounding + 2 * doubt + FAR_FROM_OPTIMUM * abs(true)) / unit
            yield worst("gradient", (slope_found - true) / unit, allowed, f"{name}[{position}]")


def check_file(c):
    """A saved and loaded model predicts the same, bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.lkgp"
        c.gp.save(path)
        again = LKGP.load(path)
    for coords in (None, c.problem.new):
        same = all(np.array_equal(a, b) for a, b in zip(c.gp.predict(coords), again.predict(coords), strict=True))
        yield Finding("file", 0.0 if same else math.inf, 0.0 if same else math.inf, "differs after loading")


def check_fit(c):
    """A fitted model is finite and not less likely than the one it started from."""
    parameters = torch.cat([p.detach().double().flatten() for p in c.gp.model_.parameters()])
    finite = bool(torch.isfinite(parameters).all())
    yield Finding("fit", 0.0 if finite else math.inf, 0.0 if finite else math.inf, "hyperparameters")
    start = Comparison(c.problem, started(c.problem))
    gain = c.dense.log_likelihood() - start.dense.log_likelihood()
    gain += float(c.gp.model_.log_prior().detach()) - float(start.gp.model_.log_prior().detach())
    yield worst("fit", max(0.0, -gain), 0.5, "nats below the start")


def started(problem, optimize=False):
    """The model of a problem, conditioned on its data."""
    gp = LKGP(
        problem.kernels,
        mean=problem.mean,
        noise=problem.noise,
        standardize=problem.standardize,
        solver=problem.solver,
        dtype=problem.dtype,
        seed=problem.seed % 1000,
    )
    return gp.fit(problem.coords, problem.Y, noise_variance=problem.noise_variance, optimize=optimize)
