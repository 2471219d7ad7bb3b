"""Fitted models that eight threads ask at the same time, and what they must answer.

Each kind of model is a `Shared`: a function that makes a fresh model, and questions by name. A fresh model has computed
nothing yet, so that threads compete for everything that is computed once and kept.
"""

import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import gpytorch
import numpy as np
import optuna
import torch
from botorch_models import data as botorch_data
from fields import small_field
from gpytorch.kernels import IndexKernel, MaternKernel, RBFKernel, ScaleKernel
from training_runs import simulated

import lkgp.xarray
from lkgp import LKGP, Direct, ObservationSpace, Spectral
from lkgp.botorch import LatentKroneckerGP as BotorchModel
from lkgp.curves import CurveModel
from lkgp.optuna import LKGPPruner
from lkgp.sklearn import LKGPRegressor, LKGPTableRegressor

THREADS = 8


@dataclass(frozen=True)
class Shared:
    """A kind of model.

    fresh: makes a fitted model that has computed nothing yet, always the same
    questions: by name, functions from the model to an array
    tolerance: of the answers, relative to their largest entry; the same operations in another order of threads
    asked: how many of the questions each thread asks in a round
    alone: whether no other library changes filters of warnings meanwhile, as xarray, pandas and scikit-learn do
    """

    name: str
    fresh: Callable[[], object]
    questions: dict[str, Callable[[object], np.ndarray]]
    tolerance: float = 1e-9
    asked: int = 3
    alone: bool = True


