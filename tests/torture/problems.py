"""Random problems; each is determined by its seed."""

import math
from dataclasses import dataclass

import gpytorch.kernels as gk
import numpy as np
import torch
from tests.torture.dense_kernels import EXTENDED, Parameters, evaluate
from tests.torture.random_kernels import log_uniform, random_factor

from lkgp import (
    AlternatingProjections,
    Cholesky,
    ConjugateGradients,
    Direct,
    Iterative,
    KroneckerEigenbasis,
    Nystrom,
    ObservationSpace,
    PivotedCholesky,
    Spectral,
)

# name -> settings. All are the defaults, but for what the name says.
WAYS = {
    "automatic": "auto",
    "direct": Direct(),
    "spectral": Spectral(),
    "spectral, float64": Spectral(precision="float64"),
    "observation space": ObservationSpace(),
    "observation space, dense": ObservationSpace(dense=True),
    "observation space, float64": ObservationSpace(precision="float64"),
    "observation space, other preconditioners": None,  # one of PRECONDITIONERS
    "iterative": Iterative(),
    "linear solvers": None,  # one of SOLVERS
}
PRECONDITIONERS = (PivotedCholesky(20), Nystrom(20), KroneckerEigenbasis(), None)
SOLVERS = (Cholesky(), ConjugateGradients(), AlternatingProjections())
# The share of problems of each; the first three are those that most people use.
SHARES = (0.15, 0.2, 0.2, 0.07, 0.12, 0.07, 0.04, 0.05, 0.05, 0.05)
# Those whose only promise is a residual that the caller chose: it is added to the tolerances.
BY_RESIDUAL = ("iterative", "linear solvers")
GAPS = ("random", "rows", "block", "staircase", "all but one", "one missing", "none")
GAP_SHARES = (0.3, 0.12, 0.15, 0.2, 0.03, 0.05, 0.15)
# The noise variance relative to the variance of the signal.
QUIETEST, LOUDEST = 1e-8, 1e2


@dataclass(frozen=True, eq=False)
class Problem:
    """A model with its hyperparameters, and data in the caller's units.

    coords: (n_k, d_k) each; Y: (n_1, ..., n_d) with NaN; new: (n'_k, d_k) each, points off the grid
    noise: variance in the units of the model; noise_variance: (n_1, ..., n_d) in those of the data, or None
    mean: in the units of the data
    """

    seed: int
    way: str
    solver: object
    dtype: torch.dtype
    coords: list
    kernels: list
    Y: np.ndarray
    noise: float
    noise_variance: np.ndarray | None
    mean: float
    new: list
    standardize: bool
    fit: bool
    words: str

    def __str__(self):
        return f"seed {self.seed}: {self.words}"


def random_shape(rng):
    """One to three factors; most problems have up to 150 cells, some up to 500."""
    cells = int(log_uniform(rng, 150, 500)) if rng.random() < 0.12 else int(log_uniform(rng, 6, 150))
    factors = int(rng.choice([1, 2, 3], p=[0.1, 0.65, 0.25]))
    if factors == 1:
        return (max(2, cells),)
    first = max(1 if rng.random() < 0.03 else 2, round(cells ** rng.uniform(0.25, 0.75)))
    rest = max(1, round(cells / first))
    if factors == 2:
        return first, rest
    second = max(1, round(rest ** rng.uniform(0.3, 0.7)))
    return first, second, max(1, round(rest / second))


