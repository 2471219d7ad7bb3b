"""Learning curves replayed as tuning: runs arrive, report epoch by epoch, and may be stopped. What does each pruner spend and lose?"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import optuna

from lkgp.optuna import LKGPPruner
from lkgp.studies.datasets import lcbench

# The sets that lkgp's own settings and prior were chosen on.
SETS = (
    "APSFailure",
    "Australian",
    "Fashion-MNIST",
    "KDDCup09_appetency",
    "MiniBooNE",
    "adult",
    "blood-transfusion-service-center",
    "cnae-9",
    "covertype",
    "fabert",
    "higgs",
    "segment",
)
# Those of which half of the replays were looked at for that, too; every pruner is run with its default.
OTHER_SETS = (
    "Amazon_employee_access",
    "albert",
    "bank-marketing",
    "christine",
    "credit-g",
    "jannis",
    "jungle_chess_2pcs_raw_endgame_complete",
    "kc1",
    "kr-vs-kp",
    "nomao",
    "phoneme",
    "shuttle",
    "vehicle",
)
RUNS, MANY_RUNS = 200, 1000
ORDERS, OTHER_ORDERS = 3, 2
# A seed that was used for nothing before lkgp's defaults were as they are: all settings of all pruners are run with it.
FRESH_ORDER = 200

median = optuna.pruners.MedianPruner
# By family: what a setting is called, and how the pruner is made; the first setting of each is its default, and run on all orders.
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

    spent: the share of all epochs that were trained
    best_kept: whether the run that ends best was trained to its end
    regret: by how much the best run that was trained to its end is worse than that, in units of how much a median run is worse
    median_seconds, worst_seconds: of one question whether to prune
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
    """Runs of an LCBench set, drawn and ordered by a seed, through an Optuna study."""
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
    return Replay(
        dataset,
        order,
        family,
        setting,
        runs,
        spent / Y.size,
        kept,
        regret,
        float(np.median(waits)),
        float(np.max(waits)),
    )


Tell = Callable[[str], None]


def measure(tell: Tell, dataset: str, runs: int = RUNS) -> dict[str, Any]:
    """Every pruner on one set: its default in all orders, its other settings in one, and those only on `SETS`."""
    chosen_on = dataset in SETS
    orders = ORDERS if chosen_on else OTHER_ORDERS
    found = []
    for family, settings in PRUNERS.items():
        for place, setting in enumerate(settings):
            for order in range(orders if place == 0 else int(chosen_on)):
                found.append(told(tell, replay(dataset, order, family, setting, runs)))
    return {"chosen_on": chosen_on, "replays": found}


def measure_many(tell: Tell, runs: int = MANY_RUNS) -> dict[str, Any]:
    """How long verdicts of lkgp take among many runs."""
    return {"many": told(tell, replay(SETS[0], 0, "lkgp", "default", runs))}


def measure_fresh(tell: Tell, dataset: str, runs: int = RUNS) -> dict[str, Any]:
    """Every setting of every pruner on one set, with other runs of it than lkgp's defaults were chosen on."""
    settings = [(family, setting) for family, settings in PRUNERS.items() for setting in settings]
    return {"fresh": [told(tell, replay(dataset, FRESH_ORDER, family, setting, runs)) for family, setting in settings]}


def told(tell: Tell, replayed: Replay) -> dict[str, Any]:
    found = asdict(replayed)
    tell(in_words(found))
    return found


def in_words(replayed: dict[str, Any]) -> str:
    kept = "best kept" if replayed["best_kept"] else f"regret {replayed['regret']:.3f}"
    who = f"{replayed['dataset']}, order {replayed['order']}, {replayed['runs']} runs: {replayed['family']}, {replayed['setting']}"
    return f"{who}: {replayed['spent']:.1%} of the epochs, {kept}, worst wait {replayed['worst_seconds']:.2f} s"
