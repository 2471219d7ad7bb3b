"""Affine scalings: the model sees numbers near one, and the caller gets results in the original units."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Scaling:
    """The map x -> (x - shift) / scale, column by column.

    shift, scale: scalars for values, (d_k,) for the coordinates of a factor
    """

    shift: Tensor
    scale: Tensor

    @classmethod
    def identity(cls, like: Tensor) -> "Scaling":
        """The scaling that changes nothing, for data like `like`, (n,) or (n, d_k)."""
        return cls(torch.zeros_like(like[0]), torch.ones_like(like[0]))

    @classmethod
    def standard(cls, data: Tensor, everywhere: Tensor | None = None) -> "Scaling":
        """Scale to mean zero and variance one over the rows of `data`; a constant column keeps its scale.

        everywhere: rows whose spread is the scale of a column that is constant in `data`
        """
        # Work in units of the largest entry, so that squares neither overflow nor underflow.
        unit = data.abs().amax(dim=0)
        unit = torch.where(unit > 0, unit, torch.ones_like(unit))
        relative = data / unit
        shift = relative.mean(dim=0)
        scale = relative.sub_(shift).square_().mean(dim=0).sqrt()
        shift, scale = shift * unit, scale * unit
        # A column is constant when its spread is no more than the rounding of its mean.
        constant = scale <= 8 * torch.finfo(data.dtype).eps * shift.abs()
        instead = torch.ones_like(scale) if everywhere is None else cls.standard(everywhere).scale
        return cls(shift, torch.where(constant | (scale == 0), instead, scale))

    def except_for(self, columns: Tensor) -> "Scaling":
        """Return the same scaling without any change to the columns marked True, (d_k,)."""
        return Scaling(self.shift.masked_fill(columns, 0.0), self.scale.masked_fill(columns, 1.0))

    def apply(self, data: Tensor) -> Tensor:
        return (data - self.shift).div_(self.scale)

    def undo(self, data: Tensor) -> Tensor:
        return data * self.scale + self.shift
