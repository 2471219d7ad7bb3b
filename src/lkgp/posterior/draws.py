"""Joint draws from the posterior by pathwise conditioning, and a store that keeps some of them.

    draw(.)  =  m + f(.) + K(., X) (a - v),   v = A^-1 (f(X) + e),   f ~ GP(0, k),  e ~ N(0, D)

f is a draw from the prior, a function of coordinates; the weights v are solved for once.
"""

import logging
import time
from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from lkgp.concurrency import Lock
from lkgp.inference import Purpose
from lkgp.machine import usable_memory
from lkgp.posterior.prior_draws import PriorDraws
from lkgp.solvers import Reason, Solution

log = logging.getLogger("lkgp.posterior")

# Number of sets of draws kept in memory, besides the one used for the variance: it trades memory against solving again.
KEPT_DRAWS = 4
# Number of discarded sets of draws whose requested points are remembered, so that the same draws can be made again. A
# request for some points takes about a kilobyte.
KEPT_REPLAY_LOGS = 10_000
# Limit in bytes on the memory that a set of draws takes for points outside the fitted grid, if the caller sets none:
# reading as much, which every request does, takes some tenths of a second.
NEW_POINTS_BYTES = 1e9
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
        room = NEW_POINTS_BYTES if posterior.max_memory is None else posterior.max_memory / 4
        most = usable_memory() if posterior.max_memory is None else posterior.max_memory
        self.prior = PriorDraws(posterior.model, posterior.data.grid.coords, num, generator, room, most)
        self.solution = self._solve(seed) if solution is None else solution
        self.weights = self.solution.values.contiguous()
        self.seconds = time.perf_counter() - began

    def _solve(self, seed: int) -> Solution:
        """Solve A v = f(X) + e for every draw, as many at a time as memory allows."""
        posterior, grid = self.posterior, self.posterior.data.grid
        generator = torch.Generator(grid.index.device).manual_seed(seed + NOISE_SEED)
        scale, parts = posterior.model.noise_diagonal(posterior.data).detach().sqrt(), []
        prior = self.prior.at(grid.coords)
        for columns in self._blocks(grid.num_cells):
            log.info("solving for draws %d to %d of %d", columns.start + 1, columns.stop, self.num)
            latent = prior(columns)
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
        prior = self.prior.at(coords)
        weights = self.posterior.weights[:, None]
        values = self.weights.new_empty(self.num, prod(shape))
        for columns in self._blocks(prod(shape)):
            update = self.posterior.cross(coords, weights - self.weights[:, columns])
            values[columns] = (prior(columns) + update).mT
        return values.view(-1, *shape).add_(self.posterior.model.mean.at(coords).detach())

    @torch.no_grad()
    def variance(self, coords: Sequence[Tensor], predicted: Tensor | None = None) -> Tensor:
        """Estimate the posterior variance at every cell, (n'_1, ..., n'_d), from these draws.

        The conditional variance given f on the fitted grid is known exactly; only the rest is averaged over draws, with
        deviations from the exact mean.

        predicted: K(., X) v at every cell, (N', num); computed unless it is given
        """
        given, left_open = self.prior.given_training(coords)
        total = torch.zeros_like(left_open)
        for columns in self._blocks(left_open.numel()):
            if predicted is None:
                explained = self.posterior.cross(coords, self.weights[:, columns])
            else:
                explained = predicted[:, columns]
            total += (given(columns) - explained).square_().sum(dim=1).view(left_open.shape)
        return total / self.num + left_open


class DrawStore:
    """Draws by their number and seed; a repeated request gives the same draws, even if they were discarded.

    One thread at a time adds draws; the others wait for them. Draws that are already there are found without waiting.

    always: number and seed of the draws that are never discarded
    kept: the draws in memory, oldest first; replaced as a whole when it changes, so that it can be read at any time
    replay_logs: the replay logs of discarded draws, oldest first; see `PriorDraws`
    forgotten: number and seed of discarded draws whose replay log was dropped
    """

    def __init__(self, posterior: Any, always: tuple[int, int]) -> None:
        self.posterior, self.always = posterior, always
        self.kept: dict[tuple[int, int], PosteriorDraws] = {}
        self.replay_logs: dict[tuple[int, int], list[Sequence[Tensor]]] = {}
        self.forgotten: set[tuple[int, int]] = set()
        self._start()

    def _start(self) -> None:
        # Discarded draws that a caller still holds: making them a second time would give two functions with one seed.
        self._alive: WeakValueDictionary[tuple[int, int], PosteriorDraws] = WeakValueDictionary()
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        """A consistent copy, also while another thread adds draws."""
        with self._lock:
            state = {name: value for name, value in vars(self).items() if not name.startswith("_")}
            return state | {
                "replay_logs": {key: list(log) for key, log in self.replay_logs.items()},
                "forgotten": set(self.forgotten),
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def get(self, num: int, seed: int) -> PosteriorDraws:
        """Return `num` joint draws, computing them if necessary."""
        found = self.kept.get((num, seed))
        if found is not None:
            return found
        with self._lock:
            if (num, seed) not in self.kept:
                draws = self._alive.get((num, seed)) or self._made_again(num, seed)
                self._make_room()
                self.kept = {**self.kept, (num, seed): draws}
            return self.kept[num, seed]

    def restore(self, num: int, seed: int, solution: Solution, log: Sequence[Sequence[Tensor]]) -> None:
        """Add draws whose weights are already known."""
        draws = PosteriorDraws(self.posterior, num, seed, solution)
        draws.prior.replay(log)
        with self._lock:
            self.kept = {**self.kept, (num, seed): draws}

    def _made_again(self, num: int, seed: int) -> PosteriorDraws:
        draws = PosteriorDraws(self.posterior, num, seed)
        draws.prior.replay(self.replay_logs.pop((num, seed), ()))
        if (num, seed) in self.forgotten:
            draws.prior.closed = (
                f"the {num} draws with seed {seed} were discarded, and the points outside the fitted grid at which "
                "they were evaluated are no longer known, so their functions cannot be continued there; use another "
                "seed."
            )
        return draws

    def _make_room(self) -> None:
        others = [key for key in self.kept if key != self.always]
        if len(others) < KEPT_DRAWS:
            return
        oldest = others[0]
        draws = self.kept[oldest]
        # The log itself and not a copy: who still holds the draws may add to it.
        self._alive[oldest], self.replay_logs[oldest] = draws, draws.prior.replay_log
        self.kept = {key: kept for key, kept in self.kept.items() if key != oldest}
        if len(self.replay_logs) > KEPT_REPLAY_LOGS:
            self._drop_logs()

    def _drop_logs(self) -> None:
        """Drop the logs of draws that were never evaluated outside the fitted grid and, if need be, the oldest."""
        for key in [key for key, log in self.replay_logs.items() if not log and key not in self._alive]:
            del self.replay_logs[key]
        while len(self.replay_logs) > KEPT_REPLAY_LOGS:
            oldest = next(iter(self.replay_logs))
            del self.replay_logs[oldest]
            self.forgotten.add(oldest)
