"""The posterior: mean, variance and draws, by pathwise conditioning.

    mean(.)  =  m + K(., X) a,                              a = A^-1 (y - m)
    draw(.)  =  m + f(.) + K(., X) (a - v),   v = A^-1 (f(X) + e),   f ~ GP(0, k),  e ~ N(0, D)

f is one draw from the prior, a function of coordinates; the weights a - v are solved for once.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.errors import complain
from lkgp.inference.costs import columns_at_once
from lkgp.inference.direct import ReducedSystem
from lkgp.inference.likelihood import Probes, gaussian_log_density, log_determinant
from lkgp.inference.methods import Direct, Iterative, Plan, Spectral, factorise, spectral_system
from lkgp.inference.observation_space import ObservedSystem
from lkgp.inference.spectral import SpectralSystem
from lkgp.linalg import LatentKronecker, kronecker_matmul
from lkgp.linalg.preconditioners import Preconditioner
from lkgp.model.model import LatentKroneckerGP, Structure
from lkgp.posterior.prior_draws import PriorDraws, locate
from lkgp.solvers import Reason, Solution, solve
from lkgp.solvers.base import column_norms, scaled_residual

log = logging.getLogger("lkgp.posterior")

# Sets of draws, beside those behind the variance, that are kept for when they are asked again.
KEPT_DRAWS = 4
# Sets of draws that were not kept, of which it is known which points they were asked for.
KNOWN_QUESTIONS = 1000
# A factor with so many points, and few modes, is used by its root: see `Posterior.structures`.
LOW_RANK_PAYS = 500
# The error of a sample, beside the spread of the posterior: far below what the number of samples makes of its standard deviation.
SMALL_ERROR = 0.1
# Added to the seed of the draws, so that their noise is not what the prior is drawn with.
NOISE_SEED = 7919


class PosteriorDraws:
    """Joint draws of f from the posterior: functions that agree with themselves wherever they are asked.

    solution: of A v = f(X) + e, (n, num); solved for, unless it is given
    """

    @torch.no_grad()
    def __init__(self, posterior: "Posterior", num: int, seed: int, solution: Solution | None = None) -> None:
        self.posterior = posterior
        generator = torch.Generator(posterior.data.values.device).manual_seed(seed)
        self.prior = PriorDraws(posterior.model, posterior.data.grid.coords, num, generator)
        self.solution = self._solve(seed) if solution is None else solution
        self.weights = self.solution.values.contiguous()

    def _solve(self, seed: int) -> Solution:
        """A v = f(X) + e for every draw, as many at a time as memory allows."""
        posterior, grid = self.posterior, self.posterior.data.grid
        generator = torch.Generator(grid.index.device).manual_seed(seed + NOISE_SEED)
        scale, parts = posterior.operator.noise_diagonal().sqrt(), []
        for columns in self._blocks(grid.num_cells):
            log.info("solving for draws %d to %d of %d", columns.start + 1, columns.stop, self.prior.num)
            latent = self.prior(grid.coords, columns)
            noisy = grid.gather(latent)
            for column in noisy.unbind(dim=1):  # one by one, so that they do not depend on how many are drawn at a time
                column.add_(
                    scale * torch.randn(len(scale), generator=generator, dtype=scale.dtype, device=scale.device)
                )
            parts.append(posterior.solve(noisy, start=latent.mT, for_samples=True))
        return joined(parts)

    def _blocks(self, cells: int) -> list[slice]:
        """The draws, as many at a time as memory allows where they are evaluated at so many cells."""
        width, num = self.posterior.columns_at_once(cells), self.prior.num
        return [slice(start, min(start + width, num)) for start in range(0, num, width)]

    @torch.no_grad()
    def __call__(self, coords: Sequence[Tensor]) -> Tensor:
        """The draws at every cell of the product of `coords`, (num, n'_1, ..., n'_d)."""
        shape = [len(x) for x in coords]
        weights = self.posterior.weights[:, None]
        values = self.weights.new_empty(self.prior.num, prod(shape))
        for columns in self._blocks(prod(shape)):
            values[columns] = (
                self.prior(coords, columns) + self.posterior.cross(coords, weights - self.weights[:, columns])
            ).mT
        return values.add_(self.posterior.model.mean.constant.detach()).view(-1, *shape)

    @torch.no_grad()
    def variance(self, coords: Sequence[Tensor]) -> Tensor:
        """The posterior variance at every cell, (n'_1, ..., n'_d), from these draws.

        What the first points leave open is known exactly; only the rest is averaged over draws, each about its exact mean.
        """
        given, left_open = self.prior.given_training(coords)
        total = torch.zeros_like(left_open)
        for columns in self._blocks(left_open.numel()):
            deviations = given(columns) - self.posterior.cross(coords, self.weights[:, columns])
            total += deviations.square_().sum(dim=1).view(left_open.shape)
        return total / self.prior.num + left_open


def joined(parts: Sequence[Solution]) -> Solution:
    """The solutions for several right-hand sides as one."""
    failed = [part.reason for part in parts if not part.converged]
    return Solution(
        torch.cat([part.values for part in parts], dim=1),
        torch.cat([part.residuals for part in parts]),
        max(part.iterations for part in parts),
        sum(part.products for part in parts),
        failed[0] if failed else Reason.CONVERGED,
        parts[0].rtol,
    )


@dataclass(eq=False)
class Posterior:
    """The model given the data; made by `condition`.

    weights: a, (n,)
    solution: how the solve for them went
    kept_draws: by their number and seed
    questions: off the grid, to draws that are not kept any more, so that they can be made again as they were
    """

    model: LatentKroneckerGP
    data: Observations
    plan: Plan
    seed: int
    max_memory: float | None
    weights: Tensor = field(init=False)
    solution: Solution = field(init=False)
    kept_draws: dict[tuple[int, int], PosteriorDraws] = field(default_factory=dict)
    questions: dict[tuple[int, int], list[Sequence[Tensor]]] = field(default_factory=dict)

    @cached_property
    def structures(self) -> tuple[Structure, ...]:
        """The form of each factor that makes products with A cheapest."""
        kinds = list(self.model.structures(self.data.grid))
        if isinstance(self.plan.method, Spectral) and isinstance(self.spectral, SpectralSystem):
            for axis, spectrum in zip(self.spectral.order, self.spectral.spectra, strict=True):
                points = self.data.grid.shape[axis]
                # Down to rounding, a spectrum is about twice as long as down to the noise.
                if kinds[axis] == "dense" and points >= LOW_RANK_PAYS and 5 * spectrum.rank <= points:
                    kinds[axis] = "low_rank"
        return tuple(kinds)

    @cached_property
    def operator(self) -> LatentKronecker:
        with torch.no_grad():
            return self.model.covariance(self.data, self.structures).detach()

    @cached_property
    def system(self) -> ReducedSystem:
        """The factorised system, where inference is direct."""
        assert isinstance(self.plan.method, Direct)
        return factorise(self.model, self.data, self.plan.method, self.plan.axis)

    @cached_property
    def spectral(self) -> SpectralSystem | ObservedSystem:
        """The system in its eigenbasis, where inference is done there."""
        assert isinstance(self.plan.method, Spectral)
        return spectral_system(self.model, self.data, self.plan.method, self.plan.method.num_samples)

    @cached_property
    def preconditioner(self) -> Preconditioner | None:
        assert isinstance(self.plan.method, Iterative)
        settings = self.plan.method.preconditioner
        return None if settings is None else settings.build(self.operator)

    def columns_at_once(self, cells: int = 0) -> int:
        """How many right-hand sides are solved for at a time; or functions evaluated, at so many cells."""
        return columns_at_once(max(self.data.grid.num_cells, cells), self.max_memory)

    def inverse_times(self, rhs: Tensor, strict: bool = False) -> Tensor:
        """A^-1 B for B (n, c), as many columns at a time as memory allows, with a complaint if it did not converge.

        strict: whether that is an error instead of a warning
        """
        solution = joined([self.solve(columns.contiguous()) for columns in rhs.split(self.columns_at_once(), dim=1)])
        if not solution.converged:
            complain(f"the solve for a covariance did not converge: {solution}", strict)
        return solution.values

    def solve(
        self, rhs: Tensor, x0: Tensor | None = None, start: Tensor | None = None, for_samples: bool = False
    ) -> Solution:
        """A^-1 B for B (n, c).

        x0: where to start, (n, c); start: or the function that B is expected to be an observation of, at every cell, (c, N)
        """
        method = self.plan.method
        if isinstance(method, Direct):
            return self._refine(
                rhs, lambda b, _: self.system.solve(b.double()), 1e-6 if rhs.dtype == torch.float64 else 1e-3
            )
        if isinstance(method, Iterative):
            return solve(self.operator, rhs, method.solver, preconditioner=self.preconditioner, x0=x0)
        rtol, energy = (method.sample_rtol, method.sample_rtol) if for_samples else (method.residual_rtol, method.rtol)
        if for_samples:
            # The residual of the data is an error of the function; it must be small beside the spread of the posterior.
            rtol = min(rtol, SMALL_ERROR * self.spectral.spread / float(column_norms(rhs).max()))
        if start is None and x0 is not None:
            start = kronecker_matmul(tuple(self.factors), self.data.grid.scatter(x0))
        norms, inner = column_norms(rhs), list[Solution]()

        def in_modes(b: Tensor, enough: float) -> Tensor:
            # The first solve is for B itself, whose size says how accurate it must be; the others mend what the truncation leaves.
            expected, size, accuracy = (None, 1.0, 1.0) if inner else (start, norms.double(), energy)
            inner.append(
                self.spectral.solve(
                    b.double() * size,
                    accuracy,
                    residual_rtol=0.8 * enough,
                    start=expected,
                    max_iterations=method.max_iterations,
                )
            )
            return inner[-1].values / size

        solution = self._refine(rhs, in_modes, rtol if rhs.dtype == torch.float64 else max(rtol, 1e-3))
        iterations, products = sum(s.iterations for s in inner), sum(s.products for s in inner)
        return replace(solution, iterations=iterations, products=solution.products + products)

    def _refine(self, rhs: Tensor, system_solve: Callable[[Tensor, float], Tensor], rtol: float) -> Solution:
        """Solve with a system that is A up to rounding and truncation, and correct it by the true residual.

        system_solve: B, and the relative residual that is enough, to about A^-1 B
        """
        norms = column_norms(rhs)
        x = system_solve(rhs / norms, rtol)
        best, before, products = x, torch.full_like(norms, torch.inf), 0
        while True:
            residual = scaled_residual(self.operator, x.to(rhs.dtype), rhs, norms)
            left = torch.linalg.vector_norm(residual, dim=0)
            products += rhs.shape[1]
            # A correction that made a column worse is taken back.
            worse = ~(left <= before)
            x = torch.where(worse, best, x)
            stuck = not bool((left < 0.5 * before).any())
            left = torch.where(worse, before, left) if bool(torch.isfinite(before).all()) else left
            if bool((left <= rtol).all()) or stuck:
                break
            best, before = x, left
            x = x + system_solve(residual, rtol / float(left.max()))
        reason = Reason.CONVERGED if bool((left <= rtol).all()) else Reason.STAGNATED
        return Solution(x.to(rhs.dtype).mul_(norms), left, 1, products, reason, rtol)

    @cached_property
    def factors(self) -> list[Tensor]:
        with torch.no_grad():
            return [self.model.cross_factor(k, x, x) for k, x in enumerate(self.data.grid.coords)]

    def cross_factors(self, coords: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """C_k, (n'_k, n_k): covariances of the points of each factor with those that were fitted.

        Points that were fitted take their row of K_k, so that on and off the grid are the same numbers.
        """
        crosses = []
        for k, (points, known) in enumerate(zip(coords, self.data.grid.coords, strict=True)):
            index = locate(points, known)
            cross = self.factors[k][index]
            new = index < 0
            if bool(new.any()):
                cross[new] = self.model.cross_factor(k, points[new], known)
            crosses.append(cross)
        return tuple(crosses)

    def cross(self, coords: Sequence[Tensor], weights: Tensor) -> Tensor:
        """K(., X) W for W (n, c) at every cell of the product of `coords`, (N', c)."""
        on_grid = all(points is known for points, known in zip(coords, self.data.grid.coords, strict=True))
        factors = self.operator.factors if on_grid else self.cross_factors(coords)
        return kronecker_matmul(factors, self.data.grid.scatter(weights)).mT

    @torch.no_grad()
    def mean(self, coords: Sequence[Tensor]) -> Tensor:
        """The posterior mean at every cell of the product of `coords`, (n'_1, ..., n'_d)."""
        values = self.cross(coords, self.weights[:, None])[:, 0] + self.model.mean.constant
        return values.reshape([len(x) for x in coords])

    @torch.no_grad()
    def variance(self, coords: Sequence[Tensor]) -> Tensor:
        """The posterior variance of f at every cell of the product of `coords`, (n'_1, ..., n'_d)."""
        prior = self.model.prior_variance(coords)
        if isinstance(self.plan.method, Direct):
            variance = prior - self.system.explained_variance(self.cross_factors(coords)).to(prior.dtype)
        elif (
            isinstance(self.plan.method, Spectral)
            and isinstance(self.spectral, SpectralSystem)
            and self.spectral.complete
        ):
            variance = prior - self.spectral.explained_variance(self.cross_factors(coords)).to(prior.dtype)
        else:
            variance = self.draws(*self.behind_variance).variance(coords)
        # A variance is never below the rounding of the numbers that it is the difference of.
        return torch.maximum(variance, torch.finfo(prior.dtype).eps * prior)

    @torch.no_grad()
    def covariance(self, coords: Sequence[Tensor], strict: bool = False) -> Tensor:
        """The joint posterior covariance of f at the cells of the product of `coords`, (N', N'): exact, and a solve for every cell.

        strict: whether a solve that does not converge is an error instead of a warning
        """
        prior = reduce(torch.kron, [self.model.cross_factor(k, x, x) for k, x in enumerate(coords)])
        # C = K(., X), (N', n): at every observed cell, products of the factors' covariances
        factors = zip(self.cross_factors(coords), self.data.grid.axis_index, strict=True)
        cross = reduce(lambda a, b: (a[:, None, :] * b).flatten(0, 1), [c[:, index] for c, index in factors])
        # K(., .) - C A^-1 C^T
        explained = cross @ self.inverse_times(cross.mT, strict)
        return prior - (explained + explained.mT) / 2

    @property
    def behind_variance(self) -> tuple[int, int]:
        """Number and seed of the draws that the variance is computed from, where it is not exact."""
        return getattr(self.plan.method, "num_samples", 0), self.seed

    @property
    def variance_error(self) -> float:
        """The relative standard error of a standard deviation: 0 where it is exact, else the Monte-Carlo error at the most."""
        method = self.plan.method
        if isinstance(method, Direct) or (isinstance(method, Spectral) and self.spectral.complete):
            return 0.0
        return 1 / math.sqrt(2 * method.num_samples)

    @property
    def truncation(self) -> float:
        """A bound of what the spectra that were left out change of the log-likelihood, by observation. The solves know the whole."""
        method = self.plan.method
        if isinstance(method, Direct):
            return self.system.truncation
        return self.spectral.truncation if isinstance(method, Spectral) else 0.0

    @torch.no_grad()
    def log_likelihood(self, num_probes: int, lanczos_steps: int) -> tuple[float, float]:
        """log p(y) and its standard error, which is 0 where inference is direct or nothing is missing."""
        method, r = self.plan.method, self.model.residuals(self.data)
        if isinstance(method, Direct):
            logdet, error = self.system.logdet, 0.0
        elif isinstance(method, Spectral):
            left, error = self.spectral.remaining_logdet(num_probes, lanczos_steps, self.seed, self.max_memory)
            logdet = left + self.spectral.known_logdet
        else:
            signs = Probes.draw(self.data, num_probes, self.seed).signs
            logdet, error = log_determinant(self.operator, self.preconditioner, signs, lanczos_steps, self.max_memory)
        density = gaussian_log_density((r * self.weights).sum(), logdet, len(r)) + self.model.log_scatter(self.data)
        return float(density), 0.5 * error

    @torch.no_grad()
    def draws(self, num: int, seed: int) -> PosteriorDraws:
        """`num` joint draws; asked again with the same numbers, the same ones."""
        if (num, seed) not in self.kept_draws:
            others = [key for key in self.kept_draws if key != self.behind_variance]
            if len(others) >= KEPT_DRAWS:  # the oldest makes room
                asked = self.kept_draws.pop(others[0]).prior.asked
                self.questions |= {others[0]: asked} if asked else {}
                if len(self.questions) > KNOWN_QUESTIONS:
                    del self.questions[next(iter(self.questions))]
            self.kept_draws[num, seed] = PosteriorDraws(self, num, seed)
            self.kept_draws[num, seed].prior.replay(self.questions.pop((num, seed), ()))
        return self.kept_draws[num, seed]


@torch.no_grad()
def condition(
    model: LatentKroneckerGP,
    data: Observations,
    plan: Plan,
    *,
    seed: int = 0,
    max_memory: float | None = None,
    x0: Tensor | None = None,
) -> Posterior:
    """The posterior of `model` given `data`, with the hyperparameters as they are.

    x0: where to start the solve for the weights, (n,)
    """
    posterior = Posterior(model, data, plan, seed, max_memory)
    start = None if x0 is None else x0[:, None]
    posterior.solution = posterior.solve(model.residuals(data)[:, None], x0=start)
    posterior.weights = posterior.solution.values[:, 0].contiguous()
    return posterior
