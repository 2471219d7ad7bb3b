"""Joint draws from the posterior by pathwise conditioning, and a store that keeps some of them.

    draw(.)  =  m + f(.) + K(., X) (a - v),   v = A^-1 (f(X) + e),   f ~ GP(0, k),  e ~ N(0, D)

f is a draw from the prior, a function of coordinates; the weights v are solved for once.
"""

import logging
import time
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from lkgp.inference import Purpose
from lkgp.posterior.prior_draws import PriorDraws
from lkgp.solvers import Reason, Solution

log = logging.getLogger("lkgp.posterior")

# Number of sets of draws kept in memory, besides the one used for the variance: it trades memory against solving again.
KEPT_DRAWS = 4
# Number of discarded sets of draws whose requested points are remembered, so that the same draws can be made again.
KEPT_REPLAY_LOGS = 1000
# Added to the seed of the draws, so that the noise does not reuse the random numbers of the prior draws.
NOISE_SEED = 7919


def joined(parts: Sequence[Solution]) -> Solution:
    """Join the solutions for several blocks of right-hand sides into one."""
    failed = [part.reason for part in parts if not part.converged]
    return Solution(
        torch.cat([part.values for part in parts], dim=1),
        torch.cat([part.residuals for part in parts]),
        max(part.iterations for part in parts),
        sum(part.products for part in parts),
        failed[0] if failed else Reason.CONVERGED,
        parts[0].rtol,
    )


class PosteriorDraws:
    """Joint draws of f from the posterior: functions with consistent values wherever they are evaluated.

    posterior: a `Posterior`
    solution: the solution of A v = f(X) + e, (n, num); computed unless it is given
    seconds: run time of the solve
    """

    @torch.no_grad()
    def __init__(self, posterior: Any, num: int, seed: int, solution: Solution | None = None) -> None:
        self.posterior, self.num, self.seed = posterior, num, seed
        began = time.perf_counter()
        generator = torch.Generator(posterior.data.values.device).manual_seed(seed)
        self.prior = PriorDraws(posterior.model, posterior.data.grid.coords, num, generator)
        self.solution = self._solve(seed) if solution is None else solution
        self.weights = self.solution.values.contiguous()
        self.seconds = time.perf_counter() - began

    def _solve(self, seed: int) -> Solution:
        """Solve A v = f(X) + e for every draw, as many at a time as memory allows."""
        posterior, grid = self.posterior, self.posterior.data.grid
        generator = torch.Generator(grid.index.device).manual_seed(seed + NOISE_SEED)
        scale, parts = posterior.model.noise_diagonal(posterior.data).detach().sqrt(), []
        for columns in self._blocks(grid.num_cells):
            log.info("solving for draws %d to %d of %d", columns.start + 1, columns.stop, self.num)
            latent = self.prior(grid.coords, columns)
            noisy = grid.gather(latent)
            # one draw at a time, so that the numbers do not depend on the block size
            for column in noisy.unbind(dim=1):
                column.add_(
                    scale * torch.randn(len(scale), generator=generator, dtype=scale.dtype, device=scale.device)
                )
            parts.append(posterior.system.solve(noisy, Purpose.SAMPLES, latent.mT))
        return joined(parts)

    def _blocks(self, cells: int) -> list[slice]:
        """Blocks of draws, as many at a time as memory allows for evaluation at `cells` cells."""
        width = self.posterior.columns_at_once(cells)
        return [slice(start, min(start + width, self.num)) for start in range(0, self.num, width)]

    @torch.no_grad()
    def __call__(self, coords: Sequence[Tensor]) -> Tensor:
        """The draws at every cell of the product of `coords`, (num, n'_1, ..., n'_d)."""
        shape = [len(x) for x in coords]
        weights = self.posterior.weights[:, None]
        values = self.weights.new_empty(self.num, prod(shape))
        for columns in self._blocks(prod(shape)):
            update = self.posterior.cross(coords, weights - self.weights[:, columns])
            values[columns] = (self.prior(coords, columns) + update).mT
        return values.view(-1, *shape).add_(self.posterior.model.mean.at(coords).detach())

    @torch.no_grad()
    def variance(self, coords: Sequence[Tensor]) -> Tensor:
        """Estimate the posterior variance at every cell, (n'_1, ..., n'_d), from these draws.

        The conditional variance given f on the fitted grid is known exactly; only the rest is averaged over draws, with
        deviations from the exact mean.
        """
        given, left_open = self.prior.given_training(coords)
        total = torch.zeros_like(left_open)
        for columns in self._blocks(left_open.numel()):
            deviations = given(columns) - self.posterior.cross(coords, self.weights[:, columns])
            total += deviations.square_().sum(dim=1).view(left_open.shape)
        return total / self.num + left_open


class DrawStore:
    """Draws by their number and seed; a repeated request gives the same draws, even if they were discarded.

    always: number and seed of the draws that are never discarded
    kept: the draws in memory, oldest first
    replay_logs: the replay logs of discarded draws, oldest first; see `PriorDraws`
    """

    def __init__(self, posterior: Any, always: tuple[int, int]) -> None:
        self.posterior, self.always = posterior, always
        self.kept: dict[tuple[int, int], PosteriorDraws] = {}
        self.replay_logs: dict[tuple[int, int], list[Sequence[Tensor]]] = {}

    def get(self, num: int, seed: int) -> PosteriorDraws:
        """Return `num` joint draws, computing them if necessary."""
        if (num, seed) not in self.kept:
            self._make_room()
            self.kept[num, seed] = PosteriorDraws(self.posterior, num, seed)
            self.kept[num, seed].prior.replay(self.replay_logs.pop((num, seed), ()))
        return self.kept[num, seed]

    def restore(self, num: int, seed: int, solution: Solution, log: Sequence[Sequence[Tensor]]) -> None:
        """Add draws whose weights are already known."""
        self.kept[num, seed] = PosteriorDraws(self.posterior, num, seed, solution)
        self.kept[num, seed].prior.replay(log)

    def _make_room(self) -> None:
        others = [key for key in self.kept if key != self.always]
        if len(others) < KEPT_DRAWS:
            return
        log = self.kept.pop(others[0]).prior.replay_log
        self.replay_logs |= {others[0]: log} if log else {}
        if len(self.replay_logs) > KEPT_REPLAY_LOGS:
            del self.replay_logs[next(iter(self.replay_logs))]
