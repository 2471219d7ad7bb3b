"""The two ways of inference, as records of their settings, and the choice between them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Literal, get_args

import torch

from lkgp.data.readers import Observations
from lkgp.errors import InputError
from lkgp.inference.costs import (
    Cost,
    FactorRanks,
    break_even,
    cells_cost,
    columns_at_once,
    direct_cost,
    memory_of_machine,
    modes_cost,
)
from lkgp.inference.direct import ReducedSystem
from lkgp.inference.observation_space import ObservedSystem
from lkgp.inference.spectral import SpectralSystem
from lkgp.linalg.eigenbasis import largest_tails
from lkgp.linalg.preconditioners import PivotedCholesky, PreconditionerSettings
from lkgp.model.model import LatentKroneckerGP, evaluate
from lkgp.solvers import Cholesky, ConjugateGradients, Solver
from lkgp.solvers.base import check_settings


@dataclass(frozen=True)
class Direct:
    """One Cholesky factorisation of the reduced system: likelihood, gradient and variance are exact.

    max_size: unknowns at the most, after the reduction
    tolerance: how much the log-likelihood, by observation, may change by leaving out the tail of one factor's spectrum
    fit_tolerance: the same while the hyperparameters are sought
    """

    max_size: int = 8000
    tolerance: float = 1e-10
    fit_tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self, max_size=self.max_size, tolerance=self.tolerance, fit_tolerance=self.fit_tolerance)


@dataclass(frozen=True)
class Iterative:
    """Products with A only: for systems of any size.

    solver: for all linear systems
    preconditioner: for all linear systems and for the log-determinant; None for none
    fit_rtol: relative residual that is enough while the hyperparameters are sought
    num_probes: random vectors of the stochastic trace and log-determinant
    gradient: "pathwise" solves for draws of the data and needs no solves of its own for samples; "probes" solves for plain probes
    num_samples: posterior samples behind the variance
    lanczos_steps: of the log-determinant
    """

    solver: Solver = field(default_factory=ConjugateGradients)
    preconditioner: PreconditionerSettings | None = field(default_factory=PivotedCholesky)
    fit_rtol: float = 1e-3
    num_probes: int = 16
    gradient: Literal["pathwise", "probes"] = "pathwise"
    num_samples: int = 64
    lanczos_steps: int = 64

    def __post_init__(self) -> None:
        counts = {"num_probes": self.num_probes, "num_samples": self.num_samples, "lanczos_steps": self.lanczos_steps}
        check_settings(self, fit_rtol=self.fit_rtol, **counts)
        if self.gradient not in ("pathwise", "probes"):
            raise InputError(f"Iterative: gradient must be 'pathwise' or 'probes', not {self.gradient!r}.")

    def loose(self, rtol: float) -> "Iterative":
        """The same with a looser tolerance, unless the solver is the caller's own."""
        return (
            self
            if not is_dataclass(self.solver)
            else replace(self, solver=replace(self.solver, rtol=max(self.solver.rtol, rtol)))
        )


Space = Literal["modes", "cells", "dense"]


@dataclass(frozen=True)
class Spectral:
    """Weights in the truncated eigenbasis of the factors, for large data; exact where no cell is missing and the noise is one number.

    space: of the unknowns: "modes" of the truncated eigenbasis; "cells" that were observed, where the factors have too many modes;
        "dense" are the cells without any use of the grid, where most of it is missing
    residual_rtol: relative residual of the solve for the mean
    sample_rtol: relative residual of the solves for samples
    rtol: error of the solves for the likelihood, relative, in the norm of A; that of the likelihood is its square
    fit_rtol: the same while the hyperparameters are sought
    tolerance: how much the log-likelihood, by observation, may change by what is left out of the spectra
    fit_tolerance: the same while the hyperparameters are sought
    max_block: modes in the dense block of the whitening, at the most
    precision: of the products inside a solve, which is refined in float64 either way
    num_probes: random vectors of the log-determinant and, at the most, of the gradient
    num_samples: posterior samples behind the variance
    lanczos_steps: of the log-determinant
    """

    space: Space = "modes"
    residual_rtol: float = 1e-6
    sample_rtol: float = 1e-2
    rtol: float = 1e-3
    fit_rtol: float = 0.03
    tolerance: float = 1e-4
    fit_tolerance: float = 1e-4
    max_block: int = 8000
    precision: Literal["float32", "float64"] = "float32"
    num_probes: int = 8
    num_samples: int = 64
    lanczos_steps: int = 50
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        names = (
            "max_block",
            "residual_rtol",
            "rtol",
            "fit_rtol",
            "sample_rtol",
            "tolerance",
            "fit_tolerance",
            "num_probes",
            "num_samples",
            "lanczos_steps",
        )
        check_settings(self, max_iterations=self.max_iterations, **{name: getattr(self, name) for name in names})
        if self.space not in get_args(Space):
            raise InputError(f"Spectral: space must be 'modes', 'cells' or 'dense', not {self.space!r}.")
        if self.precision not in ("float32", "float64"):
            raise InputError(f"Spectral: precision must be 'float32' or 'float64', not {self.precision!r}.")


