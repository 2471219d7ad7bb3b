"""The log marginal likelihood and its gradient, for every inference method.

    log p(y) = -1/2 r^T A^-1 r - 1/2 log det A - n/2 log 2 pi,     r = y - mean
    d log p(y) = -a^T dr + 1/2 a^T dA a - 1/2 tr(A^-1 dA),           a = A^-1 r

The trace is exact if the system knows it; otherwise it is estimated without bias, usually from draws of the data from
the prior,

    tr(A^-1 dA) ~ mean of v^T dA v,     v = A^-1 xi,  xi ~ N(0, A),

and a - v is then the weight vector of a posterior sample.

The result is a scalar whose value is the log likelihood and whose gradient, by autograd through the kernels only, is
the expression above.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.inference.base import GradientWeights, LatentSolution, Method, Purpose, System, gaussian_log_density
from lkgp.linalg.kronecker import LatentKronecker, OperatorFactory
from lkgp.model import LatentKroneckerGP
from lkgp.solvers import Solution


@dataclass(frozen=True, eq=False)
class Likelihood:
    """log p(y) at one set of hyperparameters.

    objective: a scalar with the gradient, and the value (NaN if it was not requested)
    weights: a = A^-1 r, (n,)
    solve: X -> A^-1 X for X (n, c), exact or to a few percent
    solution: the solution for r (column 0) and for the probes, if there were any
    error: standard error of the value
    next_start: initial guess for the solves at nearby hyperparameters, as `start` of `log_likelihood`
    trusted: whether the gradient is accurate enough for a step
    """

    objective: Tensor
    weights: Tensor
    solve: Callable[[Tensor], Tensor]
    solution: Solution
    error: float = 0.0
    next_start: Tensor | None = None
    trusted: bool = True


@dataclass(frozen=True, eq=False)
class Probes:
    """The random numbers of a stochastic likelihood.

    They are drawn only once, so that the likelihood is a deterministic function of the hyperparameters.

    prior: (N, s) for every term, one after the other, standard normal, for draws of f on the whole grid
    noise: (n, s), standard normal
    """

    prior: Tensor
    noise: Tensor

    @classmethod
    def draw(cls, data: Observations, num: int, seed: int, num_terms: int = 1) -> "Probes":
        like, n, cells = data.values, data.grid.num_observed, data.grid.num_cells
        generator = torch.Generator(like.device).manual_seed(seed)

        def normal(rows: int) -> Tensor:
            return torch.randn(rows, num, generator=generator, dtype=like.dtype, device=like.device)

        normal(n)  # not used; keeps the following numbers the same as in earlier versions
        return cls(normal(num_terms * cells), normal(n))


def log_likelihood(
    model: LatentKroneckerGP,
    data: Observations,
    method: Method,
    probes: Probes | None = None,
    *,
    start: Tensor | None = None,
    value: bool = True,
    operators: OperatorFactory = LatentKronecker,
) -> Likelihood:
    """log p(y) and its gradient.

    probes: random numbers for the trace, if the method does not know it exactly
    start: an initial guess, (1 + s, N), usually from nearby hyperparameters: the posterior mean given r, and for each
        probe the posterior mean given the probe minus the function that it observes, at every cell
    value: whether to compute the log-determinant, and hence the value
    """
    num_probes = 0 if probes is None else probes.noise.shape[1]
    system = method.system(model, data, columns=max(1, 2 * num_probes), operators=operators)
    r = model.residuals(data)
    with torch.no_grad():
        rhs = r.detach().double()[:, None]
        prior = rhs.new_zeros(1, data.grid.num_cells)
        estimated = system.needs_probes
        if estimated:
            assert probes is not None, "this inference method needs probes"
            drawn, functions = system.trace_probes(probes.prior.double(), probes.noise.double())
            rhs, prior = torch.cat([rhs, drawn], dim=1), torch.cat([prior, functions])
            del drawn, functions
        begin = prior if start is None else prior + start[: len(prior)]
        solution = system.solve(rhs, Purpose.LIKELIHOOD, begin)
        assert isinstance(solution, LatentSolution)
        moved = (solution.latent - prior).to(torch.float32)
        del prior, begin
        weights = solution.values[:, 0]
        estimate, error = torch.full((), torch.nan, dtype=torch.float64, device=r.device), math.nan
        if value:
            logdet, error = system.log_determinant(seed=method.num_probes)
            quadratic, doubt = (rhs[:, 0] * weights).sum(), 0.0
            if solution.quadratic is not None and solution.quadratic_error is not None:
                quadratic, doubt = solution.quadratic[0], float(solution.quadratic_error[0])
            estimate = gaussian_log_density(quadratic, logdet, len(r))
            error = likelihood_error(system, weights, error, doubt)
    if torch.is_grad_enabled():
        with torch.no_grad():
            gradient = system.gradient_weights(rhs, solution.values)
        surrogate = surrogate_of(model, data, gradient)
        surrogate = surrogate - (weights.to(r.dtype) * r).sum()
        estimate = with_value(estimate, surrogate.double())

    def roughly(columns: Tensor) -> Tensor:
        return system.solve(columns.double(), Purpose.CURVATURE).values

    return Likelihood(estimate, weights, roughly, solution, error, moved, system.trusts(solution))


def likelihood_error(system: System, weights: Tensor, logdet_error: float, quadratic_error: float) -> float:
    """The standard error of log p(y): of the log-determinant, and a third of every bound of a bias.

    weights: A^-1 r, (n,); logdet_error: a standard error; quadratic_error: a bound of the error of r^T A^-1 r
    """
    bias = 0.5 * quadratic_error + system.truncation * len(weights)
    return 0.5 * logdet_error + bias / 3 + system.likelihood_rounding(weights)


def surrogate_of(model: LatentKroneckerGP, data: Observations, weights: GradientWeights) -> Tensor:
    """The sum over terms and factors of <G_k, K_k>, plus <g, D>, as a function of the hyperparameters."""
    total = (weights.noise.to(data.values.dtype) * model.noise_diagonal(data)).sum()
    for term, of_term in zip(model.terms, weights.factors, strict=True):
        for factor, weight in zip(term.factors(data.grid.coords), of_term, strict=True):
            total = total + factor.inner(weight)
    return total


def with_value(value: Tensor, surrogate: Tensor) -> Tensor:
    """A scalar with the value of the first and the gradient of the second."""
    return surrogate + (value - surrogate).detach()
