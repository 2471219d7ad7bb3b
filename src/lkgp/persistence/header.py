"""The entries of the description in a model file, as types; docs/model-file.md explains them."""

from typing import Any, Literal, NotRequired, TypedDict

from lkgp.persistence.damage import DamageError
from lkgp.persistence.plain_types import check_entries

# Levels of lists and dictionaries in a description. Settings and kernels within the limits take fewer than half of it.
MAX_DEPTH = 64
# Lists and dictionaries in a description, which Python makes at about 200,000 a second; an ordinary model has hundreds.
MAX_CONTAINERS = 50_000
# Characters of a description besides those that its tensors account for: 2 MB of JSON become at most 100 MB of Python
# objects. The description of an ordinary model has some thousand characters, and residuals and labels add less than
# the tensors that belong to them.
MAX_CHARACTERS = 2_000_000

DtypeName = Literal["float16", "bfloat16", "float32", "float64"]
# A settings record: the name of its class and its fields, or a plain value such as "auto".
Record = dict[str, Any]
Described = dict[str, Any]


class SolutionEntry(TypedDict):
    """How a solve went; see `lkgp.solvers.Solution`."""

    residuals: list[float]
    iterations: int
    products: int
    reason: str
    rtol: float


class DrawsEntry(TypedDict):
    """A set of draws; asked: how many requests for further points are to be repeated."""

    num: int
    seed: int
    asked: int
    solution: SolutionEntry


class ModelEntry(TypedDict):
    """A model without the values of its parameters; frozen: the names of those that are not learned."""

    terms: list[list[Described]]
    mean: Described
    noise: Described
    frozen: list[str]


class NoiseEntry(TypedDict):
    """A noise that the caller gave without kernels."""

    noise: Described
    frozen: list[str]


class MeanEntry(TypedDict):
    """A mean that the caller gave."""

    mean: Described
    frozen: list[str]


class ArrayEntry(TypedDict):
    """The kind of the caller's arrays."""

    library: Literal["numpy", "torch"]
    dtype: DtypeName


class SettingsEntry(TypedDict):
    """The arguments of `LKGP`; None where a noise or mean is described in an entry of its own."""

    mean: float | None
    noise: float | None
    standardize: bool | Literal["values", "coordinates"]
    solver: Record | str
    optimizer: Record | str
    dtype: Literal["float32", "float64"]
    seed: int
    max_memory: float | None
    strict: bool


Header = TypedDict(
    "Header",
    {
        "model": ModelEntry,
        "array": ArrayEntry,
        "plan": Record,
        "solution": SolutionEntry,
        "draws": list[DrawsEntry],
        "settings": SettingsEntry,
        "given": NotRequired[ModelEntry],
        "given noise": NotRequired[NoiseEntry],
        "given mean": NotRequired[MeanEntry],
        "report": dict[str, Any],
    },
)


def check_depth(value: Any) -> None:
    """Refuse data nested more than `MAX_DEPTH` levels deep, without recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for outer in level
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise DamageError(f"its description is nested more than {MAX_DEPTH} levels deep")


def check_header(header: dict[str, Any]) -> None:
    """Refuse a description that lacks an entry or has one of the wrong type; further entries belong to others."""
    check_entries({name: value for name, value in header.items() if name in Header.__annotations__}, Header, "")
