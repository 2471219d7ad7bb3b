"""The log marginal likelihood and its gradient: exact by factorisation, or stochastic by solves.

    log p(y) = -1/2 r^T A^-1 r - 1/2 log det A - n/2 log 2 pi,     r = y - mean
    d log p(y) = -a^T dr + 1/2 a^T dA a - 1/2 tr(A^-1 dA),           a = A^-1 r

Both ways return a scalar whose value is the likelihood and whose gradient, by autograd through the kernels only, is the line above.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.methods import Direct, Iterative, Plan, factorise
from lkgp.model import LatentKroneckerGP
from lkgp.operators import LatentKronecker, factor_dense, kronecker_matmul
from lkgp.preconditioners import Preconditioner
from lkgp.readers import Observations
from lkgp.solvers import Solution, solve


def gaussian_log_density(quadratic: Tensor, logdet: Tensor, n: int) -> Tensor:
    """log N(r; 0, A) from r^T A^-1 r and log det A."""
    return -0.5 * (quadratic + logdet + n * math.log(2 * math.pi))


def with_value(value: Tensor, surrogate: Tensor) -> Tensor:
    """A scalar with the value of the first and the gradient of the second."""
    return surrogate + (value - surrogate).detach()


def exact_mll(model: LatentKroneckerGP, data: Observations, method: Direct, axis: int = 0) -> Tensor:
    """log p(y), a scalar with its exact gradient."""
    system = factorise(model, data, method, axis)
    r = model.residuals(data)
    weights = system.solve(r.detach().double()[:, None])
    value = gaussian_log_density((r.detach() * weights[:, 0]).sum(), system.logdet, len(r))
    if not torch.is_grad_enabled():
        return value
    operator = model.covariance(data, structures=["dense"] * len(model.kernels))
    factor_weights, noise_weight = system.trace_weights()
    weights = weights.to(r.dtype)
    # tr(A^-1 dA) = sum_k <G_k, dK_k> + (its share of s^2) d log s^2
    trace = sum((weight.to(r.dtype) * factor).sum() for weight, factor in zip(factor_weights, operator.factors, strict=True))
    if data.noise_variance is None:
        trace = trace + noise_weight.to(r.dtype) * model.noise_variance().log()
    surrogate = -(weights[:, 0] * r).sum() + 0.5 * (weights * operator.product(weights)).sum() - 0.5 * trace
    return with_value(value, surrogate)


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

        signs = torch.where(normal(n) > 0, 1.0, -1.0).to(like.dtype)
        return cls(signs, normal(cells), normal(n))


@dataclass(frozen=True, eq=False)
class StochasticLikelihood:
    """An estimate of the likelihood.

    objective: a scalar with the estimated gradient, and the estimated value (NaN if the value was not asked for)
    solution: of the systems for r (column 0) and for the probes; `solution.values` is the warm start of the next
    error: standard error of the value
    """

    objective: Tensor
    solution: Solution
    error: float


def stochastic_mll(
    model: LatentKroneckerGP,
    data: Observations,
    method: Iterative,
    probes: Probes,
    *,
    x0: Tensor | None = None,
    value: bool = True,
) -> StochasticLikelihood:
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
    if not torch.is_grad_enabled():
        return StochasticLikelihood(estimate, solution, error)
    other = right if method.gradient == "probes" else solved
    products = operator.product(torch.cat([weights, other], dim=1))
    trace = (solved * products[:, 1:]).sum() / solved.shape[1]
    surrogate = -(weights[:, 0] * r).sum() + 0.5 * (weights * products[:, :1]).sum() - 0.5 * trace
    return StochasticLikelihood(with_value(estimate, surrogate), solution, error)


@torch.no_grad()
def log_likelihood(model: LatentKroneckerGP, data: Observations, chosen: Plan, seed: int) -> Tensor:
    """log p(y), a scalar, without a gradient: exact if the method is direct, else an estimate."""
    if isinstance(chosen.method, Direct):
        return exact_mll(model, data, chosen.method, chosen.axis)
    probes = Probes.draw(data, chosen.method.num_probes, seed)
    return stochastic_mll(model, data, chosen.method, probes).objective


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


def log_determinant(operator: LatentKronecker, preconditioner: Preconditioner | None, probes: Tensor, steps: int) -> tuple[Tensor, float]:
    """log det A and its standard error, by stochastic Lanczos quadrature on what the preconditioner M = G G^T leaves of it.

        log det A = log det M + tr log(G^-1 A G^-T),     tr f(B) ~ mean of |z|^2 e_1^T f(T_z) e_1

    with T_z the tridiagonal Lanczos matrix of B from z. `probes` are (n, s) with E z z^T = I; sqrt(n) I makes it exact.
    """
    usable = preconditioner if preconditioner is not None and preconditioner.logdet is not None else None

    def apply(x: Tensor) -> Tensor:
        return operator @ x if usable is None else usable.root_solve(operator @ usable.root_solve_t(x))

    # All Lanczos vectors are kept for reorthogonalisation, so few probes are done at a time.
    at_once = max(1, 2**27 // (len(probes) * min(steps, len(probes))))
    parts = []
    for block in probes.split(at_once, dim=1):
        tridiagonal, squared = lanczos(apply, block, min(steps, len(probes)))
        nodes, vectors = torch.linalg.eigh(tridiagonal)
        smallest = torch.finfo(nodes.dtype).tiny
        parts.append(squared * (vectors[:, 0].square() * nodes.clamp(min=smallest).log()).sum(dim=1))
    estimates = torch.cat(parts)
    base = torch.zeros(()) if usable is None or usable.logdet is None else usable.logdet
    spread = float(estimates.std() / math.sqrt(len(estimates))) if len(estimates) > 1 else math.nan
    return estimates.mean() + base, spread


def lanczos(apply: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Tridiagonal matrices (s, steps, steps) of `apply` from each column of `start` (n, s), and the columns' squared norms (s,).

    A column that has run through its Krylov space is continued with ones on the diagonal, cut off from the rest.
    """
    squared = start.square().sum(dim=0)
    q = start / squared.sqrt()
    basis = [q]
    tridiagonal = start.new_zeros(start.shape[1], steps, steps)
    alive = torch.ones_like(squared, dtype=torch.bool)
    largest = torch.zeros_like(squared)
    for k in range(steps):
        w = apply(q)
        alpha = (q * w).sum(dim=0)
        tridiagonal[:, k, k] = torch.where(alive, alpha, torch.ones_like(alpha))
        largest = torch.maximum(largest, alpha)
        if k + 1 == steps:
            break
        for _ in range(2):  # twice is enough
            for v in basis:
                w = w - v * (v * w).sum(dim=0)
        beta = torch.linalg.vector_norm(w, dim=0)
        alive = alive & (beta > 1e2 * torch.finfo(beta.dtype).eps * largest)
        beta = torch.where(alive, beta, torch.zeros_like(beta))
        tridiagonal[:, k, k + 1] = tridiagonal[:, k + 1, k] = beta
        q = torch.where(alive, w / torch.where(alive, beta, torch.ones_like(beta)), torch.zeros_like(w))
        basis.append(q)
    return tridiagonal, squared
