"""Read a user's arrays or table into a partial grid and its values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid, as_factor_coords
from lkgp.errors import InputError


class Observations(NamedTuple):
    """The observed cells and their values.

    grid: the grid and which of its cells are observed
    values: the values of the observed cells, (n,)
    counts: the number of measurements averaged in each value, (n,)
    noise_variance: the known noise variance of each value, (n,), or None if it is to be learned
    scatter: the sum of squared deviations of the measurements from each value, (n,), if values are means of several
        measurements and it is known
    """

    grid: PartialGrid
    values: Tensor
    counts: Tensor
    noise_variance: Tensor | None = None
    scatter: Tensor | None = None

    @property
    def num_measured(self) -> int:
        """The number of values in the likelihood: all measurements if their scatter is known, else their means."""
        return self.grid.num_observed if self.scatter is None else int(self.counts.sum())


def as_real_tensor(array: Any, place: str) -> Tensor:
    """Convert `array` to a floating-point tensor; integers and booleans become float64, masked entries NaN."""
    if isinstance(array, Tensor):
        tensor = array.detach().clone()  # later changes by the caller must not affect us
    else:
        if isinstance(array, np.ma.MaskedArray):
            array = np.ma.filled(array.astype(float), np.nan)
        values = np.asarray(array)
        if values.dtype == object:
            try:
                values = values.astype(float)
            except (TypeError, ValueError):
                raise InputError(
                    f"found text or other objects in {place}; give numbers (encode names as 0, 1, 2, ...)."
                ) from None
        if values.dtype.kind in "Mm":
            raise InputError(f"found dates in {place}; give numbers, for example hours since the first date.")
        if values.dtype.kind not in "fiubc":
            raise InputError(f"found text in {place} ({values.dtype}); give numbers (encode names as 0, 1, 2, ...).")
        tensor = torch.from_numpy(values.astype(values.dtype.newbyteorder("="), copy=True))
    if tensor.is_complex():
        raise InputError(f"found complex numbers in {place}; fit the real and imaginary parts as two models.")
    return tensor if tensor.is_floating_point() else tensor.double()


@dataclass(frozen=True)
class ArrayKind:
    """The kind of array that the caller passed, which is also the kind returned."""

    library: Literal["numpy", "torch"]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, array: Any) -> "ArrayKind":
        tensor = as_real_tensor(array, "the array of values")
        return cls("torch" if isinstance(array, Tensor) else "numpy", tensor.dtype, tensor.device)

    def make(self, tensor: Tensor) -> Any:
        tensor = tensor.detach().to(dtype=self.dtype, device=self.device)
        return tensor if self.library == "torch" else tensor.numpy()


def check_finite_or_missing(values: Tensor, place: str) -> None:
    """Reject infinite entries, naming the first; NaN means missing and is allowed."""
    infinite = torch.nonzero(torch.isinf(values))
    if len(infinite):
        where = tuple(infinite[0].tolist())
        raise InputError(f"found an infinite value in {place} at {where}; set it to NaN if it is missing, or fix it.")


def check_factors(coords: Any) -> None:
    """Reject anything but a sequence with one entry per factor."""
    if isinstance(coords, (str, bytes, dict)) or not isinstance(coords, Sequence) or len(coords) == 0:
        raise InputError("the coordinates must be a list with one array per factor, for example [X, T].")


def known_noise(noise_variance: Any, like: Tensor, needed: Tensor) -> Tensor:
    """Expand a known noise variance, a number or an array, to the shape of `like`; check it where `needed` is True."""
    noise = as_real_tensor(noise_variance, "the noise variance").to(like)
    if noise.ndim and noise.shape != like.shape:
        raise InputError(
            f"the noise variance has shape {tuple(noise.shape)} but the values have {tuple(like.shape)}; give one "
            "number, or one per value."
        )
    noise = noise.expand(like.shape)
    bad = torch.nonzero(needed & ~((noise > 0) & torch.isfinite(noise)))
    if len(bad):
        where = tuple(bad[0].tolist())
        raise InputError(
            f"the noise variance at {where} is {float(noise[where]):g}; it must be positive and finite wherever a "
            "value was observed."
        )
    return noise


def from_array(coords: Sequence[Any], values: Any, noise_variance: Any = None) -> Observations:
    """Read a grid-shaped array in which NaN means missing.

    coords: one array per factor, (n_k,) or (n_k, d_k)
    values: (n_1, ..., n_d)
    noise_variance: a number or (n_1, ..., n_d) if the noise is known, else None
    """
    check_factors(coords)
    cells = as_real_tensor(values, "the array of values")
    factors = [as_real_tensor(x, f"the coordinates of factor {k}").to(cells.device) for k, x in enumerate(coords)]
    check_finite_or_missing(cells, "the array of values")
    grid = PartialGrid(tuple(factors), ~torch.isnan(cells))
    observed = grid.gather(cells.flatten())
    noise = None
    if noise_variance is not None:
        noise = grid.gather(known_noise(noise_variance, cells, grid.observed).flatten())
    return Observations(grid, observed, torch.ones_like(observed), noise)


def from_table(
    columns: Sequence[Any],
    values: Any,
    noise_variance: Any = None,
    *,
    duplicates: Literal["error", "mean"] = "error",
    place: str = "the table",
) -> Observations:
    """Read a long table with one observation per row; a row whose value is NaN only adds its coordinates.

    columns: one array per factor with the coordinates of every row, (rows,) or (rows, d_k)
    values: (rows,)
    noise_variance: a number or (rows,) if the noise of the rows is known, else None
    duplicates: what to do when several rows name the same cell. "mean" averages them and divides the noise of
        that cell by their number. Their scatter is kept, because it carries information about the noise.

    The points of each factor are sorted.
    """
    if duplicates not in ("error", "mean"):
        raise InputError(f"duplicates must be 'error' or 'mean', not {duplicates!r}.")
    check_factors(columns)
    rows = as_real_tensor(values, f"the values of {place}")
    if rows.ndim != 1:
        raise InputError(f"the values of {place} must be one column, not of shape {tuple(rows.shape)}.")
    check_finite_or_missing(rows, f"the values of {place}")
    points, labels = [], []
    for k, column in enumerate(columns):
        here = f"column {k} of {place}"
        x = as_factor_coords(as_real_tensor(column, here).to(rows.device), here)
        if len(x) != len(rows):
            raise InputError(f"{here} has {len(x)} rows but there are {len(rows)} values; they must agree.")
        unique, label = torch.unique(x, dim=0, return_inverse=True)
        points.append(unique)
        labels.append(label)

    shape = tuple(len(x) for x in points)
    present = ~torch.isnan(rows)
    if not bool(present.any()):
        raise InputError(f"nothing is observed: every value of {place} is NaN; at least one row must have a value.")
    cell = torch.from_numpy(np.ravel_multi_index(tuple(label[present].cpu().numpy() for label in labels), shape))
    index, group, counts = torch.unique(cell.to(rows.device), return_inverse=True, return_counts=True)
    if duplicates == "error" and bool((counts > 1).any()):
        worst = int(torch.nonzero(counts > 1)[0])
        where = torch.nonzero(present).flatten()[group == worst].tolist()
        named = ", ".join(str(points[k][label[where[0]]].tolist()) for k, label in enumerate(labels))
        raise InputError(
            f"rows {where[0]} and {where[1]} of {place} belong to the same cell ({named}), and "
            f"{int((counts > 1).sum())} cell(s) have several rows in total; remove the duplicates, or pass "
            "duplicates='mean' to average them."
        )
    observed = torch.zeros(shape, dtype=torch.bool, device=rows.device)
    observed.view(-1)[index] = True
    counts = counts.to(rows.dtype)

    def summed(values: Tensor) -> Tensor:
        return torch.zeros_like(counts).index_add_(0, group, values[present])

    grid, means = PartialGrid(tuple(points), observed), summed(rows) / counts
    if noise_variance is not None:
        return Observations(grid, means, counts, summed(known_noise(noise_variance, rows, present)) / counts.square())
    if not bool((counts > 1).any()):
        return Observations(grid, means, counts)
    apart = torch.zeros_like(rows)
    apart[present] = rows[present] - means[group]
    return Observations(grid, means, counts, scatter=summed(apart.square()))


def same_measurements(new: Observations, old: Observations) -> Observations:
    """Give cells of `new` that have the same value as in `old` the counts and scatter of `old`.

    Applies only if both are on the same grid and the noise is learned; otherwise returns `new` unchanged.
    """
    pairs = zip(new.grid.coords, old.grid.coords, strict=True)
    same_grid = new.grid.shape == old.grid.shape and all(bool((a == b).all()) for a, b in pairs)
    if new.noise_variance is not None or old.noise_variance is not None or not same_grid:
        return new

    def there(values: Tensor) -> Tensor:
        return new.grid.gather(old.grid.scatter(values.to(new.values), fill=torch.nan))

    same = new.values == there(old.values)
    scatter = None if old.scatter is None else there(old.scatter).where(same, 0.0)
    return new._replace(counts=there(old.counts).where(same, 1.0), scatter=scatter)


def add_cells(
    old: Observations, values: Any, noise_variance: Any, noise_everywhere: Tensor | None
) -> tuple[Observations, Tensor | None]:
    """Add observations in further cells of the same grid.

    values: (n_1, ..., n_d), NaN where there is nothing new; cells that were observed before may be repeated
    noise_variance: noise variance of the new cells; give it only if that of the old cells is known, too
    noise_everywhere: the known noise of all cells, (n_1, ..., n_d), if it was given; it is returned updated with the
        noise of the new cells
    """
    shape, seen = old.grid.shape, old.grid.observed
    cells = as_real_tensor(values, "the array of new values").to(old.values)
    if tuple(cells.shape) != shape:
        raise InputError(f"the new values have shape {tuple(cells.shape)}, but the grid is {shape}; they must agree.")
    check_finite_or_missing(cells, "the array of new values")
    before = old.grid.scatter(old.values, fill=torch.nan).view(shape)
    clash = torch.nonzero(seen & ~torch.isnan(cells) & (cells != before))
    if len(clash):
        where = tuple(clash[0].tolist())
        raise InputError(
            f"cell {where} already has the value {float(before[where]):g}, but the new value is "
            f"{float(cells[where]):g}; to change a value, call fit with the whole array."
        )
    new = ~torch.isnan(cells) & ~seen
    grid = PartialGrid(old.grid.coords, seen | new)
    counts = grid.gather(old.grid.scatter(old.counts, fill=1.0))
    merged = grid.gather(torch.where(new, cells, before).flatten())
    if old.noise_variance is None:
        if noise_variance is not None:
            raise InputError(
                "the noise was learned from the old values, so it cannot be given for the new ones; call fit instead."
            )
        scatter = None if old.scatter is None else grid.gather(old.grid.scatter(old.scatter))
        return Observations(grid, merged, counts, scatter=scatter), None
    given = noise_everywhere if noise_variance is None else known_noise(noise_variance, cells, new)
    if given is None:
        raise InputError("noise_variance was given for the old values; give it for the new ones, too.")
    known = torch.where(seen, old.grid.scatter(old.noise_variance, fill=torch.nan).view(shape), given.to(cells))
    noise = grid.gather(known_noise(known, cells, grid.observed).flatten())
    return Observations(grid, merged, counts, noise), known