Method = Direct | Spectral | Iterative

# A factorisation is chosen if it takes no more than so many multiplications, half a second of a fit or a few seconds once, or no more
# than so many times those of what is cheapest: it is exact.
CHEAP_FIT, CHEAP_POSTERIOR, WORTH = 2e10, 2e11, 2.0
# Right-hand sides that the cost of an evaluation is stated for, beside that of the data.
FIT_COLUMNS = 8


def for_fitting(method: Method) -> Method:
    """The same method with the looser tolerance that is enough while the hyperparameters are sought."""
    if isinstance(method, Direct):
        return replace(method, tolerance=max(method.tolerance, method.fit_tolerance))
    if isinstance(method, Spectral):
        return replace(
            method, tolerance=max(method.tolerance, method.fit_tolerance), rtol=max(method.rtol, method.fit_rtol)
        )
    return method.loose(method.fit_rtol)


@dataclass(frozen=True)
class Plan:
    """What was chosen, and why, in words.

    axis: along which the observations are reduced (direct only)
    size: unknowns after the reduction (direct only)
    cost: predicted, of one likelihood with its gradient, or of the posterior with its samples
    """

    method: Method
    why: str
    axis: int = 0
    size: int = 0
    cost: Cost | None = None


def plan(
    model: LatentKroneckerGP,
    data: Observations,
    solver: "Method | Solver | Literal['auto']",
    max_memory: float | None = None,
    *,
    fitting: bool = False,
) -> Plan:
    """Choose how to do inference, unless the caller has, by the cost of one likelihood with its gradient, or of the posterior."""
    if isinstance(solver, Cholesky):
        solver = Direct(max_size=data.grid.num_observed)
    elif not isinstance(solver, (Direct, Spectral, Iterative, str)):
        solver = Iterative(solver=solver)
    if isinstance(solver, Iterative):
        return Plan(solver, "iterative, as asked")
    candidates = list(_candidates(model, data, solver, max_memory, fitting))
    budget = memory_of_machine() if max_memory is None else max_memory
    if isinstance(solver, Direct):
        return _direct_as_asked(candidates[0], solver, data, budget)
    if isinstance(solver, Spectral):
        return replace(candidates[0], why=f"{candidates[0].why}, as asked")
    possible = [c for c in candidates if not isinstance(c.method, Direct) or c.size <= c.method.max_size]
    affordable = [c for c in possible if _memory(c) <= budget]
    if not affordable:
        least = min(possible, key=_memory)
        return replace(least, why=f"{least.why}; more memory than there is, but the least of all ways")
    first, cheapest = affordable[0], min(affordable, key=_multiplications)
    enough = max(CHEAP_FIT if fitting else CHEAP_POSTERIOR, WORTH * _multiplications(cheapest))
    return first if isinstance(first.method, Direct) and _multiplications(first) <= enough else cheapest


def _multiplications(candidate: Plan) -> float:
    assert candidate.cost is not None
    return candidate.cost.multiplications


def _memory(candidate: Plan) -> float:
    assert candidate.cost is not None
    return candidate.cost.memory


