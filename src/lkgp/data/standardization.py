"""Observations in units of their own spread, and back: the one place in which data are standardised."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations
from lkgp.data.scaling import Scaling


@dataclass(frozen=True, eq=False)
class Standardization:
    """How the values and the coordinates of some observations are scaled before a model sees them.

    values: of the values
    coords: one per factor, of its columns
    """

    values: Scaling
    coords: tuple[Scaling, ...]

    @classmethod
    def of(
        cls,
        observations: Observations,
        *,
        values: bool = True,
        coords: bool = True,
        unscaled: Sequence[Tensor] | None = None,
    ) -> "Standardization":
        """To mean zero and variance one.

        values, coords: False leaves those as they are
        unscaled: one boolean tensor (d_k,) per factor, True for the columns that are never scaled
        """
        data, points = observations.values.double(), [x.double() for x in observations.grid.coords]
        scalings = [Scaling.standard(x) if coords else Scaling.identity(x) for x in points]
        if unscaled is not None:
            scalings = [scaling.except_for(columns) for scaling, columns in zip(scalings, unscaled, strict=True)]
        return cls(Scaling.standard(data) if values else Scaling.identity(data), tuple(scalings))

    def apply(
        self, observations: Observations, *, dtype: torch.dtype = torch.float64, device: torch.device | None = None
    ) -> Observations:
        """The observations as a model sees them."""
        device = observations.values.device if device is None else device

        def to(tensor: Tensor) -> Tensor:
            return tensor.to(dtype=dtype, device=device)

        scale, squares = self.values.scale, (observations.noise_variance, observations.scatter)
        noise, scatter = (None if square is None else to(square.double() / scale / scale) for square in squares)
        return Observations(
            PartialGrid(
                tuple(to(x) for x in self.points([x.double() for x in observations.grid.coords])),
                observations.grid.observed.to(device),
            ),
            to(self.values.apply(observations.values.double())),
            to(observations.counts),
            noise,
            scatter,
        )

    def points(self, coords: Sequence[Tensor]) -> list[Tensor]:
        """Coordinates (n'_k, d_k), one tensor per factor, as a model sees them."""
        return [scaling.apply(x) for scaling, x in zip(self.coords, coords, strict=True)]

    def variance(self, variance: Tensor) -> Tensor:
        """A variance in the units of the model, from one in the units of the data."""
        scale = self.values.scale.to(variance)
        return variance / scale / scale

    def undo_variance(self, variance: Tensor) -> Tensor:
        """Variances or covariances in squared units of the data, from those in the units of the model."""
        return variance * self.values.scale.to(variance) ** 2
