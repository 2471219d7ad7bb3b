"""Train small networks on scikit-learn's digits and record their learning curves.

Writes `src/lkgp/demo/digits_curves.npz`, the table that `lkgp demo` reads:

    settings  (300, 6)   the hyperparameters, one row a network
    names     (6,)       what the columns of `settings` are
    epochs    (40,)      1, 2, ..., 40
    accuracy  (300, 40)  validation accuracy after each epoch
    log_loss  (300, 40)  validation cross-entropy after each epoch

Run it with `python scripts/train_digits_curves.py` (about ten minutes on two cores).
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

NUM_NETWORKS = 300
NUM_EPOCHS = 40
NAMES = ["log10 learning rate", "momentum", "log10 weight decay", "log2 batch size", "log2 units", "layers"]
TARGET = Path(__file__).parents[1] / "src" / "lkgp" / "demo" / "digits_curves.npz"


def draw_settings(generator: np.random.Generator) -> np.ndarray:
    """Random hyperparameters, (NUM_NETWORKS, 6), in the order of NAMES."""
    columns = [
        generator.uniform(-3.5, -0.5, NUM_NETWORKS),
        generator.uniform(0.0, 0.99, NUM_NETWORKS),
        generator.uniform(-6.0, 0.0, NUM_NETWORKS),
        generator.uniform(3.0, 8.0, NUM_NETWORKS),
        generator.uniform(3.0, 8.0, NUM_NETWORKS),
        generator.integers(1, 4, NUM_NETWORKS),
    ]
    return np.stack(columns, axis=1)


def train(settings: np.ndarray, seed: int) -> tuple[list[float], list[float]]:
    """Validation accuracy and cross-entropy after each epoch of one network; NaN from where it broke down."""
    rate, momentum, decay, batch, units, layers = settings
    images, labels = load_digits(return_X_y=True)
    data = train_test_split(images / 16.0, labels, train_size=600, stratify=labels, random_state=0)
    train_images, valid_images, train_labels, valid_labels = data
    network = MLPClassifier(
        hidden_layer_sizes=(round(2**units),) * int(layers),
        solver="sgd",
        learning_rate_init=10**rate,
        momentum=momentum,
        alpha=10**decay,
        batch_size=round(2**batch),
        random_state=seed,
    )
    accuracy, loss = [np.nan] * NUM_EPOCHS, [np.nan] * NUM_EPOCHS
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for epoch in range(NUM_EPOCHS):
            try:
                network.partial_fit(train_images, train_labels, classes=np.arange(10))
                probabilities = network.predict_proba(valid_images)
                loss[epoch] = log_loss(valid_labels, probabilities)
            except ValueError:  # the weights are no longer finite: the run is over
                break
            accuracy[epoch] = accuracy_score(valid_labels, probabilities.argmax(axis=1))
    return accuracy, loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=TARGET)
    output = parser.parse_args().output
    settings = draw_settings(np.random.default_rng(0))
    curves = Parallel(n_jobs=-1, verbose=5)(delayed(train)(row, seed) for seed, row in enumerate(settings))
    accuracy, loss = (np.array(values, dtype=np.float32) for values in zip(*curves, strict=True))
    np.savez_compressed(
        output,
        settings=settings.round(4),
        names=np.array(NAMES),
        epochs=np.arange(1, NUM_EPOCHS + 1),
        accuracy=accuracy,
        log_loss=loss,
    )
    print(f"wrote {output} ({output.stat().st_size / 1e3:.0f} kB)")


if __name__ == "__main__":
    main()
