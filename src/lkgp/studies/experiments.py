"""The experiments: which runs they consist of, and running those that are not done yet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from lkgp.errors import InputError
from lkgp.persistence.paths import check_new_folder
from lkgp.studies.measurements import break_even, resources
from lkgp.studies.records import Record, append, read
from lkgp.studies.registry import CASES, CaseFamily, comparators
from lkgp.studies.runs import Run, key, perform_in_own_process

# The measurement of figure 2, which has no comparators.
SYNTHETIC = "synthetic"
# A run that takes longer is given up.
LONGEST_SECONDS = 7200.0


def experiment_names() -> list[str]:
    """What `run` can run."""
    return [SYNTHETIC, *(family.name for family in CASES.all() if family.designs)]


def family_of(experiment: str) -> CaseFamily:
    """The cases of an experiment that compares methods."""
    found = {family.name: family for family in CASES.all() if family.designs}
    if experiment not in found:
        raise InputError(f"there is no experiment {experiment!r}; choose from {', '.join(experiment_names())}.")
    return found[experiment]


def plan(
    experiment: str,
    preset: str,
    *,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    missing: Sequence[float] = (),
    seeds: int | None = None,
) -> list[Run]:
    """The runs of an experiment, those on the same data one after the other.

    methods, datasets, missing: a selection; empty means all
    seeds: how many; those of the preset by default
    """
    family = family_of(experiment)
    if preset not in family.designs:
        raise InputError(f"there is no preset {preset!r} of {experiment}; choose {' or '.join(family.designs)}.")
    known = comparators(preset)
    unknown = [name for name in methods if name not in known]
    if unknown:
        raise InputError(f"there is no method {unknown[0]!r}; choose from {', '.join(known)}.")
    design = family.designs[preset]
    # Where there is only one share, as for learning curves, it is no choice.
    shares = tuple(missing) if missing and len(design.missing) > 1 else design.missing
    everyone = tuple(name for name, entry in known.items() if experiment not in entry.skips)

    def chosen(dataset: str) -> tuple[str, ...]:
        if family.comparators is None:
            return tuple(methods) or everyone
        return tuple(name for name in family.comparators(dataset) if not methods or name in methods)

    return [
        Run(experiment, dataset, method, seed, share, design.size, preset)
        for seed in range(seeds if seeds is not None else design.seeds)
        for dataset in tuple(datasets) or design.datasets
        for share in shares
        for method in chosen(dataset)
    ]


def run(
    experiment: str,
    results: Path,
    *,
    preset: str | None = None,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    missing: Sequence[float] = (),
    seeds: int | None = None,
    timeout: float = LONGEST_SECONDS,
    print_line: Callable[[str], None] = print,
) -> None:
    """Run an experiment and add its results to the folder `results`; what was done before is not done again.

    preset: by default the first one that the experiment has
    methods, datasets, missing, seeds: as in `plan`
    timeout: seconds that one run may take
    """
    check_new_folder(results)
    if experiment == SYNTHETIC:
        results.mkdir(parents=True, exist_ok=True)
        resources.measure(results / "synthetic.jsonl", print_line)
        return
    preset = preset or next(iter(family_of(experiment).designs))
    wanted = plan(experiment, preset, methods=methods, datasets=datasets, missing=missing, seeds=seeds)
    results.mkdir(parents=True, exist_ok=True)
    run_all(wanted, results / f"{experiment}.jsonl", print_line, timeout)
    if experiment == "sarcos":
        break_even.measure(results / "break_even.jsonl", print_line)


def run_all(
    runs: Iterable[Run], path: Path, print_line: Callable[[str], None], timeout: float = LONGEST_SECONDS
) -> None:
    """Do the runs that are not done yet, and append each result to `path` as soon as it is there.

    Failed runs are tried again the next time, but those that took too long only if they are given more time.
    """
    wanted = list(runs)
    done = {key(record) for record in read(path) if "failed" not in record or record.get("limit", 0.0) >= timeout}
    todo = [run for run in wanted if tuple(asdict(run).values()) not in done]
    print_line(f"{len(wanted)} {'run' if len(wanted) == 1 else 'runs'}, {len(wanted) - len(todo)} already done")
    for count, run in enumerate(todo, start=1):
        record = perform_in_own_process(run, timeout)
        append(path, record)
        print_line(f"{count}/{len(todo)} {run}: {summary(record)}")


def summary(record: Record) -> str:
    """One phrase about how a run went."""
    if "failed" in record:
        return f"failed: {record['failed']}"
    return f"test NLL {record['test_nll']:.3f}, RMSE {record['test_rmse']:.3f}, {record['seconds']:.1f} s"