@dataclass
class Count:
    """What a number of rounds found: answers, exceptions, answers that differ, and the worst relative difference."""

    answers: int = 0
    errors: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    worst: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.errors or self.different)

    def compare(self, what: str, answer: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
        self.answers += 1
        same_shape = np.shape(answer) == np.shape(expected)
        difference = float(np.max(np.abs(answer - expected)) / np.max(np.abs(expected))) if same_shape else np.inf
        self.worst = max(self.worst, difference)
        if not difference <= tolerance:
            self.different.append(f"{what}: {difference:.1e}")


def at_once(tasks, count):
    """Run the tasks in threads that start together and switch often; exceptions are counted, with None as result."""
    barrier, before = threading.Barrier(len(tasks)), sys.getswitchinterval()

    def run(task):
        barrier.wait()
        try:
            return task()
        except Exception as error:
            count.errors.append(f"{type(error).__name__}: {error}")
            return None

    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(len(tasks)) as pool:
            return [future.result() for future in [pool.submit(run, task) for task in tasks]]
    finally:
        sys.setswitchinterval(before)


def process_settings(with_filters=True):
    """What a race could leave changed for the whole process."""
    filters = list(warnings.filters) if with_filters else []
    return gpytorch.settings.lazily_evaluate_kernels._state, torch.get_default_dtype(), filters


def expected_answers(kind):
    """The answers of one thread alone."""
    return {name: np.asarray(ask(kind.fresh())) for name, ask in kind.questions.items()}


def answers_of(kind, model, names):
    return [(name, kind.questions[name](model)) for name in names]


def share(kind, rounds, expected, count, seed=0):
    """Let threads ask one fresh model a round, each some of the questions in an order of its own."""
    rng, names = np.random.default_rng(seed), list(kind.questions)
    for _ in range(rounds):
        model, before = kind.fresh(), process_settings(kind.alone)
        orders = [rng.permutation(names)[: kind.asked] for _ in range(THREADS)]
        tasks = [partial(answers_of, kind, model, order) for order in orders]
        for answers in at_once(tasks, count):
            for name, answer in answers or ():
                count.compare(f"{kind.name}, {name}", np.asarray(answer), expected[name], kind.tolerance)
        if process_settings(kind.alone) != before:
            count.errors.append(f"{kind.name}: settings of the process were left changed")
    return count


# Models


def values_with_gaps(seed=0, shape=(7, 6)):
    rng = np.random.default_rng(seed)
    x, t = np.sort(rng.uniform(0, 2, shape[0])), np.linspace(0, 1, shape[1])
    y = np.sin(2 * x)[:, None] * np.cos(3 * t) + 0.1 * rng.normal(size=shape)
    y[rng.random(shape) < 0.3] = np.nan
    return [x, t], y


def lkgp_kind(name, solver, kernels=None, tolerance=1e-9):
    coords, y = values_with_gaps()
    model = LKGP(kernels, solver=solver).fit(coords, y, optimize=False)
    contents = model.to_contents()
    new = [np.array([0.31, 1.7]), np.array([0.05, 0.55])] if kernels is None else [np.array([0.31, 1.7]), None]
    questions = {
        "mean": lambda gp: gp.predict(std=False),
        "standard deviation": lambda gp: gp.predict()[1],
        "at new points": lambda gp: np.stack(gp.predict(new)),
        "covariance": lambda gp: gp.covariance([new[0], None]),
        "sample": lambda gp: gp.sample(5),
        "sample with another seed": lambda gp: gp.sample(5, seed=3),
        "sample at new points": lambda gp: gp.sample(4, new, seed=1),
        "likelihood": lambda gp: np.array([gp.log_marginal_likelihood()]),
        "single cells": lambda gp: np.stack(gp.predict_rows([coords[0][:3], coords[1][:3]])),
        "report": lambda gp: np.array([float(gp.report_.converged), gp.report_.observed]),
        "pickled": lambda gp: pickle.loads(pickle.dumps(gp)).predict(std=False),
        "saved": lambda gp: LKGP.from_contents(gp.to_contents()).predict(std=False),
    }
    return Shared(name, lambda: LKGP.from_contents(contents), questions, tolerance)


def task_kernels():
    """A sum and a product of kernels, with the kernel of names whose evaluation changes filters of warnings."""
    torch.manual_seed(0)
    first = ScaleKernel(MaternKernel(nu=2.5, active_dims=[0])) + ScaleKernel(RBFKernel(active_dims=[0]))
    return [first.double(), IndexKernel(num_tasks=6, rank=2).double()]


def tasks_kind():
    coords, y = values_with_gaps(1)
    model = LKGP(task_kernels(), standardize="values").fit([coords[0], np.arange(6.0)], y, optimize=False)
    contents = model.to_contents()
    questions = {
        "predict": lambda gp: np.stack(gp.predict()),
        "at new points": lambda gp: np.stack(gp.predict([np.array([0.4]), None])),
        "sample": lambda gp: gp.sample(3, [np.array([0.4, 1.1]), None]),
    }
    return Shared("LKGP with tasks", lambda: LKGP.from_contents(contents), questions)


def field_kind():
    model = lkgp.xarray.fit(small_field(places=(2, 3), times=12))
    contents, layout = model.gp.to_contents(), model.layout
    questions = {
        "predict": lambda model: model.predict().to_array().values[:, :3],
        "fill": lambda model: np.nan_to_num(model.fill()["t2m_std"].values),
        "sample": lambda model: model.sample(3, {"time": ["2019-03-01T03:00", "2019-03-02T05:00"]}).values,
    }
    fresh = lambda: lkgp.xarray.FieldModel(LKGP.from_contents(contents), layout)  # noqa: E731
    questions = {name: lambda model, ask=ask: np.nan_to_num(ask(model)) for name, ask in questions.items()}
    return Shared("FieldModel", fresh, questions, alone=False)


def curves_kind():
    configurations, curves = simulated(6)
    cut = [list(curve[: 6 + 2 * run]) for run, curve in enumerate(curves)]
    packed = pickle.dumps(CurveModel(last_epoch=20).fit(configurations, cut))
    questions = {
        "forecasts": lambda model: np.array([[*f.median, f.probability] for f in model.forecasts(threshold=0.5)]),
        "forecast": lambda model: model.forecast(2, threshold=0.5).median,
    }
    return Shared("CurveModel", lambda: pickle.loads(packed), questions)


def sklearn_kinds():
    rng = np.random.default_rng(0)
    X, y = rng.random((12, 2)), rng.normal(size=(12, 2))
    new = rng.random((3, 2))
    several = pickle.dumps(LKGPRegressor().fit(X, y))
    table = pickle.dumps(LKGPTableRegressor().fit(np.c_[X, np.tile([0.0, 1.0, 2.0], 4)], y[:, 0]))
    yield Shared(
        "LKGPRegressor",
        lambda: pickle.loads(several),
        {
            "predict": lambda model: model.predict(new),
            "with standard deviation": lambda model: np.stack(model.predict(new, return_std=True)),
            "sample_y": lambda model: model.sample_y(new, 3),
        },
        alone=False,
    )
    rows = np.c_[new, [0.0, 1.0, 0.5]]
    yield Shared(
        "LKGPTableRegressor",
        lambda: pickle.loads(table),
        {"predict": lambda m: m.predict(rows), "both": lambda m: np.stack(m.predict(rows, return_std=True))},
        alone=False,
    )


def botorch_kind():
    X, others, Y = botorch_data()
    new = torch.rand(2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def gradient(model):
        points = new.clone().requires_grad_(True)
        model.posterior(points).mean.sum().backward()
        return points.grad.numpy()

    questions = {
        "mean": lambda model: model.posterior(new).mean.detach().numpy(),
        "variance": lambda model: model.posterior(new).variance.detach().numpy(),
        "gradient": gradient,
    }
    return Shared("BoTorch model", lambda: BotorchModel(X, others, Y).eval(), questions)


def pruner_kind():
    """A pruner that judges the trials of one study, as parallel jobs do."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    configurations, curves = simulated(9, seed=3)
    for configuration, curve in zip(configurations, curves, strict=True):
        trial = study.ask({"rate": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True)})
        for step, value in enumerate(curve):
            trial.report(value, step)
        study.tell(trial, curve[-1])
        del configuration
    running = []
    for _, curve in zip(range(3), curves + 0.3, strict=False):
        trial = study.ask({"rate": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True)})
        for step, value in enumerate(curve[:8]):
            trial.report(value, step)
        running.append(trial.number)

    def chance(number):
        return lambda pruner: np.array([1 + pruner.judge(study, study.trials[number]).forecast.probability])

    questions = {f"trial {number}": chance(number) for number in running}
    return Shared("Optuna pruner", lambda: LKGPPruner(n_startup_trials=6), questions, asked=1)


def fitting_kind():
    """Threads that fit different models at the same time."""

    def fit(seed):
        coords, y = values_with_gaps(seed, (4, 3))
        return lambda _: np.array([LKGP().fit(coords, y).report_.log_likelihood])

    return Shared("fits of different models", lambda: None, {f"data {seed}": fit(seed) for seed in range(4)}, 1e-7, 1)


def all_kinds():
    yield lkgp_kind("LKGP, direct", Direct())
    yield lkgp_kind("LKGP, eigenbasis", Spectral(num_samples=8), tolerance=1e-8)
    yield lkgp_kind("LKGP, observation space", ObservationSpace(num_samples=8), tolerance=1e-8)
    yield tasks_kind()
    yield field_kind()
    yield curves_kind()
    yield from sklearn_kinds()
    yield botorch_kind()
    yield pruner_kind()
    yield fitting_kind()
