"""Run one problem, or many in several processes, and say how each ended."""

import collections
import sys
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from tests.torture import checks
from tests.torture.problems import problem

from lkgp import errors

# Errors of the library's own kinds: a refusal, which is no violation.
OWN_ERRORS = (errors.InputError, errors.FileError, errors.ConvergenceError, errors.TooLargeError)
# The checks after the moments, which every problem has, and the share of problems that have each.
OPTIONAL = {
    checks.check_covariance: 0.6,
    checks.check_samples: 0.4,
    checks.check_likelihood: 0.8,
    checks.check_gradient: 0.3,
    checks.check_file: 0.2,
}
# How a warning about a search begins: it is no excuse for a wrong posterior at the hyperparameters that were found.
SEARCH = "the search for hyperparameters"


@dataclass
class Outcome:
    """How a problem ended.

    status: "right"; "warned", right but with a warning; "refused", by an error of the library; "said", wrong with a
        warning or a report of it; "undecidable", because the oracle is not accurate enough; "silent", wrong without a
        word
    errors: the worst error by quantity, in its unit; the table has those of problems that are right
    findings: in words, what was wrong
    """

    seed: int
    way: str
    words: str
    status: str = "right"
    errors: dict = field(default_factory=dict)
    findings: list = field(default_factory=list)
    seconds: float = 0.0

    def note(self, finding, said):
        self.errors[finding.quantity] = max(self.errors.get(finding.quantity, 0.0), finding.error)
        if finding.excess <= 1:
            return
        status = "said" if said else "silent"
        self.status = "silent" if "silent" in (self.status, status) else status
        where = f"{finding.quantity} {finding.detail}: {finding.error:.2g} ({finding.excess:.2g} times the tolerance)"
        self.findings.append(f"{status}: {where}")

    def __str__(self):
        return "\n    ".join([f"{self.status}: {self.words}", *self.findings])


def is_said(caught, gp):
    """Whether the library warned, or the report says, that something other than the search did not converge."""
    own = [str(w.message) for w in caught if w.category.__module__.split(".")[0] == "lkgp"]
    if any(not message.startswith(SEARCH) for message in own):
        return True
    return gp is not None and not (gp.posterior_.solution.converged and all(one.converged for one in gp.report_.draws))


def chosen_checks(seed, fitted):
    rng = np.random.default_rng([seed, 1])
    chosen = [check for check, share in OPTIONAL.items() if rng.random() < share]
    return [checks.check_moments, *chosen, *([checks.check_fit] if fitted else [])]


def run(seed):
    """Run the problem with this seed."""
    began, given = time.perf_counter(), problem(seed)
    outcome, gp = Outcome(seed, given.way, str(given)), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gp = checks.started(given, optimize=given.fit)
            comparison = checks.Comparison(given, gp)
            if not comparison.decidable(comparison.on_grid, comparison.off_grid):
                outcome.status = "undecidable"
            else:
                for check in chosen_checks(seed, given.fit):
                    for finding in check(comparison):
                        outcome.note(finding, is_said(caught, gp))
                if outcome.status == "right" and is_said(caught, gp):
                    outcome.status = "warned"
        except OWN_ERRORS as error:
            outcome.status = "silent" if outcome.status == "silent" else "refused"
            outcome.findings.append(f"refused: {type(error).__name__}: {error}")
        except np.linalg.LinAlgError:
            outcome.status = "undecidable"
        except Exception:
            outcome.status = "silent"
            outcome.findings.append("silent: a foreign error\n" + traceback.format_exc())
    outcome.seconds = time.perf_counter() - began
    return outcome


def prepare():
    """One thread a process."""
    torch.set_num_threads(1)


def run_many(seeds, processes, progress=True):
    """The outcomes of many problems, in the order of the seeds; violations are printed as they are found."""
    outcomes, began = [], time.monotonic()
    with ProcessPoolExecutor(processes, initializer=prepare) as pool:
        for outcome in pool.map(run, seeds, chunksize=4):
            outcomes.append(outcome)
            if outcome.status == "silent":
                print(outcome, flush=True)
            if progress and len(outcomes) % 100 == 0:
                counts = collections.Counter(o.status for o in outcomes)
                text = ", ".join(f"{n} {status}" for status, n in counts.most_common())
                print(f"{len(outcomes)} problems in {time.monotonic() - began:.0f} s: {text}", file=sys.stderr)
    return outcomes
