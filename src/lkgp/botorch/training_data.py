"""Training data of the BoTorch model: checked tensors, and a grid made of rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lkgp.errors import InputError


def check_shapes(shape: torch.Size, data: dict[str, Tensor | None]) -> None:
    """Raise if a tensor that is given does not have the shape (*batch, n, t_1, t_2, ...) of the grid."""
    for name, given in data.items():
        if given is not None and given.shape != shape:
            raise InputError(
                f"{name} has shape {tuple(given.shape)}, but train_X and train_T make a grid of shape {tuple(shape)}."
            )


def check_no_repeats(inputs: Tensor) -> None:
    """Raise if two rows of one batch of transformed inputs, (*batch, n, d), are equal."""
    for rows in inputs.reshape(-1, *inputs.shape[-2:]):
        if len(torch.unique(rows, dim=0)) < len(rows):
            raise InputError(
                "train_X has repeated rows; average their values and give the number of observations in train_counts, "
                "as construct_inputs does."
            )


def grid_from_rows(
    rows: Tensor, values: Tensor, variances: Tensor | None, names: Sequence[str], step: str
) -> dict[str, Tensor]:
    """Rows of features as the grid that LatentKroneckerGP takes, {argument: tensor}.

    rows: (r, d + 1), one column of which is the step
    values: (r,)
    variances: known noise variances of the values, (r,)
    names: of the columns of `rows`
    step: the name of the column that becomes train_T

    Rows that occur several times are averaged, weighted by their precisions if the noise is known.
    """
    if step not in names:
        raise InputError(f"there is no feature {step!r}; choose the step from {', '.join(names)}.")
    place = list(names).index(step)
    others = [i for i in range(len(names)) if i != place]
    X, of_x = rows[:, others].unique(sorted=True, return_inverse=True, dim=0)
    T, of_t = rows[:, [place]].unique(sorted=True, return_inverse=True, dim=0)
    cell = of_x * len(T) + of_t
    # y = sum(w_i y_i) / sum(w_i), with w_i = 1 / s_i^2 where the noise is known
    weights = torch.ones_like(values) if variances is None else 1 / variances
    total = values.new_zeros(len(X) * len(T)).index_add(0, cell, weights)
    Y = values.new_zeros(len(total)).index_add(0, cell, weights * values) / total  # 0 / 0 is NaN: not observed
    shape = (len(X), len(T))
    made = {"train_X": X, "train_T": T, "train_Y": Y.view(shape)}
    if variances is not None:
        return made | {"train_Yvar": torch.where(total > 0, 1 / total, torch.nan).view(shape)}
    # sum((y_i - y)^2), from which the noise is learned, too
    scatter = values.new_zeros(len(total)).index_add(0, cell, (values - Y[cell]).square())
    return made | {"train_counts": total.view(shape), "train_scatter": scatter.view(shape)}
