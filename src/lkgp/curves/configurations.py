"""Configurations of training runs as numbers: numeric, log-scaled, categorical and conditional parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lkgp.errors import InputError

# Positive numbers that span more than this ratio are compared by their logarithms, unless the caller says otherwise.
# Two orders of magnitude separate parameters that are usually searched on a log scale, such as learning rates, from
# those that are not, such as numbers of layers; the exact value was not tuned.
LOG_RATIO = 100.0

Configuration = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a configuration.

    low, high: range of a numeric parameter
    log: whether a numeric parameter is compared by its logarithm
    choices: values of a categorical parameter; empty for a numeric one
    conditional: whether some configurations do not have the parameter
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    conditional: bool = False

    @property
    def columns(self) -> int:
        """How many numbers encode the parameter."""
        return (len(self.choices) if self.choices else 1) + self.conditional

    def encode(self, value: Any) -> list[float]:
        """The value as one number per column; numeric parameters are scaled to [0, 1].

        A conditional parameter has an additional column that is 1 if the parameter is present and 0 otherwise; an
        absent numeric parameter is encoded as 0.5. Values of new configurations that do not fit are interpreted as well
        as possible: a number that is not positive is taken as the lowest one of a logarithmic scale, and anything else
        as if the parameter were absent.
        """
        present = not is_missing(value) and (bool(self.choices) or is_number(value))
        if self.choices:
            # With 1 / sqrt(2), two different categories are as far apart as the two ends of a numeric range.
            numbers = [float(present and as_hashable(value) == choice) / np.sqrt(2) for choice in self.choices]
        else:
            low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
            number = float(value) if present else np.nan
            number = np.log(number if number > 0 else self.low) if self.log and present else number
            numbers = [(number - low) / (high - low) if present and high > low else 0.5]
        return [*numbers, float(present)] if self.conditional else numbers


@dataclass(frozen=True)
class Space:
    """The parameters that configurations consist of."""

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, configurations: Sequence[Configuration], log: Sequence[str] = ()) -> "Space":
        """The space inferred from configurations.

        log: names of parameters on a logarithmic scale, in addition to those that span a wide range
        """
        names = list(dict.fromkeys(name for configuration in configurations for name in configuration))
        unknown = [name for name in log if name not in names]
        if unknown:
            raise InputError(
                f"log names {unknown[0]!r}, but the configurations have no parameter {unknown[0]!r}; "
                f"choose from {', '.join(names)}."
            )
        return cls(tuple(infer_parameter(name, [c.get(name) for c in configurations], name in log) for name in names))

    @classmethod
    def joined(cls, spaces: Sequence["Space"]) -> "Space":
        """All parameters of several spaces, one space per run, each with the widest range that occurs."""
        found: dict[str, list[Parameter]] = {}
        for space in spaces:
            for parameter in space.parameters:
                found.setdefault(parameter.name, []).append(parameter)
        return cls(tuple(merge(parts, conditional=len(parts) < len(spaces)) for parts in found.values()))

    @property
    def columns(self) -> int:
        """How many numbers encode a configuration."""
        return sum(parameter.columns for parameter in self.parameters)

    def encode(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """Configurations as numbers, (runs, columns)."""
        rows = [
            [x for p in self.parameters for x in p.encode(configuration.get(p.name))]
            for configuration in configurations
        ]
        return np.array(rows, dtype=float).reshape(len(configurations), self.columns)


def merge(parts: Sequence[Parameter], conditional: bool) -> Parameter:
    """One parameter that covers all of `parts`, which have the same name."""
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    choices = tuple(dict.fromkeys(choice for p in parts for choice in p.choices))
    log = all(p.log for p in parts)
    return Parameter(parts[0].name, low, high, log, choices, conditional or any(p.conditional for p in parts))


def infer_parameter(name: str, values: Sequence[Any], log: bool) -> Parameter:
    """The description of a parameter that has these values."""
    present = [value for value in values if not is_missing(value)]
    conditional = len(present) < len(values)
    if any(isinstance(value, (str, bool, np.bool_)) or not is_number(value) for value in present):
        choices = tuple(sorted({as_hashable(value) for value in present}, key=repr))
        return Parameter(name, choices=choices, conditional=conditional)
    numbers = np.array(present, dtype=float) if present else np.zeros(1)
    if not np.isfinite(numbers).all():
        raise InputError(f"the parameter {name!r} is infinite in one configuration; give it a finite value.")
    low, high = float(numbers.min()), float(numbers.max())
    if log and low <= 0:
        raise InputError(
            f"the parameter {name!r} is on a logarithmic scale, but one of its values is {low:g}; all must be positive."
        )
    return Parameter(name, low, high, log or (low > 0 and high > LOG_RATIO * low), conditional=conditional)


def as_hashable(value: Any) -> Any:
    """The value itself, or its `repr` if it cannot be hashed."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_missing(value: Any) -> bool:
    # The last two are the missing values of pandas, which need not be installed.
    return (
        value is None
        or (isinstance(value, (float, np.floating)) and np.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType")
    )


def as_configurations(given: Any) -> list[Configuration]:
    """A list of dictionaries, from such a list, a DataFrame, or an array (runs, parameters)."""
    if hasattr(given, "to_dict") and hasattr(given, "columns"):
        return list(given.to_dict("records"))
    if isinstance(given, np.ndarray):
        if given.ndim != 2:
            raise InputError(f"an array of configurations must have shape (runs, parameters), not {given.shape}.")
        return [{f"x{j}": value for j, value in enumerate(row)} for row in given.tolist()]
    rows = list(given)
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError(
            "configurations must be a list with one dictionary per run, a DataFrame, or an array (runs, parameters)."
        )
    return rows
