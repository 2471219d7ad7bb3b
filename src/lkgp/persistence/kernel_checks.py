"""Check the description of a kernel before the kernel is built: a short text can describe a very large kernel."""

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from gpytorch.kernels import AdditiveKernel, IndexKernel, Kernel, ProductKernel, ScaleKernel

from lkgp.persistence.damage import DamageError
from lkgp.persistence.plain_types import check_entries

# GPyTorch asks every kernel for the batch shapes of all kernels inside it, at every level again: a kernel takes one
# step plus twice the steps of its parts, so that the work doubles with every level of nesting. A step takes about 10
# microseconds, and a kernel about 300 to be built and checked. Together, the kernels of a model may have 9 levels
# around each of two kernels, or a sum of 1000 kernels.
MAX_STEPS = 2048

COMPOSED = (ScaleKernel, AdditiveKernel, ProductKernel)
# The entries of every kernel.
AnyKernel = TypedDict("AnyKernel", {"class": str, "arguments": dict[str, Any], "parameters": dict[str, Any]})


class ComposedKernel(AnyKernel):
    """A kernel that is made of others."""

    parts: list[dict[str, Any]]


class SingleKernel(AnyKernel):
    """A kernel over the columns of a factor, or over some of them."""

    ard_num_dims: int | None
    active_dims: list[int] | None


class CategoryKernel(SingleKernel):
    """An `IndexKernel`."""

    num_tasks: int
    rank: int


def check_entries_of(
    spec: dict[str, Any], cls: type[Kernel], plain: tuple[str, ...], parameters: tuple[str, ...]
) -> None:
    """Refuse the description of one kernel, whatever its parts, whose entries do not belong to its class."""
    composed = issubclass(cls, COMPOSED)
    kind = ComposedKernel if composed else CategoryKernel if cls is IndexKernel else SingleKernel
    place = f"the kernel {cls.__name__}"
    check_entries(spec, kind, place)
    allowed = {f"{name}_{what}" for name in parameters for what in ("constraint", "prior")}
    if set(spec["arguments"]) != set(plain) or not set(spec["parameters"]) <= allowed:
        raise DamageError(f"{place} has settings that do not belong to it")
    if composed and (not spec["parts"] or (cls is ScaleKernel and len(spec["parts"]) != 1)):
        raise DamageError(f"{place} has {len(spec['parts'])} parts")


def check_size(spec: dict[str, Any], columns: int, numbers: int, place: str) -> None:
    """Refuse the description of a kernel, with all its parts, that is larger than its file can account for.

    columns: d_k, the number of columns of its factor
    numbers: how many numbers the file holds; it holds every parameter
    """
    for part in walk(spec):
        ard, active = part.get("ard_num_dims"), part.get("active_dims")
        if ard is not None and not (isinstance(ard, int) and 1 <= ard <= columns):
            raise DamageError(f"{place} has {ard!r:.20} length scales where there are {columns} columns")
        if active is not None and not is_selection(active, columns):
            raise DamageError(f"{place} reads columns that its factor does not have")
        tasks, rank = part.get("num_tasks", 1), part.get("rank", 1)
        if not all(isinstance(size, int) and size >= 1 for size in (tasks, rank)) or tasks * rank > numbers:
            raise DamageError(f"{place} has more categories than the file has numbers")


def is_selection(active: Any, columns: int) -> bool:
    """Whether this is a list of columns."""
    return (
        isinstance(active, list)
        and 1 <= len(active) <= columns
        and all(isinstance(column, int) and 0 <= column < columns for column in active)
    )


def walk(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A described kernel and all its parts; its depth is bounded by that of the whole description."""
    yield spec
    for part in parts_of(spec):
        yield from walk(part)


def count_steps(spec: dict[str, Any]) -> int:
    """The steps of GPyTorch for a described kernel: 1 + 2 (sum over its parts)."""
    return 1 + 2 * sum(count_steps(part) for part in parts_of(spec))


def is_too_large(kernels: Sequence[dict[str, Any]]) -> bool:
    """Whether the described kernels of a model take too many steps together."""
    return sum(count_steps(kernel) for kernel in kernels) > MAX_STEPS


def parts_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    parts = spec.get("parts", [])
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
