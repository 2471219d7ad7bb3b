"""Learning curves replayed as tuning: runs arrive, report every epoch, and may be stopped by a pruner."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import optuna

from lkgp.optuna import LKGPPruner
from lkgp.studies.datasets import lcbench

RUNS, MANY_RUNS = 200, 1000
# Orders in which runs arrive: on the sets that lkgp's defaults were chosen on, and on the others.
ORDERS, OTHER_ORDERS = 3, 2
# A seed that was used for nothing before lkgp's defaults were fixed. All settings of all pruners are run with it.
FRESH_ORDER = 200

median = optuna.pruners.MedianPruner
# By family: what a setting is called, and how the pruner is made from the number of epochs. The first setting of each
# family is its default, and is run in all orders.
PRUNERS: dict[str, dict[str, Callable[[int], Any]]] = {
    "lkgp": {
        "default": lambda _: LKGPPruner(),
        "threshold 0.01": lambda _: LKGPPruner(threshold=0.01),
        "threshold 0.1": lambda _: LKGPPruner(threshold=0.1),
    },
    "median": {
        "default": lambda _: median(),
        "10 warmup steps": lambda _: median(n_warmup_steps=10),
        "75th percentile": lambda _: optuna.pruners.PercentilePruner(75.0),
        "25th percentile": lambda _: optuna.pruners.PercentilePruner(25.0),
    },
    "successive halving": {
        "default": lambda _: optuna.pruners.SuccessiveHalvingPruner(),
        "min_resource 4": lambda _: optuna.pruners.SuccessiveHalvingPruner(min_resource=4),
        "reduction_factor 2": lambda _: optuna.pruners.SuccessiveHalvingPruner(reduction_factor=2),
    },
    "Hyperband": {
        "default": lambda epochs: optuna.pruners.HyperbandPruner(max_resource=epochs),
        "reduction_factor 2": lambda epochs: optuna.pruners.HyperbandPruner(max_resource=epochs, reduction_factor=2),
    },
    "patient": {
        "patience 5": lambda _: optuna.pruners.PatientPruner(median(), patience=5),
        "patience 2": lambda _: optuna.pruners.PatientPruner(median(), patience=2),
    },
    "Wilcoxon": {
        "default": lambda _: optuna.pruners.WilcoxonPruner(),
        "p_threshold 0.01": lambda _: optuna.pruners.WilcoxonPruner(p_threshold=0.01),
    },
    "none": {"default": lambda _: optuna.pruners.NopPruner()},
}


@dataclass(frozen=True)
class Replay:
    """What one pruner did with the runs of one set in one order.

    order: the seed of the choice and the order of the runs
    spent: the share of all epochs that were trained
    best_kept: whether the best run was trained to its end
    regret: by how much the best run that was trained to its end is worse than the best of all, divided by how much a
    median
        run is worse
    median_seconds, worst_seconds: of deciding once whether to prune
    """

    dataset: str
    order: int
    family: str
    setting: str
    runs: int
    spent: float
    best_kept: bool
    regret: float
    median_seconds: float
    worst_seconds: float


def replay(dataset: str, order: int, family: str, setting: str, runs: int = RUNS) -> Replay:
    """Pass runs of an LCBench set, drawn and ordered by a seed, through an Optuna study."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    X, Y = lcbench(dataset)
    chosen = np.random.default_rng(order).choice(len(X), runs, replace=False)
    X, Y = X[chosen], Y[chosen]
    epochs = Y.shape[1]
    study = optuna.create_study(pruner=PRUNERS[family][setting](epochs), study_name=f"{dataset} {order}")
    spaces: dict[str, Any] = {
        f"x{j}": optuna.distributions.FloatDistribution(float(low), float(high))
        for j, (low, high) in enumerate(zip(X.min(0), X.max(0), strict=True))
    }
    spent, ends, waits = 0, np.full(runs, np.inf), []
    for number, (x, curve) in enumerate(zip(X, Y, strict=True)):
        study.enqueue_trial({f"x{j}": float(value) for j, value in enumerate(x)})
        trial = study.ask(spaces)
        for step, value in enumerate(curve.tolist()):
            trial.report(value, step)
            spent += 1
            began = time.perf_counter()
            stop = trial.should_prune()
            waits.append(time.perf_counter() - began)
            if stop:
                break
        if stop:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, value)
            ends[number] = value
    last = Y[:, -1]
    regret = float((ends.min() - last.min()) / (np.median(last) - last.min()))
    kept = bool(np.isfinite(ends[np.argmin(last)]))
    median_wait, worst_wait = float(np.median(waits)), float(np.max(waits))
    return Replay(dataset, order, family, setting, runs, spent / Y.size, kept, regret, median_wait, worst_wait)


PrintLine = Callable[[str], None]


def measure(print_line: PrintLine, dataset: str, chosen_on: bool, runs: int = RUNS) -> dict[str, Any]:
    """Replay one set with every pruner: with its default in all orders, and with its other settings in one order.

    chosen_on: whether lkgp's defaults were chosen on this set; if not, only defaults are run
    """
    orders = ORDERS if chosen_on else OTHER_ORDERS
    found = []
    for family, settings in PRUNERS.items():
        for place, setting in enumerate(settings):
            for order in range(orders if place == 0 else int(chosen_on)):
                found.append(replay_and_print(print_line, dataset, order, family, setting, runs))
    return {"chosen_on": chosen_on, "replays": found}


def measure_many(print_line: PrintLine, dataset: str, runs: int = MANY_RUNS) -> dict[str, Any]:
    """How long lkgp takes to decide when there are many runs."""
    return {"many": replay_and_print(print_line, dataset, 0, "lkgp", "default", runs)}


def measure_fresh(print_line: PrintLine, dataset: str, runs: int = RUNS) -> dict[str, Any]:
    """Replay one set with every setting of every pruner, with other runs than lkgp's defaults were chosen on."""
    settings = [(family, setting) for family, settings in PRUNERS.items() for setting in settings]
    found = [replay_and_print(print_line, dataset, FRESH_ORDER, family, setting, runs) for family, setting in settings]
    return {"fresh": found}


def replay_and_print(
    print_line: PrintLine, dataset: str, order: int, family: str, setting: str, runs: int
) -> dict[str, Any]:
    """Replay, print one line about it, and return it as a record."""
    found = replay(dataset, order, family, setting, runs)
    kept = "best run kept" if found.best_kept else f"regret {found.regret:.3f}"
    what = f"{dataset}, order {order}, {runs} runs: {family}, {setting}"
    print_line(f"{what}: {found.spent:.1%} of the epochs, {kept}, longest wait {found.worst_seconds:.2f} s")
    return asdict(found)