def _direct_as_asked(candidate: Plan, asked: Direct, data: Observations, budget: float) -> Plan:
    assert candidate.cost is not None
    if candidate.size <= asked.max_size and candidate.cost.memory <= budget:
        return replace(candidate, why=f"{candidate.why}, as asked")
    limit = f"max_size={asked.max_size}" if candidate.size > asked.max_size else f"the {budget:.3g} bytes of memory"
    raise InputError(
        f"direct inference was asked for, but {data.grid.num_observed} observations reduce to {candidate.size} unknowns "
        f"({candidate.cost.memory / 1e9:.1f} GB), which is more than {limit}; raise it, or use solver='auto'."
    )


def _candidates(
    model: LatentKroneckerGP, data: Observations, solver: "Method | str", max_memory: float | None, fitting: bool
) -> Iterator[Plan]:
    """The ways that are open, direct inference first, each with what it would cost."""
    grid, n = data.grid, data.grid.num_observed
    method = solver if isinstance(solver, Spectral) else Spectral()
    direct = solver if isinstance(solver, Direct) else Direct()
    with torch.no_grad():
        noise = float(model.noise_diagonal(data).min())
        factors = [evaluate(kernel, x) for kernel, x in zip(model.kernels, grid.coords, strict=True)]

    def ranks(tolerance: float) -> list[FactorRanks]:
        most = largest_tails(factors, noise, n, tolerance)
        return [FactorRanks.of(factor, *both) for factor, both in zip(factors, most, strict=True)]

    if not isinstance(solver, Spectral):
        found = ranks(max(direct.tolerance, direct.fit_tolerance) if fitting else direct.tolerance)
        options = [(*direct_cost(grid, k, factor.rank, not fitting), k) for k, factor in enumerate(found)]
        # of equals, the shortest: fewer rows to a fibre
        cost, size, axis = min(options, key=lambda option: (option[1], grid.shape[option[2]]))
        words = f"{n} observations reduce to {size} unknowns along factor {axis}" if size < n else f"{n} unknowns"
        yield Plan(direct, f"direct: {words}, {cost}", axis, size, cost)
    if isinstance(solver, Direct):
        return
    found = ranks(method.fit_tolerance if fitting else method.tolerance)
    columns = 1 + (FIT_COLUMNS if fitting else method.num_samples)
    at_once = columns if fitting else columns_at_once(grid.num_cells, max_memory)
    spaces: tuple[Space, ...] = (method.space,) if isinstance(solver, Spectral) else get_args(Space)
    for space in spaces:
        if space == "modes":
            cost = modes_cost(grid, found, noise, method.max_block, columns, at_once)
            words = f"spectral: {' x '.join(str(factor.rank) for factor in found)} modes"
        else:
            cost = cells_cost(grid, found, noise, method.max_block, columns, at_once, space == "dense")
            beyond = f"{1 - n / grid.num_cells:.0%} missing, break-even {break_even(grid.shape):.0%}"
            words = f"iterative, {'with' if space == 'cells' else 'without'} the grid ({beyond})"
        yield Plan(replace(method, space=space), f"{words}, {cost}", cost=cost)


def factorise(model: LatentKroneckerGP, data: Observations, method: Direct, axis: int) -> ReducedSystem:
    """A for the present hyperparameters, factorised after a reduction along `axis`."""
    with torch.no_grad():
        factors = tuple(model.factor(k, x) for k, x in enumerate(data.grid.coords))
        noise = model.noise_diagonal(data).detach()
    return ReducedSystem(factors, noise, data.grid, axis, method.tolerance, method.max_size)


def spectral_system(
    model: LatentKroneckerGP, data: Observations, method: Spectral, columns: int
) -> SpectralSystem | ObservedSystem:
    """A for the present hyperparameters with its leading modes, to be solved for about so many right-hand sides."""
    with torch.no_grad():
        factors = tuple(model.factor(k, x) for k, x in enumerate(data.grid.coords))
        noise = model.noise_diagonal(data).detach()
    precision = torch.float32 if method.precision == "float32" else torch.float64
    if method.space == "modes":
        return SpectralSystem(factors, noise, data.grid, method.tolerance, method.max_block, columns, precision)
    return ObservedSystem(
        factors, noise, data.grid, method.max_block, columns, precision, dense=method.space == "dense"
    )
