"""A stationary kernel over one column that has few modes, such as a cycle that lasts: products through its root."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lkgp.errors import InputError
from lkgp.linalg.factors.base import MOST_MODES_BY_ROWS, WORK_ENTRIES, CovarianceFunction
from lkgp.linalg.factors.structured import StructuredFactor
from lkgp.linalg.factors.toeplitz import by_lag
from lkgp.linalg.noise_roots import PIVOTED, MatrixRoot, NoiseRoot
from lkgp.linalg.roots import positive_cholesky, root_by_rows

# Whether modes are few is judged at so many points, of which they must be at most half, down to this fraction of the
# largest one.
JUDGED, NEGLIGIBLE = 1200, 1e-10
# Added to the variances of the pivots, as a fraction: of the size of rounding errors.
JITTER = 1e-14


def has_few_modes(function: CovarianceFunction, coords: Tensor) -> bool:
    """Whether a kernel over one column (n_k, 1) has few modes."""
    if not function.stationary or coords.shape[1] != 1:
        return False
    ascending = coords[:, 0].sort().values
    some = ascending[torch.linspace(0, len(coords) - 1, min(JUDGED, len(coords))).round().long()][:, None]
    with torch.no_grad():
        matrix = function(some.double(), some.double())
    values = torch.linalg.eigvalsh(matrix)
    return int((values > NEGLIGIBLE * values[-1]).sum()) <= len(some) // 2


class FewModesFactor(StructuredFactor):
    """K = U U^T up to rounding.

    root: U, (n_k, r)
    times: the points, (n_k,), in float64
    evaluate: covariances at lags (a, 1), (a,)
    """

    kind = "few_modes"

    def __init__(self, root: Tensor, *, times: Tensor, evaluate: Callable[[Tensor], Tensor]) -> None:
        super().__init__(root, times=times, evaluate=evaluate)
        self.modes, self.times, self.evaluate = root, times, evaluate

    @classmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "FewModesFactor":
        if coords.shape[1] != 1 or not function.stationary:
            raise InputError(
                "a factor of few modes needs one column and a stationary kernel; choose another structure."
            )
        points = coords.double()
        with torch.no_grad():
            diagonal = function(points[:1], points[:1])[0, 0].expand(len(points))
            rows = lambda index: function(points[index], points)  # noqa: E731
            rounding = len(points) * torch.finfo(torch.float64).eps * float(diagonal[0])
            _, left, pivots = root_by_rows(rows, diagonal.clone(), rounding, MOST_MODES_BY_ROWS)
        if left > 2 * rounding * len(points):
            raise InputError(f"a kernel has more than {MOST_MODES_BY_ROWS} modes; choose another structure.")
        # U = C L^-T with the covariances C of all points with the pivots, and those of the pivots, L L^T
        cross = function(points, points[pivots])
        own = cross[pivots] + JITTER * diagonal[0] * torch.eye(len(pivots), dtype=cross.dtype, device=cross.device)
        root = torch.linalg.solve_triangular(positive_cholesky(own[None])[0][0], cross.mT, upper=False).mT
        return cls(root.to(coords), times=points[:, 0].detach(), evaluate=by_lag(function))

    def rows_at(self, index: Tensor) -> Tensor:
        return self.modes[index] @ self.modes.mT

    def rounded(self, dtype: torch.dtype) -> "FewModesFactor":
        return FewModesFactor(self.modes.to(dtype), times=self.times, evaluate=self.evaluate)

    def largest_row_sum(self) -> float:
        if self.nonnegative:
            return float((self.modes @ self.modes.sum(dim=0)).max())
        # The largest eigenvalue serves the same purpose.
        return float(torch.linalg.eigvalsh(self.modes.mT @ self.modes)[-1])

    @property
    def nonnegative(self) -> bool:
        """Whether no covariance is negative, from those with the first point."""
        return bool((self.evaluate((self.times - self.times[0])[:, None]) >= 0).all())

    def transposed_product(self, z: Tensor) -> Tensor:
        return ((self.modes.mT @ z).mT @ self.modes.mT).contiguous()

    # Gradients: a quadratic function of U, whose tangent has the same value and the same derivatives.

    def pull_back(self, left: Tensor, right: Tensor) -> Tensor:
        """The offset and the slopes of the tangent of tr(left^T U U^T right), (1 + n_k r,)."""
        root = self.modes.detach().to(left)
        a, b = root.mT @ left, root.mT @ right
        return _tangent((a * b).sum(), left @ b.mT + right @ a.mT)

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
        root = self.modes.detach().to(weights)
        value, slope = weights.new_zeros(()), torch.zeros_like(root)
        size = max(1, WORK_ENTRIES // max(1, root.shape[1]))
        for i, j, w in zip(*(x.split(size) for x in (rows, columns, weights)), strict=True):
            value += (w[:, None] * root[i] * root[j]).sum()
            slope.index_add_(0, i, w[:, None] * root[j]).index_add_(0, j, w[:, None] * root[i])
        return _tangent(value, slope)

    def inner(self, weights: Tensor) -> Tensor:
        return weights[0] + (weights[1:].view(self.modes.shape).to(self.modes) * self.modes).sum()

    def noise_root(self) -> NoiseRoot:
        return MatrixRoot(self.modes.detach(), PIVOTED)

    @property
    def num_points(self) -> int:
        return len(self.times)

    # Methods that `LinearOperator` requires of its subclasses.

    def _diagonal(self) -> Tensor:
        return self.modes.square().sum(dim=-1)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        if self.modes.requires_grad:
            return (self.modes[row_index] * self.modes[col_index]).sum(dim=-1)
        # Without a derivative, the kernel itself is cheaper than r products for each entry.
        lags = self.times[row_index] - self.times[col_index]
        parts: list[Any] = [self.evaluate(some).detach() for some in lags.reshape(-1, 1).split(WORK_ENTRIES)]
        return torch.cat(parts).view(lags.shape).to(self.modes.dtype)


def _tangent(value: Tensor, slope: Tensor) -> Tensor:
    # With f(U) = value and its derivative G: f(U') is about value + <G, U' - U>, and <G, U> = 2 value.
    return torch.cat([-value[None], slope.flatten()])
