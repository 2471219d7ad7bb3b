"""Predict several related targets, half of which are missing, in a scikit-learn pipeline.

    pip install 'lkgp[sklearn]'
    python examples/multitask_pipeline.py

Combinations of a few smooth functions of scikit-learn's diabetes data stand for the results of six laboratories, each
of which measured half of the patients.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lkgp.sklearn import LKGPRegressor


def main() -> None:
    rng = np.random.default_rng(0)
    X, _ = load_diabetes(return_X_y=True, scaled=False)
    Z = StandardScaler().fit_transform(X)[:, :4]
    hidden = np.column_stack([np.sin(Z[:, 0]) + 0.5 * Z[:, 2], np.tanh(Z[:, 3])])
    targets = hidden @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(len(Z), 6))
    X_train, X_test, Y_train, Y_test = train_test_split(X[:, :4], targets, test_size=0.8, random_state=0)
    Y_seen = np.where(rng.random(Y_train.shape) < 0.5, np.nan, Y_train)

    together = make_pipeline(StandardScaler(), LKGPRegressor()).fit(X_train, Y_seen)
    mean, std = together.predict(X_test, return_std=True, observation_noise=True)
    inside = np.mean(np.abs(mean - Y_test) < 1.96 * std)
    print(f"{np.isnan(Y_seen).mean():.0%} of {Y_seen.size} training targets are missing")
    print(
        f"all targets together: R^2 {r2_score(Y_test, mean):.3f} on new patients, "
        f"{inside:.1%} of the values inside the 95 % intervals"
    )

    alone = []
    for task in range(Y_seen.shape[1]):
        observed = np.isfinite(Y_seen[:, task])
        one = make_pipeline(StandardScaler(), LKGPRegressor()).fit(X_train[observed], Y_seen[observed, task])
        alone.append(one.predict(X_test))
    print(f"each target alone: R^2 {r2_score(Y_test, np.column_stack(alone)):.3f}")

    gaps = np.isnan(Y_seen)
    filled = together.predict(X_train)
    print(f"missing training targets filled in: R^2 {r2_score(Y_train[gaps], filled[gaps]):.3f}")


if __name__ == "__main__":
    main()
