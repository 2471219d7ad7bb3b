"""Check the contents of a model file against each other before anything is built from them."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from lkgp.errors import FileError
from lkgp.machine import usable_memory
from lkgp.persistence.damage import DamageError
from lkgp.persistence.header import check_header
from lkgp.persistence.kernel_checks import check_size, is_too_large
from lkgp.persistence.tensors import get_at_least, get_finite, get_mask
from lkgp.solvers import Reason

# The first part of the names of tensors, as far as they are not in `model` and `given`.
OWN_NAMES = (
    *("coords", "observed", "values", "counts", "weights", "noise_variance", "scatter", "noise_everywhere"),
    *("scaling", "draws"),
)
# Seeds leave room for what is added to them.
LARGEST_SEED = 2**64 - 2**20


def check_contents(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse contents with entries that are missing, of the wrong type, shape or size, or not finite.

    All sizes are checked against tensors in the file, so that what is built later is not much larger than the file.
    """
    check_header(header)
    terms = header["model"]["terms"]
    if len(terms) != 1 or not terms[0]:
        raise DamageError("its model does not have one kernel for each factor")
    columns = check_data(tensors, len(terms[0]))
    check_models(header, columns, sum(tensor.numel() for tensor in tensors.values()))
    check_settings(header["settings"])
    dtype = getattr(torch, header["settings"]["dtype"])
    num_observed = len(tensors["values"])
    get_finite(tensors, "weights", (num_observed,), [dtype])
    check_solution_entry(header["solution"], 1)
    names = {"weights", *check_draws(header["draws"], tensors, num_observed, columns, dtype)}
    check_names(header, tensors, names, len(columns))
    check_memory(header["draws"], tensors["observed"].shape)


def check_data(tensors: dict[str, Tensor], num_factors: int) -> list[int]:
    """Check the grid, the observations and their scaling; returns d_k, the number of columns of every factor."""
    coords = [get_finite(tensors, f"coords.{k}", (None, None)) for k in range(num_factors)]
    shape, columns = tuple(len(x) for x in coords), [x.shape[1] for x in coords]
    observed = get_mask(tensors, "observed", shape)
    cells = (int(observed.sum()),)
    get_finite(tensors, "values", cells)
    get_at_least(tensors, "counts", cells, 1.0)
    if "noise_variance" in tensors:
        get_at_least(tensors, "noise_variance", cells, 0.0, strictly=True)
    if "scatter" in tensors:
        get_at_least(tensors, "scatter", cells, 0.0)
    if "noise_everywhere" in tensors:
        everywhere = tensors["noise_everywhere"]
        if tuple(everywhere.shape) != shape or "noise_variance" not in tensors:
            raise DamageError("noise_everywhere does not match its grid")
        # In cells that were not observed, it may be anything; whoever asks for it there is told.
        get_at_least({"noise_everywhere": everywhere[observed]}, "noise_everywhere", cells, 0.0, strictly=True)
    double = [torch.float64]
    for k, size in enumerate([*((width,) for width in columns), ()]):
        get_finite(tensors, f"scaling.{k}.shift", size, double)
        get_at_least(tensors, f"scaling.{k}.scale", size, 0.0, strictly=True)
    return columns


def check_models(header: dict[str, Any], columns: Sequence[int], numbers: int) -> None:
    """Check the sizes of all kernels; columns: d_k of every factor; numbers: how many numbers the file holds."""
    for name in ("model", "given"):
        if name not in header:
            continue
        (kernels,) = header[name]["terms"] if len(header[name]["terms"]) == 1 else ([],)
        if len(kernels) != len(columns):
            raise DamageError(f"the {name} does not have one kernel for each factor")
        if is_too_large(kernels):
            raise DamageError(f"the kernels of the {name} have too many parts, or they are nested too deeply")
        for k, (kernel, width) in enumerate(zip(kernels, columns, strict=True)):
            check_size(kernel, width, numbers, f"kernel {k} of the {name}")


def check_settings(settings: dict[str, Any]) -> None:
    """Refuse settings whose numbers no constructor checks."""
    check_seed(settings["seed"])
    for name in ("noise", "max_memory"):
        if settings[name] is not None and not settings[name] > 0:
            raise DamageError(f"the setting {name} is {settings[name]!r}, which is not positive")


def check_seed(seed: int) -> None:
    if seed > LARGEST_SEED:
        raise DamageError(f"the seed {seed} is too large")


def check_solution_entry(solution: dict[str, Any], num: int) -> None:
    """Refuse the record of a solve for `num` right-hand sides that is inconsistent."""
    if len(solution["residuals"]) != num:
        raise DamageError(f"there are {len(solution['residuals'])} residuals of {num} solves")
    if solution["reason"] not in Reason.__members__:
        raise DamageError(f"a solve ended for the unknown reason {solution['reason'][:40]!r}")
    if min(solution["iterations"], solution["products"], 0) < 0:
        raise DamageError("a solve took a negative number of iterations")


def check_draws(
    draws: Sequence[dict[str, Any]],
    tensors: dict[str, Tensor],
    num_observed: int,
    columns: Sequence[int],
    dtype: torch.dtype,
) -> Iterator[str]:
    """Check the sets of draws; yields the names of their tensors."""
    seen = set()
    for i, entry in enumerate(draws):
        num, seed = entry["num"], entry["seed"]
        check_seed(seed)
        if num < 1 or entry["asked"] < 0 or (num, seed) in seen:
            raise DamageError(f"set {i} of draws has a wrong number, or is there twice")
        seen.add((num, seed))
        get_finite(tensors, f"draws.{i}", (num_observed, num), [dtype])
        check_solution_entry(entry["solution"], num)
        yield f"draws.{i}"
        for j in range(entry["asked"]):
            for k, width in enumerate(columns):
                get_finite(tensors, f"draws.{i}.{j}.{k}", (None, width), [dtype])
                yield f"draws.{i}.{j}.{k}"


def check_memory(draws: Sequence[dict[str, Any]], shape: Sequence[int]) -> None:
    """Refuse draws for which this machine is too small: their normal numbers, one for each cell, are made again."""
    largest = 8.0 * max((entry["num"] for entry in draws), default=0) * prod(shape)
    if largest > usable_memory():
        raise FileError(
            f"the draws in the file take {largest / 1e9:.0f} GB, more memory than this machine has; use a larger one."
        )


def check_names(header: dict[str, Any], tensors: dict[str, Tensor], known: set[str], num_factors: int) -> None:
    """Refuse tensors that nothing refers to; those of a further entry of the header begin with its name."""
    known |= {f"coords.{k}" for k in range(num_factors)}
    known |= {f"scaling.{k}.{part}" for k in range(num_factors + 1) for part in ("shift", "scale")}
    for name in tensors:
        first = name.partition(".")[0]
        if name in OWN_NAMES:
            continue
        if (first in OWN_NAMES and name not in known) or first not in (*OWN_NAMES, *header):
            raise DamageError(f"nothing refers to {name[:40]!r}")
