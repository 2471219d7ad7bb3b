"""Tune a network on scikit-learn's digits, with real training, and stop the runs that are unlikely to end best.

pip install 'lkgp[optuna,sklearn]'
python examples/optuna_digits.py                            # without and with pruning; takes a few minutes
python examples/optuna_digits.py --trials 20 --epochs 15
"""

import argparse
import time
import warnings

import optuna
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from lkgp.optuna import LKGPPruner

X, y = load_digits(return_X_y=True)
TRAIN_X, TEST_X, TRAIN_Y, TEST_Y = train_test_split(X / 16.0, y, test_size=0.3, random_state=0)


def train(trial: optuna.Trial, epochs: int) -> float:
    """The validation loss after the last epoch."""
    solver = trial.suggest_categorical("solver", ["adam", "sgd"])
    network = MLPClassifier(
        hidden_layer_sizes=(trial.suggest_int("width", 16, 512, log=True),) * trial.suggest_int("layers", 1, 3),
        solver=solver,
        learning_rate_init=trial.suggest_float("rate", 1e-4, 1e-1, log=True),
        momentum=trial.suggest_float("momentum", 0.0, 0.95) if solver == "sgd" else 0.9,
        alpha=trial.suggest_float("alpha", 1e-6, 1e-1, log=True),
        batch_size=32,
        random_state=trial.number,
    )
    for epoch in range(epochs):
        network.partial_fit(TRAIN_X, TRAIN_Y, classes=range(10))
        loss = log_loss(TEST_Y, network.predict_proba(TEST_X), labels=range(10))
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60, help="number of networks")
    parser.add_argument("--epochs", type=int, default=40, help="epochs of each network")
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", ConvergenceWarning)  # a single epoch never converges
    for name, pruner in (("no pruning", optuna.pruners.NopPruner()), ("LKGPPruner", LKGPPruner())):
        study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
        began = time.perf_counter()
        study.optimize(lambda trial: train(trial, chosen.epochs), n_trials=chosen.trials)
        seconds = time.perf_counter() - began
        epochs = sum(len(trial.intermediate_values) for trial in study.trials)
        print(
            f"{name}: best validation loss {study.best_value:.4f} (trial {study.best_trial.number}), "
            f"{epochs} epochs, {seconds:.0f} s"
        )
    stopped = next((t for t in reversed(study.trials) if t.state == optuna.trial.TrialState.PRUNED), None)
    if stopped is not None:
        print(f"trial {stopped.number} was pruned: {stopped.system_attrs['lkgp:reason']}")


if __name__ == "__main__":
    main()
