"""Eight threads share one fitted model of every kind: no errors, and the answers of one thread alone.

    python tests/torture/share_among_threads.py --rounds 200

prints a table, and exits with 1 if anything was violated.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from growing_draws import evaluate_everywhere
from shared_models import THREADS, Count, all_kinds, expected_answers, share

HEADER = f"{'model':28} {'rounds':>6} {'answers':>8} {'errors':>7} {'different':>10} {'worst':>8} {'seconds':>8}"


def line(name: str, rounds: int, count: Count, seconds: float) -> str:
    errors, different = len(count.errors), len(count.different)
    return f"{name:28} {rounds:6} {count.answers:8} {errors:7} {different:10} {count.worst:8.1e} {seconds:8.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="rounds of eight threads for every kind of model")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="`torch.jit.script` is")
    print(f"{THREADS} threads share one model; differences are relative to the largest entry of an answer\n")
    print(HEADER, flush=True)
    counts = []

    def record(name: str, count: Count, began: float) -> None:
        counts.append(count)
        print(line(name, rounds, count, time.perf_counter() - began), flush=True)

    for kind in all_kinds():
        began = time.perf_counter()
        record(kind.name, share(kind, rounds, expected_answers(kind), Count()), began)
    began = time.perf_counter()
    record("draws at new points", evaluate_everywhere(rounds, Count()), began)
    for count in counts:
        for problem in (count.errors + count.different)[:5]:
            print(problem)
    return int(any(count.failed for count in counts))


if __name__ == "__main__":
    sys.exit(main())