def random_gaps(rng, shape, kind):
    """Which cells are observed, boolean."""
    observed = np.ones(shape, dtype=bool)
    if kind == "random":
        observed = rng.random(shape) < rng.uniform(0.1, 0.95)
    elif kind == "rows":
        axis = int(rng.integers(len(shape)))
        rows = rng.random(shape[axis]) < rng.uniform(0.2, 0.7)
        observed[(slice(None),) * axis + (rows,)] = False
    elif kind == "block":
        observed[tuple(slice(a, a + max(1, n // 2)) for n in shape for a in [rng.integers(0, n // 2 + 1)])] = False
    elif kind == "staircase":
        ends = np.sort(rng.integers(1, shape[-1] + 1, shape[:-1]).ravel()).reshape(shape[:-1])
        observed = np.arange(shape[-1]) < ends[..., None]
    elif kind == "all but one":
        observed[...] = False
    elif kind == "one missing":
        observed.ravel()[rng.integers(observed.size)] = False
    if not observed.any():
        observed.ravel()[rng.integers(observed.size)] = True
    return observed


def prior_draw(rng, kernels, coords):
    """A function drawn from the prior at every cell, and the mean prior variance."""
    draw, variance = rng.normal(size=[len(x) for x in coords]), 1.0
    for k, (kernel, x) in enumerate(zip(kernels, coords, strict=True)):
        points = x.astype(EXTENDED)
        values, vectors = np.linalg.eigh(evaluate(kernel, points, points, Parameters()).astype(float))
        root = vectors * np.sqrt(np.maximum(values, 0))
        draw = np.moveaxis(np.tensordot(root, draw, axes=(1, k)), 0, k)
        variance *= max(values.sum() / len(values), 1e-12)
    return draw, variance


def points_off_grid(rng, x, kernel, spread):
    """Three points: inside, near a fitted one, and outside; fitted ones of categories."""
    if any(isinstance(part, (gk.IndexKernel, gk.HammingIMQKernel)) for part in kernel.modules()):
        return x[rng.permutation(len(x))[:2]]
    inside = x[rng.integers(len(x))] + spread * rng.normal(0, 0.3, x.shape[1])
    near = x[rng.integers(len(x))] + spread * log_uniform(rng, 1e-8, 1e-2)
    outside = x.max(axis=0) + spread * log_uniform(rng, 0.1, 3)
    return np.stack([inside, near, outside])


def standardized(x):
    """As the library scales the columns of coordinates whose points all have data."""
    scale = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(scale > 0, scale, 1.0)


def problem(seed):
    """The problem with this seed."""
    rng = np.random.default_rng(seed)
    way = str(rng.choice(list(WAYS), p=SHARES))
    solver = WAYS[way]
    if solver is None:
        choices = SOLVERS if way == "linear solvers" else PRECONDITIONERS
        solver = choices[rng.integers(len(choices))]
        solver = solver if way == "linear solvers" else ObservationSpace(preconditioner=solver)
    shape = random_shape(rng)
    made = [random_factor(rng, count) for count in shape]
    points, kernels = [x for x, _, _ in made], [kernel for _, kernel, _ in made]
    gaps = str(rng.choice(GAPS, p=GAP_SHARES))
    observed = random_gaps(rng, shape, gaps)
    fit, standardize = bool(rng.random() < 0.04), bool(rng.random() < 0.8)
    # The kernels see scaled coordinates.
    categorical = [any(isinstance(p, (gk.IndexKernel, gk.HammingIMQKernel)) for p in k.modules()) for k in kernels]
    seen = [x if c or not standardize else standardized(x) for x, c in zip(points, categorical, strict=True)]
    draw, variance = prior_draw(rng, kernels, seen)
    relative = log_uniform(rng, QUIETEST, LOUDEST)
    known = rng.random() < 0.2
    levels = np.full(shape, relative)
    if known:
        decades = 6 if rng.random() < 0.7 else 1
        levels = np.minimum(relative, 1e-2) * 10 ** rng.uniform(0, decades, shape)
    noisy = draw + np.sqrt(levels * variance) * rng.normal(size=shape)
    surprise = rng.random() < 0.08
    if surprise:  # values that the model does not expect
        noisy = noisy + np.sqrt(variance) * rng.standard_t(3, size=shape) * log_uniform(rng, 0.01, 1)
    size = 10 ** rng.uniform(-6, 6)
    single = rng.random() < 0.15
    offset = size * log_uniform(rng, 1e-2, 1e4) * rng.choice([-1, 1]) * (rng.random() < 0.7)
    if single and not standardize:
        offset = 0.0  # who computes in float32 with values far from zero rounds them away
    Y = np.where(observed, offset + size / math.sqrt(variance) * noisy, np.nan)
    if rng.random() < 0.05:
        Y = Y.astype(np.float32)
    # In the units of the model: standardised values have variance one, unless they are constant.
    values = Y[observed].astype(float)
    spread = values.std()
    unit = spread if standardize and spread > 8 * np.finfo(Y.dtype).eps * abs(values.mean()) else 1.0
    kernels[0] = gk.ScaleKernel(kernels[0]).double()
    kernels[0].outputscale = torch.tensor((size / unit) ** 2 / variance, dtype=torch.float64)
    coordinates = []
    for x, c in zip(points, categorical, strict=True):
        stretch = 1.0 if c or not standardize else 10 ** rng.uniform(-3, 3)
        coordinates.append(x * stretch + stretch * (0 if c or not standardize else rng.choice([0, 0, 1e3])))
    repeated = rng.random() < 0.01 and shape[0] > 1
    if repeated:
        coordinates[0][1] = coordinates[0][0]
    new = [points_off_grid(rng, x, k, x.std() or 1.0) for x, k in zip(coordinates, kernels, strict=True)]
    names = " x ".join(name for _, _, name in made)
    words = (
        f"{way}; {names}; {observed.sum()} of {observed.size} observed ({gaps}); "
        f"noise {relative:.1e}{f', known over {decades} decades' if known else ''}; "
        f"values {offset:.1e} +- {size:.1e}{', unexpected' if surprise else ''}; "
        f"{'float32' if single else 'float64'}{', values in float32' if Y.dtype == np.float32 else ''}"
        f"{'' if standardize else ', not standardized'}{', repeated point' if repeated else ''}"
        f"{', fitted' if fit else ''}"
    )
    return Problem(
        seed=seed,
        way=way,
        solver=solver,
        dtype=torch.float32 if single else torch.float64,
        coords=coordinates,
        kernels=kernels,
        Y=Y,
        noise=relative * (size / unit) ** 2,
        noise_variance=levels * size**2 if known else None,
        mean=float(offset),
        new=new,
        standardize=standardize,
        fit=fit,
        words=words,
    )
