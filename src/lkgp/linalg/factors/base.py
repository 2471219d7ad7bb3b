"""The base class of the factors of a Kronecker product: symmetric matrices that keep their structure.

Each kind of factor is one file in this folder and a subclass of `Factor`. It is a `LinearOperator`, so `@`,
`diagonal()` and indexing work as usual in that library.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from lkgp.errors import InputError, TooLargeError
from lkgp.linalg.eigenbasis import FactorBasis
from lkgp.linalg.markov_processes import Process
from lkgp.linalg.noise_roots import PIVOTED, MatrixRoot, NoiseRoot
from lkgp.linalg.roots import TriangularRoot, root_by_rows

# Work arrays of structured products have about this many entries (32 MB in float64), so that they stay small compared
# with the grid.
WORK_ENTRIES = 2**22
# A structured factor with more points than this is never formed as a dense matrix: 16384^2 numbers in float64 take two
# gigabytes.
MOST_DENSE_POINTS = 16384
# Draws from the prior use the structure of a factor with more points than this, if it has one of its own: a triangular
# root of so many points takes 0.2 GB, and its time grows with their third power.
MOST_ROOT_POINTS = 5000
# The eigenpairs of such a factor are computed from single rows, one at a time; more than this many would take minutes.
MOST_MODES_BY_ROWS = 2000


class CovarianceFunction(Protocol):
    """The interface of a kernel that factors use.

    kernel: the GPyTorch kernel itself, from which a structure may decide whether it is suitable
    stationary: whether k(x, x') depends on x - x' only
    isotropic: whether it depends on the distance |x - x'| over all columns only
    summands: the parts of a sum; the kernel itself if it is none
    """

    @property
    def kernel(self) -> Any: ...

    @property
    def stationary(self) -> bool: ...

    @property
    def isotropic(self) -> bool: ...

    @property
    def summands(self) -> Sequence["CovarianceFunction"]: ...

    def __call__(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Kernel values between `rows` (..., a, d) and `columns` (..., b, d), (..., a, b)."""


class Factor(LinearOperator):
    """K_k, (n_k, n_k). A subclass implements products; everything else has a default that forms blocks of rows.

    kind: the name under which the structure is registered
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type["Factor"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.kind:
            Factor.kinds[cls.kind] = cls

    # Construction

    @classmethod
    @abstractmethod
    def of(cls, function: CovarianceFunction, coords: Tensor) -> "Factor":
        """The factor of a kernel over the points `coords` (n_k, d_k)."""

    @classmethod
    def suits(cls, function: CovarianceFunction, coords: Tensor) -> bool:
        """Whether to choose this structure automatically for a kernel over these points; False by default."""
        return False

    @classmethod
    def product_cost(cls, points: int) -> float:
        """Multiplications of a product with a factor of this kind, per cell of the grid."""
        return float(points)

    @classmethod
    def stored_numbers(cls, points: int) -> float:
        """Numbers that a factor of this kind keeps in memory."""
        return float(points) ** 2

    # Parts

    @abstractmethod
    def rows_at(self, index: Tensor) -> Tensor:
        """The rows `index` (b,), dense, (b, n_k)."""

    def entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """K[rows_i, columns_i] for indices of the same or of compatible shapes, in that shape.

        It is differentiable by the defining numbers of the factor.
        """
        if type(self)._get_indices is not LinearOperator._get_indices:
            return self._get_indices(rows, columns)
        rows, columns = torch.broadcast_tensors(rows, columns)
        # A kind without single entries computes whole rows, a block of them at a time.
        found = []
        size = max(1, WORK_ENTRIES // self.shape[-1])
        for some, others in zip(rows.flatten().split(size), columns.flatten().split(size), strict=True):
            distinct, which = torch.unique(some, return_inverse=True)
            found.append(self.rows_at(distinct)[which, others])
        return torch.cat(found).view(rows.shape)

    def entries_diagonal(self) -> Tensor:
        """The diagonal, (n_k,)."""
        return self.diagonal(dim1=-2, dim2=-1)

    def dense(self) -> Tensor:
        """The whole matrix, (n_k, n_k); raises an error if it would be too large."""
        points = self.shape[-2]
        if points > MOST_DENSE_POINTS:
            raise InputError(
                f"a {self.kind} factor of {points} points would take {8 * points**2 / 1e9:.1f} GB as a dense matrix; "
                "use fewer points along it, or divide it into parts."
            )
        return self.rows_at(torch.arange(points, device=self.device))

    def largest_row_sum(self) -> float:
        """The largest absolute row sum, which bounds all eigenvalues."""
        points = self.shape[-2]
        blocks = torch.arange(points, device=self.device).split(max(1, WORK_ENTRIES // points))
        return max(float(self.rows_at(block).abs().sum(dim=1).max()) for block in blocks)

    def summands(self) -> Sequence["Factor"]:
        """The parts of a sum of kernels, without a derivative; the factor itself if none are known."""
        return [self]

    @property
    def processes(self) -> Sequence[Process]:
        """The Matern processes along one column of which this is the covariance; none if it is not known to be."""
        return []

    # Decompositions

    def basis(self, largest_tail: float = 0.0, largest_value: float = math.inf) -> FactorBasis:
        """The eigenpairs that matter; see `FactorBasis.of`."""
        if self.shape[-2] <= MOST_DENSE_POINTS:
            return FactorBasis.of(self.dense(), largest_tail, largest_value)
        root, left, _ = self._root_by_rows(min(largest_tail, largest_value) / self.shape[-2], MOST_MODES_BY_ROWS)
        self._check_complete(root, left, largest_tail)
        return FactorBasis.of_root(root.cpu().numpy(), left, largest_tail, largest_value, self.device)

    def leading(self, most: int, threshold: float) -> FactorBasis:
        """About the `most` leading eigenpairs that exceed `threshold`; see `FactorBasis.leading`."""
        if self.shape[-2] <= MOST_DENSE_POINTS:
            return FactorBasis.leading(self.dense(), most, threshold)
        root, left, _ = self._root_by_rows(threshold, most)
        return FactorBasis.of_root(root.cpu().numpy(), left, 0.0, threshold, self.device)

    def triangular_root(self, threshold: float = 0.0) -> TriangularRoot:
        """R with R R^T = K, for draws from the prior; see `TriangularRoot.of`."""
        if self.shape[-2] <= MOST_DENSE_POINTS:
            return TriangularRoot.of(self.dense(), threshold)
        root, left, pivots = self._root_by_rows(threshold, MOST_MODES_BY_ROWS)
        self._check_complete(root, left, threshold * self.shape[-2])
        return TriangularRoot(root, pivots)

    def noise_root(self) -> NoiseRoot:
        """R with R R^T = K, for draws from the prior without a dense matrix where a structure has such a root."""
        return MatrixRoot(self.triangular_root().root, PIVOTED)

    @property
    def noise_root_bytes(self) -> float:
        """The memory that `noise_root` takes; 0 if it is small compared with the draws."""
        return 0.0

    @property
    def draws_by_structure(self) -> bool:
        """Whether draws from the prior use `noise_root`, because a triangular root would be too large."""
        return self.shape[-2] > MOST_ROOT_POINTS and type(self).noise_root is not Factor.noise_root

    def _root_by_rows(self, threshold: float, most: int) -> tuple[Tensor, float, Tensor]:
        """A pivoted root of K from single rows, down to rounding at least; see `root_by_rows`."""
        diagonal = self.entries_diagonal().detach().double()
        rounding = len(diagonal) * torch.finfo(torch.float64).eps * float(diagonal.max())
        rows = lambda index: self.rows_at(index).detach().double()  # noqa: E731
        return root_by_rows(rows, diagonal, max(threshold, rounding), most)

    def _check_complete(self, root: Tensor, left: float, allowed: float) -> None:
        if left > allowed and root.shape[1] >= MOST_MODES_BY_ROWS:
            raise TooLargeError(
                f"a factor of {self.shape[-2]} points has more than {MOST_MODES_BY_ROWS} modes, the most that can be "
                "computed row by row"
            )

    # Products

    def transposed_product(self, z: Tensor) -> Tensor:
        """(K Z)^T for Z (..., n_k, c), as (..., c, m_k)."""
        return self.matmul(z).mT.contiguous()

    def transposed_product_into(self, z: Tensor, out: Tensor) -> Tensor:
        """Write (K Z)^T for Z (n_k, c) to `out` (c, m_k), without a gradient."""
        return out.copy_(self.matmul(z).mT)

    @abstractmethod
    def rounded(self, dtype: torch.dtype) -> "Factor":
        """Return the same factor in another precision."""

    def difference(self, other: "Factor") -> "Factor | None":
        """This factor minus another one of the same kind, as a factor; None if the kind has no such form."""
        return None

    # Gradients

    def pull_back(self, left: Tensor, right: Tensor) -> Any:
        """The weights of this factor's defining numbers in tr(left^T K right), for left and right (n_k, m).

        Such weights can be added.
        """
        return left @ right.mT

    def gather_weights(self, rows: Tensor, columns: Tensor, weights: Tensor) -> Any:
        """The weights of this factor's defining numbers in sum_i w_i K[rows_i, columns_i], for vectors (m,).

        Like those of `pull_back`, with which they can be added.
        """
        points = self.shape[-2]
        total = torch.bincount(rows * points + columns, weights, minlength=points**2)
        return total.view(points, points)

    def fold(self, weights: Tensor) -> Any:
        """The weights of this factor's defining numbers in tr(W^T K), for W (n_k, n_k)."""
        return self.pull_back(weights, torch.eye(len(weights), dtype=weights.dtype, device=weights.device))

    def inner(self, weights: Any) -> Tensor:
        """The inner product of weights from `pull_back` with this factor's defining numbers, a scalar."""
        return (weights.to(self.dtype) * self.dense()).sum()


def all_processes(parts: Sequence[Sequence[Process]]) -> Sequence[Process]:
    """The processes of all parts of a sum; none if any part is not known to have some."""
    return [process for part in parts for process in part] if all(parts) else []


def looked_up(table: Tensor, places: Tensor) -> Tensor:
    """The numbers of a table (m,) at some places, in their shape; `table[places]` takes three times as long."""
    return table.index_select(0, places.flatten()).view(places.shape)
