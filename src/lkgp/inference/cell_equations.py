"""The equations A x = B for the observed cells, solved by preconditioned iterations in mixed precision."""

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.inference.mixed_precision import ASTRAY, MixedPrecisionEquations
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.preconditioners import NoiseOnly, Preconditioner
from lkgp.solvers.cg import CoefficientHistory, column_dots, descend, smallest_ritz_value
from lkgp.solvers.refinement import Correction

# The smallest eigenvalue of M^-1 A is taken to be this share of the smallest one that the iterations have seen.
SHARE_OF_SEEN = 0.5


class CellEquations(MixedPrecisionEquations):
    """A x = B for B (n, c)."""

    def __init__(
        self,
        rhs: Tensor,
        noise: Tensor,
        exact: LatentKronecker,
        fast: Tensor | LatentKronecker,
        inverse: Preconditioner,
        grid: PartialGrid,
    ) -> None:
        super().__init__(rhs, noise, exact, fast)
        self.inverse, self.grid = inverse, grid
        # D <= A, whatever the preconditioner.
        self.bound = inverse if inverse.below or inverse.lowest is not None else NoiseOnly(noise)
        self._first = True
        # M^-1 r of the residuals r that were measured last, where M measures them, with the units of both, (c,)
        self._solved: tuple[Tensor, Tensor] | None = None

    @property
    def lowest(self) -> float:
        return 1.0 if self.bound.below or self.bound.lowest is None else self.bound.lowest

    def begin(self, start: Tensor | None) -> Tensor:
        # x = D^-1 (b - f) where f is observed
        if start is None:
            return torch.zeros_like(self.rhs)
        return (self.rhs - self.grid.gather(start.double().mT)) / self.noise

    def residual(self, unknowns: Tensor) -> Tensor:
        residual = self.rhs - self.exact @ unknowns
        if self._first and self.started and self.inverse.lowest is not None:
            # Ignore an initial guess that is worse than zero, which M, close to A, can tell.
            worse = ~(self.size(residual) < self.size(self.rhs))
            unknowns[:, worse], residual[:, worse] = 0.0, self.rhs[:, worse]
        self._first = False
        return residual

    def size(self, residual: Tensor) -> Tensor:
        # |e|_A^2 = r^T A^-1 r <= r^T M^-1 r / lowest
        if self.bound is not self.inverse:
            return column_dots(residual, self.bound.solve(residual)).clamp(min=0).sqrt()
        # In the precision of the corrections, which begin with M^-1 r.
        units = residual.abs().amax(dim=0).clamp(min=1e-300)
        carried = (residual / units).to(self.fast.dtype)
        solved = self.inverse.solve(carried)
        self._solved = solved, units
        return column_dots(carried, solved).double().clamp(min=0).sqrt() * units

    def solved(self, unknowns: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        return unknowns, residual

    def true_residual(self, residual: Tensor) -> Tensor:
        return torch.linalg.vector_norm(residual, dim=0) / self.norms

    def energy(self, unknowns: Tensor, residual: Tensor) -> Tensor:
        return (unknowns * (self.rhs + residual)).sum(dim=0).clamp(min=1e-300)

    def correct(self, unknowns: Tensor, active: Tensor, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        if self._solved is not None:
            solved, units = self._solved
            self._solved = solved[:, active], units[active]
        return super().correct(unknowns, active, residual, excess, budget)

    def correction(self, residual: Tensor, excess: Tensor, budget: int) -> Correction:
        if self._solved is None or self._solved[0].dtype != self.fast.dtype:
            solved, units = self.inverse.solve(residual), residual.new_ones(residual.shape[1])
        else:
            solved, units = self._solved
        sizes = units * column_dots(residual / units, solved.double()).clamp(min=0).sqrt().clamp(min=1e-300)
        carried, begun = (residual / sizes).to(self.fast.dtype), (solved * (units / sizes)).to(self.fast.dtype)
        self._solved = None
        del solved
        step = torch.zeros_like(carried)
        columns = torch.arange(residual.shape[1], device=residual.device)
        goal, rounds = self.wanted(excess), self.rounds(budget)
        history: CoefficientHistory = []
        products, iterations, _ = descend(
            self.fast,
            self.inverse,
            step,
            carried,
            columns,
            goal,
            rounds,
            energy=True,
            astray=ASTRAY,
            history=history,
            begun=begun,
        )
        if self.inverse.lowest is not None and history:
            # What the iterations have seen is no smaller than the smallest eigenvalue.
            seen = max(smallest_ritz_value(history), torch.finfo(self.fast.dtype).eps)
            self.inverse.lowest = min(self.inverse.lowest, SHARE_OF_SEEN * seen)
        return Correction(step.double() * sizes, iterations, products)

    def answer(self, unknowns: Tensor) -> tuple[Tensor, Tensor]:
        return unknowns, self.grid.scatter(self.rhs - self.noise * unknowns).mT
