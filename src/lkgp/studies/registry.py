"""The registries of the studies: comparators, the cases that they are run on, and measurements of lkgp alone.

Every module in `lkgp.studies.comparators` and `lkgp.studies.cases` registers what it defines, and is found because it
is in that folder. A new comparator or a new case is therefore one new file and no other change.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar

from lkgp.errors import InputError
from lkgp.studies.predictions import Method, Prediction
from lkgp.studies.problems import Problem

# The settings of comparators in the experiments, and those in the benchmarks.
PRESETS = ("small", "paper")
BENCHMARK = "benchmark"
# The settings of the competition: on all of its data, and on small parts of them.
COMPETITION = ("full", "quick")
# Entries without an order of their own come after all others.
LAST = 1000


def check_installed(who: str, packages: tuple[str, ...]) -> None:
    """Raise an InputError that says how to install the first missing package."""
    for package in packages:
        if find_spec(package) is None:
            raise InputError(
                f"{who} needs the package {package}, which is not installed; "
                "install it with: pip install 'lkgp[bench,experiments]'."
            )


@dataclass(frozen=True)
class Comparator:
    """A method to compare.

    name: what users type after --method, and what the records contain
    settings: makes the method for a preset ("small", "paper", "benchmark", "full" or "quick") and an experiment
        ("sarcos", ...)
    presets: the presets that it has settings for
    needs: optional packages, by the name they are imported with
    order: its place in tables and figures
    skips: experiments in which it only runs if it is named
    """

    name: str
    settings: Callable[[str, str], Method]
    presets: tuple[str, ...] = (*PRESETS, BENCHMARK)
    needs: tuple[str, ...] = ()
    order: int = LAST
    skips: tuple[str, ...] = ()


def always(method: Method) -> Callable[[str, str], Method]:
    """The settings of a comparator that is the same for every preset and experiment."""
    return lambda _preset, _experiment: method


@dataclass(frozen=True)
class Design:
    """The runs of an experiment: every dataset with every share of missing cells and every seed, 0 to seeds - 1.

    missing: (0.0,) if the data come with their gaps
    size: rows of the grid; None for all
    """

    datasets: tuple[str, ...]
    missing: tuple[float, ...]
    size: int | None
    seeds: int


@dataclass(frozen=True)
class BenchmarkCase:
    """A named case of the benchmarks, with seed 0.

    name, group: what users type after `lkgp bench`: era5-30, weather
    title: its heading on the page
    dataset, missing, size: as in `CaseFamily.make_problem`
    comparators: who runs on it; the first is lkgp
    repeats: how often those run that are quick
    """

    name: str
    group: str
    title: str
    comparators: tuple[str, ...]
    dataset: str
    missing: float
    size: int | None = None
    repeats: int = 3


class MakeProblem(Protocol):
    """Makes a problem from a dataset, the share of missing cells, the rows of the grid (None for all) and the split."""

    def __call__(self, dataset: str, missing: float, size: int | None, seed: int) -> Problem: ...


@dataclass(frozen=True)
class CaseFamily:
    """Cases that are made in the same way.

    name: of the experiment, if there are designs for one; the records contain it
    designs: the runs of the experiment, by preset; the first preset is the default
    comparators: who runs on a dataset; by default every comparator that has settings for the preset
    benchmarks: the named cases of the benchmarks
    examples: picks some predictions to keep in the record, for a figure
    """

    name: str
    make_problem: MakeProblem
    designs: dict[str, Design] = field(default_factory=dict)
    benchmarks: tuple[BenchmarkCase, ...] = ()
    examples: Callable[[Problem, Prediction], dict[str, Any]] | None = None
    order: int = LAST
    comparators: Callable[[str], tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Measurement:
    """Something that is measured of lkgp alone, and not by comparators on a problem.

    name, group: what users type after `lkgp bench`
    function: "module:function" of `lkgp.studies`, called with a function that prints a line, and then `arguments`; it
        is imported only when it is called, because it may need optional packages
    """

    name: str
    group: str
    function: str
    arguments: tuple[Any, ...] = ()
    needs: tuple[str, ...] = ()
    order: int = LAST

    def measure(self, print_line: Callable[[str], None]) -> dict[str, Any]:
        """Take the measurement. Returns the entries of its record."""
        check_installed(self.name, self.needs)
        found: dict[str, Any] = pkgutil.resolve_name(f"lkgp.studies.{self.function}")(print_line, *self.arguments)
        return found


class Entry(Protocol):
    """What all registered things have."""

    @property
    def name(self) -> str: ...
    @property
    def order(self) -> int: ...


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """Entries by name, registered by the modules of a package when they are imported.

    kind: what an entry is called in error messages
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self.entries: dict[str, E] = {}

    def register(self, entry: E) -> None:
        """Add an entry; the last one of a name counts."""
        self.entries[entry.name] = entry

    def all(self) -> list[E]:
        """Every entry, in order."""
        for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        return sorted(self.entries.values(), key=lambda entry: entry.order)

    def get(self, name: str) -> E:
        """The entry of a name."""
        found = {entry.name: entry for entry in self.all()}
        if name not in found:
            raise InputError(f"there is no {self.kind} {name!r}; choose from {', '.join(found)}.")
        return found[name]


COMPARATORS: Registry[Comparator] = Registry("comparator", "lkgp.studies.comparators")
CASES: Registry[CaseFamily] = Registry("experiment", "lkgp.studies.cases")
MEASUREMENTS: Registry[Measurement] = Registry("measurement", "lkgp.studies.cases")


def comparators(preset: str) -> dict[str, Comparator]:
    """The comparators that have settings for a preset, by name and in order."""
    return {entry.name: entry for entry in COMPARATORS.all() if preset in entry.presets}
