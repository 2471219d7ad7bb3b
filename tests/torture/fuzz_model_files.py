"""DamageError model files in thousands of ways, and count what becomes of them.

    python tests/torture/fuzz_model_files.py --count 5000

Every file must be refused with a `FileError` that names it, within a second and 200 MB, or load and predict finite
numbers. The damage is the same for the same seed. Ends with exit code 1 if any file was neither, and keeps those files.
"""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from file_mutations import MOST_BYTES, MOST_SECONDS, Outcome, mutations, outcome_of  # noqa: E402
from model_files import KINDS  # noqa: E402

# Seconds after which loading a file counts as hanging.
PATIENCE = 60


def sources(folder: Path) -> dict[str, bytes]:
    """Undamaged files: one of every kind, and those of older versions."""
    files = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, write in KINDS.items():
            write(folder / name)
            files[name] = (folder / name).read_bytes()
    for path in sorted((ROOT / "tests" / "persistence" / "version1").glob("*.lkgp")):
        files[f"version 1, {path.stem}"] = path.read_bytes()
    return files


def tried(jobs: Iterator[tuple[str, bytes]], undamaged: bytes) -> Iterator[tuple[str, bytes, Outcome]]:
    """Every file with what became of it, in a process of its own, so that a crash is an outcome, too."""
    pool = warm_pool(undamaged)
    for damage, content in jobs:
        try:
            outcome = pool.submit(outcome_of, content).result(timeout=PATIENCE)
        except (BrokenProcessPool, TimeoutError) as error:
            outcome = Outcome("a crash" if isinstance(error, BrokenProcessPool) else "a hang", PATIENCE, 0.0)
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool = warm_pool(undamaged)
        yield damage, content, outcome
    pool.shutdown()


def warm_pool(undamaged: bytes) -> ProcessPoolExecutor:
    """A process that has loaded a sound file before, so that times are not those of imports."""
    pool = ProcessPoolExecutor(1)
    first = pool.submit(outcome_of, undamaged).result()
    if first.verdict != "sound":
        raise SystemExit(f"an undamaged file is not sound: {first.verdict} {first.message}")
    return pool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="how many damaged files")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the damage")
    parser.add_argument("--keep", type=Path, default=Path("bad-model-files"), help="folder for files that fail")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = sources(Path(folder))
    failures = 0
    print("| file | damaged | refused | sound | not tried | wrong | longest refusal | most memory |")
    print("|---|---|---|---|---|---|---|---|")
    for i, (name, content) in enumerate(files.items()):
        count = arguments.count // len(files) + (i < arguments.count % len(files))
        verdicts: Counter[str] = Counter()
        slowest = largest = 0.0
        for damage, damaged, outcome in tried(mutations(content, arguments.seed + i, count), content):
            too_much = outcome.verdict == "refused" and (outcome.seconds > MOST_SECONDS or outcome.memory > MOST_BYTES)
            wrong = outcome.is_violation or too_much
            verdicts["wrong" if wrong else outcome.verdict] += 1
            if outcome.verdict == "refused":
                slowest, largest = max(slowest, outcome.seconds), max(largest, outcome.memory)
            if wrong:
                failures += 1
                arguments.keep.mkdir(exist_ok=True)
                kept = arguments.keep / f"{i}-{sum(verdicts.values())}.lkgp"
                kept.write_bytes(damaged)
                print(
                    f"{kept} ({damage}): {outcome.verdict}, {outcome.seconds:.1f} s, {outcome.memory / 1e6:.0f} MB: "
                    f"{outcome.message}",
                    file=sys.stderr,
                )
        counts = " | ".join(str(verdicts[verdict]) for verdict in ("refused", "sound", "not tried", "wrong"))
        print(f"| {name} | {count} | {counts} | {slowest:.2f} s | {largest / 1e6:.0f} MB |", flush=True)
    print(f"\n{arguments.count} damaged files, {failures} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
