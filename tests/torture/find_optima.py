"""Fits of random small problems, compared with the best of random restarts by the exact likelihood.

    python tests/torture/find_optima.py --problems 60 --restarts 8

Prints a table of how many nats each fit is short of the best optimum found, with and without comparing starting values,
and ends with exit code 1 if any default fit is short by more than --limit nats.
"""

import argparse
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from random_optima import RandomProblem, fitted_objective, restarted_objectives

# A difference of this many nats in the likelihood of two sets of hyperparameters is weak evidence for either of them.
LIMIT = 2.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=60, help="number of problems")
    parser.add_argument("--first", type=int, default=0, help="seed of the first problem; each has the next one")
    parser.add_argument("--restarts", type=int, default=8, help="random restarts per problem")
    parser.add_argument("--limit", type=float, default=LIMIT, help="nats that a fit may be short of the best")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'problem':40} {'cells':>12} {'best':>10} {'one start':>10} {'default':>10}   (nats short of the best)")
    short, alone = [], []
    for seed in range(given.first, given.first + given.problems):
        problem = RandomProblem.draw(seed)
        one, default = fitted_objective(problem, compare_starts=False), fitted_objective(problem)
        best = max([one, default, *restarted_objectives(problem, given.restarts)])
        alone.append(best - one)
        short.append(best - default)
        shape = " x ".join(map(str, problem.values.shape))
        print(f"{problem.name:40} {shape:>12} {best:10.2f} {best - one:10.2f} {best - default:10.2f}", flush=True)
    failed = sum(gap > given.limit for gap in short)
    for title, gaps in (("one start", alone), ("default", short)):
        beyond = ", ".join(f"{sum(gap > limit for gap in gaps)} by more than {limit}" for limit in (0.1, 0.5, 1, 2.5))
        print(f"{title}: worst {max(gaps):.2f}, sum {sum(gaps):.2f} nats; short {beyond}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
