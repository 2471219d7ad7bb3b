"""Standardise observations and undo it: the only place in which data are rescaled for a model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.data.scaling import Scaling
from lkgp.data.subsets import points_with_values


@dataclass(frozen=True, eq=False)
class Standardization:
    """How the values and the coordinates of some observations are scaled before a model sees them.

    values: the scaling of the values
    coords: the scaling of the columns of each factor, one per factor
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
        """Scale to mean zero and variance one.

        Points without observations have no influence on the scale, and so none on a fit. Only if all observations are
        at one point of a factor, which leaves its scale open, is it that of all points.

        values, coords: False leaves them unchanged
        unscaled: one boolean tensor (d_k,) per factor, True for the columns that are never scaled
        """
        data, grid = observations.values.double(), observations.grid
        scalings = []
        for k, points in enumerate(x.double() for x in grid.coords):
            seen = points[points_with_values(grid, k)]
            scalings.append(Scaling.standard(seen, everywhere=points) if coords else Scaling.identity(points))
        if unscaled is not None:
            scalings = [scaling.except_for(columns) for scaling, columns in zip(scalings, unscaled, strict=True)]
        return cls(Scaling.standard(data) if values else Scaling.identity(data), tuple(scalings))

    def apply(
        self, observations: Observations, *, dtype: torch.dtype = torch.float64, device: torch.device | None = None
    ) -> Observations:
        """Return the observations in the units of the model."""
        device = observations.values.device if device is None else device

        def to(tensor: Tensor) -> Tensor:
            return tensor.to(dtype=dtype, device=device)

        scale, squares = self.values.scale, (observations.noise_variance, observations.scatter)
        noise, scatter = (None if square is None else to(square.double() / scale / scale) for square in squares)
        return Observations(
            observations.grid.with_coords([to(x) for x in self.points([x.double() for x in observations.grid.coords])]),
            to(self.values.apply(observations.values.double())),
            to(observations.counts),
            noise,
            scatter,
        )

    def points(self, coords: Sequence[Tensor]) -> list[Tensor]:
        """Convert coordinates (n'_k, d_k), one tensor per factor, to the units of the model."""
        return [scaling.apply(x) for scaling, x in zip(self.coords, coords, strict=True)]

    def variance(self, variance: Tensor) -> Tensor:
        """Convert a variance from the units of the data to those of the model."""
        scale = self.values.scale.to(variance)
        return variance / scale / scale

    def undo_variance(self, variance: Tensor) -> Tensor:
        """Convert variances or covariances from the units of the model to squared units of the data."""
        return variance * self.values.scale.to(variance) ** 2
