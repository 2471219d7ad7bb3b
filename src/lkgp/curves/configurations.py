"""Configurations of training runs as numbers: numeric, log-scaled, categorical and conditional parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lkgp.errors import InputError

# Positive numbers that span more than this ratio are compared by their logarithms, unless the caller says otherwise.
WIDE = 100.0

Configuration = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a configuration.

    low, high: of a number; choices: of a category, empty for a number
    log: whether its logarithm is what counts
    conditional: whether some configurations do without it
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    conditional: bool = False

    @property
    def columns(self) -> int:
        return (len(self.choices) if self.choices else 1) + self.conditional

    def encode(self, value: Any) -> list[float]:
        """One number a column, of which those of a number go from 0 to 1; where the parameter is not there, the middle, and a flag.

        What a new configuration has that does not fit is read as best it can: a number below a logarithmic scale as the lowest, and
        anything else as if the parameter were not there.
        """
        there = not missing(value) and (bool(self.choices) or is_number(value))
        if self.choices:
            # Two different categories are as far apart as the ends of a number.
            numbers = [float(there and hashable(value) == choice) / np.sqrt(2) for choice in self.choices]
        else:
            low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
            number = float(value) if there else np.nan
            number = np.log(max(number, self.low)) if self.log and there else number
            numbers = [(number - low) / (high - low) if there and high > low else 0.5]
        return [*numbers, float(there)] if self.conditional else numbers


@dataclass(frozen=True)
class Space:
    """What configurations are made of."""

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, configurations: Sequence[Configuration], log: Sequence[str] = ()) -> "Space":
        """As the configurations have it; log: parameters on a logarithmic scale, besides those that span a wide range."""
        names = list(dict.fromkeys(name for configuration in configurations for name in configuration))
        unknown = [name for name in log if name not in names]
        if unknown:
            raise InputError(f"there is no parameter {unknown[0]!r}; there are {', '.join(names)}.")
        return cls(tuple(parameter_of(name, [c.get(name) for c in configurations], name in log) for name in names))

    @classmethod
    def joined(cls, spaces: Sequence["Space"]) -> "Space":
        """All parameters of some spaces, one a run, each as wide as any of them has it."""
        found: dict[str, list[Parameter]] = {}
        for space in spaces:
            for parameter in space.parameters:
                found.setdefault(parameter.name, []).append(parameter)
        return cls(tuple(widest(parts, conditional=len(parts) < len(spaces)) for parts in found.values()))

    def encode(self, configurations: Sequence[Configuration]) -> np.ndarray:
        """(runs, columns)."""
        rows = [
            [x for p in self.parameters for x in p.encode(configuration.get(p.name))]
            for configuration in configurations
        ]
        return np.array(rows, dtype=float).reshape(len(configurations), sum(p.columns for p in self.parameters))


def widest(parts: Sequence[Parameter], conditional: bool) -> Parameter:
    """One parameter that has room for all of these, which have the same name."""
    low, high = min(p.low for p in parts), max(p.high for p in parts)
    choices = tuple(dict.fromkeys(choice for p in parts for choice in p.choices))
    log = all(p.log for p in parts)
    return Parameter(parts[0].name, low, high, log, choices, conditional or any(p.conditional for p in parts))


def parameter_of(name: str, values: Sequence[Any], log: bool) -> Parameter:
    """What a parameter with these values is."""
    there = [value for value in values if not missing(value)]
    conditional = len(there) < len(values)
    if any(isinstance(value, (str, bool, np.bool_)) or not is_number(value) for value in there):
        return Parameter(
            name, choices=tuple(sorted({hashable(value) for value in there}, key=repr)), conditional=conditional
        )
    numbers = np.array(there, dtype=float) if there else np.zeros(1)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} is infinite in one configuration.")
    low, high = float(numbers.min()), float(numbers.max())
    if log and low <= 0:
        raise InputError(f"{name} is on a logarithmic scale, but one of its values is {low:g}.")
    return Parameter(name, low, high, log or (low > 0 and high > WIDE * low), conditional=conditional)


def hashable(value: Any) -> Any:
    """A value, or how it is written where it cannot be looked up."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def missing(value: Any) -> bool:
    # The last two are pandas's, which need not be there.
    return (
        value is None
        or (isinstance(value, (float, np.floating)) and np.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType")
    )


def as_configurations(given: Any) -> list[Configuration]:
    """A list of dictionaries, from that, a DataFrame, or an array (runs, parameters)."""
    if hasattr(given, "to_dict") and hasattr(given, "columns"):
        return list(given.to_dict("records"))
    if isinstance(given, np.ndarray):
        if given.ndim != 2:
            raise InputError(f"an array of configurations must be (runs, parameters), not of shape {given.shape}.")
        return [{f"x{j}": value for j, value in enumerate(row)} for row in given.tolist()]
    rows = list(given)
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError(
            "configurations must be dictionaries, one a run, or a DataFrame, or an array (runs, parameters)."
        )
    return rows
