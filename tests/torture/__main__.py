"""Run the torture test: `python -m tests.torture [--seed 1234] [--count 5000] [--page docs/accuracy.md]`."""

import argparse
import sys
from pathlib import Path

from tests.torture.reproductions import REPRODUCTIONS
from tests.torture.running import prepare, run, run_many
from tests.torture.table import page

TITLE = "Compare lkgp with a dense oracle on random problems."


def run_one(seed):
    """Run one problem; returns whether it is wrong without a word."""
    prepare()
    outcome = run(seed)
    print(outcome)
    errors = ", ".join(f"{name} {error:.2g}" for name, error in outcome.errors.items())
    print(f"    worst errors: {errors}; {outcome.seconds:.1f} s")
    return outcome.status == "silent"


def run_reproductions():
    """Run the fixed cases; returns how many are wrong."""
    prepare()
    wrong = 0
    for name, reproduce in REPRODUCTIONS.items():
        faults = reproduce()
        wrong += bool(faults)
        print(f"{'WRONG' if faults else 'right'}: {name}", *faults, sep="\n    ")
    return wrong


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture", description="Compare random problems with a dense oracle."
    )
    parser.add_argument("--seed", type=int, help="run only this problem")
    parser.add_argument("--fixed", action="store_true", help="run only the fixed cases")
    parser.add_argument("--count", type=int, default=5000, help="number of problems")
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem")
    parser.add_argument("--processes", type=int, default=2, help="number of processes, of one thread each")
    parser.add_argument("--page", type=Path, help="write the table to this page")
    asked = parser.parse_args()
    if asked.seed is not None:
        return run_one(asked.seed)
    wrong = run_reproductions()
    if asked.fixed:
        return wrong > 0
    outcomes = run_many(range(asked.first, asked.first + asked.count), asked.processes)
    text = page(outcomes)
    print(text[text.index("## How") :])
    if asked.page is not None:
        asked.page.write_text(text)
    silent = sum(outcome.status == "silent" for outcome in outcomes)
    print(f"{silent} silent violations in {len(outcomes)} problems; {wrong} fixed cases are wrong")
    return silent + wrong > 0


if __name__ == "__main__":
    sys.exit(main())
