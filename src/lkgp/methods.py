"""The two ways of inference, as records of their settings, and the choice between them."""

from dataclasses import dataclass, field, is_dataclass, replace
from typing import Literal

import torch

from lkgp.direct import ReducedSystem, reduced_size
from lkgp.errors import InputError
from lkgp.model import LatentKroneckerGP, evaluate
from lkgp.observed import ObservedSystem
from lkgp.preconditioners import PivotedCholesky, PreconditionerSettings
from lkgp.readers import Observations
from lkgp.solvers import Cholesky, ConjugateGradients, Solver
from lkgp.solvers.base import check_settings
from lkgp.spectral import SpectralSystem
from lkgp.spectrum import FactorBasis


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
        return self if not is_dataclass(self.solver) else replace(self, solver=replace(self.solver, rtol=max(self.solver.rtol, rtol)))


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

    space: Literal["modes", "cells", "dense"] = "modes"
    residual_rtol: float = 1e-6
    sample_rtol: float = 1e-2
    rtol: float = 1e-3
    fit_rtol: float = 0.03
    tolerance: float = 1e-5
    fit_tolerance: float = 1e-4
    max_block: int = 8000
    precision: Literal["float32", "float64"] = "float32"
    num_probes: int = 8
    num_samples: int = 64
    lanczos_steps: int = 50
    max_iterations: int = 1000

    def __post_init__(self) -> None:
        names = (
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
        if self.space not in ("modes", "cells", "dense"):
            raise InputError(f"Spectral: space must be 'modes', 'cells' or 'dense', not {self.space!r}.")
        if self.precision not in ("float32", "float64"):
            raise InputError(f"Spectral: precision must be 'float32' or 'float64', not {self.precision!r}.")


Method = Direct | Spectral | Iterative

# Unknowns of a factorisation in a fit, at the most, unless the caller asks for more.
LARGEST_DIRECT_FIT = 2500
# A factor longer than this is taken to have full rank, since its spectrum would cost more than it could save.
LONGEST_SPECTRUM = 3000
# Arrays of m x m that a factorisation with its gradient holds at once.
DIRECT_ARRAYS = 6


def for_fitting(method: Method) -> Method:
    """The same method with the looser tolerance that is enough while the hyperparameters are sought."""
    if isinstance(method, Direct):
        return replace(method, tolerance=max(method.tolerance, method.fit_tolerance))
    if isinstance(method, Spectral):
        return replace(method, tolerance=max(method.tolerance, method.fit_tolerance), rtol=max(method.rtol, method.fit_rtol))
    return method.loose(method.fit_rtol)


@dataclass(frozen=True)
class Plan:
    """What was chosen, and why, in words.

    axis: along which the observations are reduced (direct only)
    size: unknowns after the reduction (direct only)
    """

    method: Method
    why: str
    axis: int = 0
    size: int = 0


def reduction_axis(model: LatentKroneckerGP, data: Observations, tolerance: float) -> tuple[int, int]:
    """The axis along which the observations reduce to the fewest unknowns, and how many those are."""
    grid = data.grid
    with torch.no_grad():
        noise = float(model.noise_diagonal(data).min())
        sizes = []
        for k, coords in enumerate(grid.coords):
            rank = len(coords)
            if 1 < rank <= LONGEST_SPECTRUM and grid.num_observed > 1:
                variance = float(model.prior_variance([x[:1] for x in grid.coords]))
                num_fibres = grid.num_cells // len(coords)
                tail = tolerance * grid.num_observed * noise / max(variance * num_fibres, 1e-300)
                rank = FactorBasis.of(evaluate(model.kernels[k], coords), tail).rank
            sizes.append(reduced_size(grid, k, rank))
    # of equals, the shortest: fewer rows to a fibre
    best = min(range(len(sizes)), key=lambda k: (sizes[k], grid.shape[k]))
    return best, sizes[best]


def plan(
    model: LatentKroneckerGP,
    data: Observations,
    solver: "Method | Solver | Literal['auto']",
    max_memory: float | None = None,
    *,
    fitting: bool = False,
) -> Plan:
    """Choose how to do inference, unless the caller has. A fit factorises many times, so it is direct only for smaller systems."""
    if isinstance(solver, Cholesky):
        solver = Direct(max_size=data.grid.num_observed)
    elif not isinstance(solver, (Direct, Spectral, Iterative, str)):
        solver = Iterative(solver=solver)
    if isinstance(solver, Iterative):
        return Plan(solver, "iterative, as asked")
    if isinstance(solver, Spectral):
        return Plan(solver, "spectral, as asked")
    asked = isinstance(solver, Direct)
    direct = solver if isinstance(solver, Direct) else Direct(max_size=LARGEST_DIRECT_FIT) if fitting else Direct()
    axis, size = reduction_axis(model, data, direct.tolerance)
    n, gigabytes = data.grid.num_observed, DIRECT_ARRAYS * size**2 * 8 / 1e9
    fits_memory = max_memory is None or gigabytes * 1e9 <= max_memory
    words = f"{n} observations reduce to {size} unknowns along factor {axis}"
    if size <= direct.max_size and fits_memory:
        return Plan(direct, f"direct{', as asked' if asked else ''}: {words}", axis, size)
    if asked:
        limit = f"max_size={direct.max_size}" if fits_memory else f"max_memory={max_memory:g} bytes"
        raise InputError(
            f"direct inference was asked for, but {words} ({gigabytes:.1f} GB), which is more than {limit}; raise it, or use solver='auto'."
        )
    return Plan(Spectral(), f"spectral: {words}, too many for a factorisation")


def factorise(model: LatentKroneckerGP, data: Observations, method: Direct, axis: int) -> ReducedSystem:
    """A for the present hyperparameters, factorised after a reduction along `axis`."""
    with torch.no_grad():
        factors = tuple(model.factor(k, x) for k, x in enumerate(data.grid.coords))
        noise = model.noise_diagonal(data).detach()
    return ReducedSystem(factors, noise, data.grid, axis, method.tolerance, method.max_size)


def spectral_system(model: LatentKroneckerGP, data: Observations, method: Spectral, columns: int) -> SpectralSystem | ObservedSystem:
    """A for the present hyperparameters with its leading modes, to be solved for about so many right-hand sides."""
    with torch.no_grad():
        factors = tuple(model.factor(k, x) for k, x in enumerate(data.grid.coords))
        noise = model.noise_diagonal(data).detach()
    precision = torch.float32 if method.precision == "float32" else torch.float64
    if method.space == "modes":
        return SpectralSystem(factors, noise, data.grid, method.tolerance, method.max_block, columns, precision)
    return ObservedSystem(factors, noise, data.grid, method.max_block, columns, precision, dense=method.space == "dense")
