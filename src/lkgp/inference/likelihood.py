"""The log marginal likelihood and its gradient: exact by factorisation, or stochastic by solves.

    log p(y) = -1/2 r^T A^-1 r - 1/2 log det A - n/2 log 2 pi,     r = y - mean
    d log p(y) = -a^T dr + 1/2 a^T dA a - 1/2 tr(A^-1 dA),           a = A^-1 r

All ways return a scalar whose value is the likelihood and whose gradient, by autograd through the kernels only, is the line above.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.methods import Direct, Iterative, Spectral, factorise, spectral_system
from lkgp.inference.spectral import SpectralSystem
from lkgp.linalg import LatentKronecker, factor_dense, kronecker_matmul
from lkgp.linalg.preconditioners import Preconditioner
from lkgp.linalg.quadrature import random_signs, trace_of_log
from lkgp.model.model import LatentKroneckerGP
from lkgp.solvers import Solution, solve

# What the curvature of the likelihood needs of a solve, relative.
CURVATURE_RTOL = 0.1


@dataclass(frozen=True, eq=False)
class Likelihood:
    """log p(y) at one set of hyperparameters.

    objective: a scalar with the gradient, and the value (NaN if the value was not asked for)
    weights: a = A^-1 r, (n,)
    solve: X -> A^-1 X for X (n, c), exact or to a few percent
    solution: of the systems for r (column 0) and for the probes, where there were any
    error: standard error of the value
    next_start: for the solves at hyperparameters nearby, in the form that the same function takes
    """

    objective: Tensor
    weights: Tensor
    solve: Callable[[Tensor], Tensor]
    solution: Solution | None = None
    error: float = 0.0
    next_start: Tensor | None = None


def gaussian_log_density(quadratic: Tensor, logdet: Tensor, n: int) -> Tensor:
    """log N(r; 0, A) from r^T A^-1 r and log det A."""
    return -0.5 * (quadratic + logdet + n * math.log(2 * math.pi))


def with_value(value: Tensor, surrogate: Tensor) -> Tensor:
    """A scalar with the value of the first and the gradient of the second."""
    return surrogate + (value - surrogate).detach()


def exact_mll(model: LatentKroneckerGP, data: Observations, method: Direct, axis: int = 0) -> Likelihood:
    """log p(y) with its exact gradient."""
    system = factorise(model, data, method, axis)
    r = model.residuals(data)
    weights = system.solve(r.detach().double()[:, None])
    value = gaussian_log_density((r.detach() * weights[:, 0]).sum(), system.logdet, len(r))
    if not torch.is_grad_enabled():
        return Likelihood(value, weights[:, 0], system.solve)
    operator = model.covariance(data, structures=["dense"] * len(model.kernels))
    factor_weights, noise_weight = system.trace_weights()
    columns = weights.to(r.dtype)
    # tr(A^-1 dA) = sum_k <G_k, dK_k> + (its share of s^2) d log s^2
    trace = sum(
        (weight.to(r.dtype) * factor).sum() for weight, factor in zip(factor_weights, operator.factors, strict=True)
    )
    if data.noise_variance is None:
        trace = trace + noise_weight.to(r.dtype) * model.noise_variance().log()
    surrogate = -(columns[:, 0] * r).sum() + 0.5 * (columns * operator.product(columns)).sum() - 0.5 * trace
    return Likelihood(with_value(value, surrogate), weights[:, 0], system.solve)


@dataclass(frozen=True, eq=False)
class Probes:
    """The random numbers of a stochastic likelihood, drawn once and kept, so that it is a function of the hyperparameters.

    signs: (n, s), entries +1 or -1 (or any probes z with E z z^T = I)
    prior: (N, s), standard normal, for draws of f on the whole grid
    noise: (n, s), standard normal
    """

    signs: Tensor
    prior: Tensor
    noise: Tensor

    @classmethod
    def draw(cls, data: Observations, num: int, seed: int) -> "Probes":
        like, n, cells = data.values, data.grid.num_observed, data.grid.num_cells
        generator = torch.Generator(like.device).manual_seed(seed)

        def normal(rows: int) -> Tensor:
            return torch.randn(rows, num, generator=generator, dtype=like.dtype, device=like.device)

        return cls(random_signs(normal(n)), normal(cells), normal(n))


def stochastic_mll(
    model: LatentKroneckerGP,
    data: Observations,
    method: Iterative,
    probes: Probes,
    *,
    x0: Tensor | None = None,
    value: bool = True,
) -> Likelihood:
    """log p(y) and its gradient from solves with A. The trace in the gradient is estimated without bias, by

    plain probes z:   tr(A^-1 dA) ~ mean of (A^-1 z)^T dA z
    pathwise probes:  tr(A^-1 dA) ~ mean of v^T dA v,  v = A^-1 xi,  xi a draw of the data from the prior; a - v is then the
                      weight vector of a posterior sample.

    x0: where to start the solves, (n, 1 + s)
    """
    operator = model.covariance(data)
    r = model.residuals(data)
    with torch.no_grad():
        fixed = operator.detach()
        preconditioner = method.preconditioner.build(fixed) if method.preconditioner is not None else None
        right = probes.signs if method.gradient == "probes" else prior_data(fixed, probes)
        rhs = torch.cat([r.detach()[:, None], right], dim=1)
        solution = solve(fixed, rhs, method.solver, preconditioner=preconditioner, x0=x0)
        weights, solved = solution.values[:, :1], solution.values[:, 1:]
        estimate, error = torch.full((), torch.nan, dtype=r.dtype, device=r.device), math.nan
        if value:
            logdet, error = log_determinant(fixed, preconditioner, probes.signs, method.lanczos_steps)
            estimate = gaussian_log_density((r.detach() * weights[:, 0]).sum(), logdet, len(r))
            error = 0.5 * error

    def roughly(columns: Tensor) -> Tensor:
        return solve(
            fixed, columns.to(r.dtype), method.loose(CURVATURE_RTOL).solver, preconditioner=preconditioner
        ).values

    if torch.is_grad_enabled():
        other = right if method.gradient == "probes" else solved
        products = operator.product(torch.cat([weights, other], dim=1))
        trace = (solved * products[:, 1:]).sum() / solved.shape[1]
        surrogate = -(weights[:, 0] * r).sum() + 0.5 * (weights * products[:, :1]).sum() - 0.5 * trace
        estimate = with_value(estimate, surrogate)
    return Likelihood(estimate, weights[:, 0], roughly, solution, error, solution.values)


def spectral_mll(
    model: LatentKroneckerGP,
    data: Observations,
    method: Spectral,
    probes: Probes,
    *,
    expected: Tensor | None = None,
    value: bool = True,
) -> Likelihood:
    """log p(y) and its gradient from the leading modes of the factors; exact where no cell is missing and the noise is one number.

    Else the trace in the gradient is estimated with pathwise probes, as in `stochastic_mll`, and the log-determinant by quadrature
    of what the whitening leaves of it.

    expected: by how much the posterior means given r and given each probe are expected to differ from zero and from the function
        that the probe observes, at every cell, (1 + s, N): those of nearby hyperparameters
    """
    system = spectral_system(model, data, method, 2 * probes.noise.shape[1])
    r = model.residuals(data)
    with torch.no_grad():
        rhs, complete = r.detach().double()[:, None], system.complete
        prior = rhs.new_zeros(1, data.grid.num_cells)
        if not complete:
            drawn, functions = system.prior_data(probes.prior.double(), probes.noise.double())
            rhs, prior = torch.cat([rhs, drawn], dim=1), torch.cat([prior, functions])
            del drawn, functions
        start = prior if expected is None else prior + expected[: len(prior)]
        solution = system.solve(rhs, method.rtol, start=start, max_iterations=method.max_iterations)
        moved = (solution.latent - prior).to(torch.float32)
        del prior, start
        weights = solution.values[:, 0]
        estimate, error = torch.full((), torch.nan, dtype=torch.float64, device=r.device), math.nan
        if value:
            left, error = system.remaining_logdet(method.num_probes, method.lanczos_steps, seed=method.num_probes)
            estimate = gaussian_log_density((rhs[:, 0] * weights).sum(), left + system.known_logdet, len(r))
            error = 0.5 * error

    def roughly(columns: Tensor) -> Tensor:
        return system.solve(columns.double(), CURVATURE_RTOL, max_iterations=method.max_iterations).values

    if torch.is_grad_enabled():
        # 1/2 a^T dA a - 1/2 tr(A^-1 dA) = sum_k <G_k, dK_k> + <g, dD>
        if isinstance(system, SpectralSystem) and complete:
            traces, noise_trace = system.complete_trace_weights()
            gradients = [
                g - 0.5 * t for g, t in zip(system.factor_weights(weights[:, None], [0.5]), traces, strict=True)
            ]
            noise_gradient = 0.5 * weights.square() - 0.5 * noise_trace
        else:
            shares = [0.5] + [-0.5 / (rhs.shape[1] - 1)] * (rhs.shape[1] - 1)
            gradients = system.factor_weights(solution.values, shares)
            noise_gradient = solution.values.square() @ torch.tensor(shares, dtype=torch.float64, device=r.device)
        surrogate = factor_surrogate(model, data, gradients, noise_gradient) - (weights.to(r.dtype) * r).sum()
        estimate = with_value(estimate, surrogate.double())
    return Likelihood(estimate, weights, roughly, solution, error, moved)


def factor_surrogate(
    model: LatentKroneckerGP, data: Observations, gradients: Sequence[Tensor], noise_gradient: Tensor
) -> Tensor:
    """sum_k <G_k, K_k> + <g, D> as a function of the hyperparameters, for G_k (n_k, n_k) and g (n,)."""
    total = (noise_gradient.to(data.values.dtype) * model.noise_diagonal(data)).sum()
    for k, (gradient, coords) in enumerate(zip(gradients, data.grid.coords, strict=True)):
        total = total + (gradient.to(coords.dtype) * factor_dense(model.factor(k, coords))).sum()
    return total


def prior_data(operator: LatentKronecker, probes: Probes) -> Tensor:
    """Draws of the data from the prior, (n, s): P (K_1^1/2 (x) ... (x) K_d^1/2) w + D^1/2 e.

    The symmetric roots change smoothly with the hyperparameters, so the draws of one step are close to those of the next.
    """
    roots = []
    for factor in operator.factors:
        values, vectors = torch.linalg.eigh(factor_dense(factor))
        roots.append((vectors * values.clamp(min=0).sqrt()) @ vectors.mT)
    latent = kronecker_matmul(tuple(roots), probes.prior).index_select(1, operator.grid.index).mT
    return latent + operator.noise_diagonal().sqrt()[:, None] * probes.noise


def log_determinant(
    operator: LatentKronecker,
    preconditioner: Preconditioner | None,
    probes: Tensor,
    steps: int,
    max_memory: float | None = None,
) -> tuple[Tensor, float]:
    """log det A and its standard error, by quadrature of what the preconditioner M = G G^T leaves of it.

        log det A = log det M + tr log(G^-1 A G^-T)

    probes: (n, s) with E z z^T = I; max_memory: bytes that large arrays may take at once
    """
    usable = preconditioner if preconditioner is not None and preconditioner.logdet is not None else None

    def apply(x: Tensor) -> Tensor:
        return operator @ x if usable is None else usable.root_solve(operator @ usable.root_solve_t(x))

    left, error = trace_of_log(apply, probes, steps, max_memory=max_memory)
    return left if usable is None or usable.logdet is None else left + usable.logdet, error
