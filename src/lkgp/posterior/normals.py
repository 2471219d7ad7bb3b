"""Standard normal numbers for every combination of the columns of d roots, which can grow along every axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from lkgp.linalg.products import kronecker_matmul
from lkgp.posterior.structured_roots import RowsAtPoints

# Number of pieces that are kept before they are joined: each takes some tens of microseconds in a product, and joining
# copies all numbers.
MOST_PIECES = 64


@dataclass(frozen=True, eq=False)
class Normals:
    """w, (w_1, ..., w_d) for each draw, in pieces that together fill a box; it is never changed.

    num: number of draws
    shape: (w_1, ..., w_d)
    pieces: for each, the position of its first entry along every axis, and its numbers, (p_1, ..., p_d, num)
    """

    num: int
    shape: tuple[int, ...]
    pieces: tuple[tuple[tuple[int, ...], Tensor], ...]

    @classmethod
    def of(cls, numbers: Tensor) -> "Normals":
        """One piece of numbers, (num, w_1, ..., w_d)."""
        num, *shape = numbers.shape
        return cls(num, tuple(shape), (((0,) * len(shape), numbers.movedim(0, -1).contiguous()),))

    @property
    def stored_numbers(self) -> int:
        return self.num * prod(self.shape)

    def extended(self, axis: int, numbers: Tensor) -> "Normals":
        """The same with further numbers along one axis, (num, w_1, ..., added, ..., w_d)."""
        start = tuple(size if k == axis else 0 for k, size in enumerate(self.shape))
        added = numbers.movedim(0, -1).contiguous()
        shape = tuple(size + (added.shape[k] if k == axis else 0) for k, size in enumerate(self.shape))
        grown = Normals(self.num, shape, (*self.pieces, (start, added)))
        return grown if len(grown.pieces) <= MOST_PIECES else grown._joined()

    def _joined(self) -> "Normals":
        whole = self.pieces[0][1].new_empty(*self.shape, self.num)
        for start, piece in self.pieces:
            whole[tuple(slice(s, s + p) for s, p in zip(start, piece.shape[:-1], strict=True))] = piece
        return Normals(self.num, self.shape, (((0,) * len(self.shape), whole),))

    def times(self, roots: Sequence[Tensor | RowsAtPoints], columns: slice) -> Tensor:
        """(R_1 (x) ... (x) R_d) w for the draws in `columns`, (N', c).

        roots: R_k, (a_k, w'_k); only the first w'_k columns are used
        """
        widths = [root.shape[1] for root in roots]
        parts = []
        for start, piece in self.pieces:
            part = piece[tuple(slice(0, max(0, w - s)) for w, s in zip(widths, start, strict=True))][..., columns]
            if part.numel():
                sizes = zip(roots, start, part.shape[:-1], strict=True)
                some = [columns_of(root, s, p) for root, s, p in sizes]
                parts.append(kronecker_matmul(some, part.reshape(-1, part.shape[-1])))
        if not parts:
            count = len(range(self.num)[columns])
            shape = (prod(root.shape[0] for root in roots), count)
            return torch.zeros(shape, dtype=roots[0].dtype, device=roots[0].device)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total.mT


def columns_of(root: Tensor | RowsAtPoints, start: int, count: int) -> Tensor | RowsAtPoints:
    """Some of the columns of a root (a, w)."""
    return root[:, start : start + count] if isinstance(root, Tensor) else root.columns(start, count)


def draw_normals(shape: Sequence[int], generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers with the dtype and the device of `like`."""
    return torch.randn(*shape, generator=generator, dtype=like.dtype, device=like.device)
