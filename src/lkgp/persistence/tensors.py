"""Tensors of a model file, checked against the shape, kind and range that they must have before they are used."""

from collections.abc import Iterable

import torch
from torch import Tensor

from lkgp.persistence.damage import DamageError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def get(tensors: dict[str, Tensor], name: str) -> Tensor:
    """The tensor of this name."""
    if name not in tensors:
        raise DamageError(f"{name} is missing")
    return tensors[name]


def get_finite(
    tensors: dict[str, Tensor], name: str, shape: tuple[int | None, ...], dtypes: Iterable[torch.dtype] = FLOATS
) -> Tensor:
    """A tensor of finite numbers.

    shape: its shape, with None for a length of at least one that is not known beforehand
    """
    value = get(tensors, name)
    fits = value.ndim == len(shape) and all(
        size == wanted or (wanted is None and size > 0) for size, wanted in zip(value.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise DamageError(f"{name} has the shape {tuple(value.shape)} instead of ({wanted})")
    if value.dtype not in tuple(dtypes):
        raise DamageError(f"{name} holds {str(value.dtype).removeprefix('torch.')} numbers, which do not belong there")
    if not bool(torch.isfinite(value).all()):
        raise DamageError(f"{name} holds a value that is NaN or infinite")
    return value


def get_at_least(
    tensors: dict[str, Tensor], name: str, shape: tuple[int | None, ...], least: float, strictly: bool = False
) -> Tensor:
    """A tensor of finite numbers that are at least, or strictly above, `least`."""
    value = get_finite(tensors, name, shape)
    if not bool((value > least if strictly else value >= least).all()):
        raise DamageError(f"{name} holds a value of {float(value.min()):g}, which is too small")
    return value


def get_mask(tensors: dict[str, Tensor], name: str, shape: tuple[int | None, ...]) -> Tensor:
    """A tensor of truth values, at least one of which is True."""
    value = get(tensors, name)
    if value.dtype != torch.bool or bool((value.contiguous().view(torch.uint8) > 1).any()):
        raise DamageError(f"{name} holds something other than truth values")
    get_finite(tensors, name, shape, (torch.bool,))
    if not bool(value.any()):
        raise DamageError(f"{name} marks nothing")
    return value
