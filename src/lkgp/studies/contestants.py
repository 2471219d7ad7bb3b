"""Who runs in the benchmarks. Each takes a case, fits it, draws 64 samples where it can, and says how long that took and how good it is.

Peers are imported where they are used: they are optional packages.
"""

import copy
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lkgp import LKGP, Spectral
from lkgp.errors import InputError
from lkgp.studies.methods import SAMPLES, Prediction
from lkgp.studies.paper_recipe import PaperRecipe, PlainRecipe
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.runs import score

# Steps of the paper's optimiser: 50 for the robot arm, 100 for the others.
PAPER_STEPS = {"SARCOS": 50}
# Places along the path of a long fit.
PATH_POINTS = 3
# Where a single step takes many minutes, solves are cut at these numbers of iterations to learn what one takes.
CUTS = (20, 50)
# BoTorch's search is stopped after this, and scored where it is then.
BOTORCH_SECONDS = 600.0

Result = dict[str, Any]


def scores(case: Problem, mean: np.ndarray, std: np.ndarray) -> Result:
    """Test NLL and RMSE on the withheld cells."""
    found = score(case, Prediction(mean, std))
    return {"nll": found["test_nll"], "rmse": found["test_rmse"]}


def run_lkgp(case: Problem, solver: Any = "auto") -> Result:
    """Fit, 64 samples, mean and standard deviation of every cell."""
    began = time.perf_counter()
    gp = LKGP(case.make_kernels(), noise=FIRST_NOISE, standardize=False, solver=solver).fit(case.coords, case.seen)
    fitted = time.perf_counter()
    gp.sample(SAMPLES)
    sampled = time.perf_counter()
    mean, std = gp.predict(observation_noise=True)
    seconds = {
        "fit and mean": fitted - began,
        "samples": sampled - fitted,
        "predictions": time.perf_counter() - sampled,
    }
    report = gp.report_.to_dict()
    del report["history"]
    found = {name: p.detach().flatten().tolist() for name, p in gp.model_.named_parameters()}
    extra = {"report": report, "raw parameters": found}
    if case.truth:
        extra["recovered"] = recovered(gp)
    return {"seconds": seconds, "total": sum(seconds.values()), **scores(case, mean, std), **extra}


def recovered(gp: LKGP) -> dict[str, float]:
    """The hyperparameters of a model with `weather_kernels`, under the names of `problems.SIMULATED`."""
    kernels: list[Any] = list(gp.model_.kernels)
    space, time_ = kernels
    found = {
        "noise": gp.model_.noise_variance(),
        "scale": space.outputscale,
        "length of space": space.base_kernel.lengthscale,
        "length of time": time_.kernels[0].lengthscale,
        "period": time_.kernels[1].period_length,
        "length in the period": time_.kernels[1].lengthscale,
    }
    return {name: float(value.detach().mean()) for name, value in found.items()}


def run_paper(case: Problem, recipe_class: Any = PaperRecipe) -> Result:
    """All steps of the paper's recipe, and 64 samples. Scores are of exact predictions with the hyperparameters that it found."""
    recipe = recipe_class(case.coords, case.seen, case.make_kernels())
    losses, fit_seconds = [], 0.0
    for _ in range(steps_of(case)):
        loss, seconds = recipe.step()
        losses.append(loss)
        fit_seconds += seconds
    began = time.perf_counter()
    recipe.sample(SAMPLES)
    sample_seconds = time.perf_counter() - began
    model = recipe.model
    quality = exact_scores(case, list(model.kernels), model.mean_module.constant.item(), model.likelihood.noise.item())
    seconds = {"fit": fit_seconds, "samples": sample_seconds}
    return {"seconds": seconds, "total": fit_seconds + sample_seconds, "losses": losses, **quality}


def exact_scores(case: Problem, kernels: list[Any], mean: float, noise: float) -> Result:
    """Scores and log-likelihood of exact predictions with the hyperparameters that a peer has found."""
    found = LKGP(kernels, mean=mean, noise=noise, standardize=False).fit(case.coords, case.seen, optimize=False)
    return {**scores(case, *found.predict(observation_noise=True)), "log likelihood": found.report_.log_likelihood}


def run_paper_path(case: Problem, optimum: dict[str, list[float]], recipe_class: Any = PaperRecipe) -> Result:
    """The cost of the paper's recipe where all of it would take hours, from single steps along its path.

    Adam with rate 0.1 moves every raw parameter by about 0.1 a step; the path is the straight one to `optimum`, and stays there. The
    cost of the steps between those that are measured is interpolated. Samples are not counted.
    """
    places, measured = places_of(case), []
    for place in places:
        recipe = recipe_class(case.coords, case.seen, case.make_kernels())
        recipe.move_towards(optimum, 0.1 * place)
        measured.append(recipe.step()[1])
    return along_path(case, measured, f"from steps {', '.join(map(str, places))} of {steps_of(case)}")


def along_path(case: Problem, measured: list[float], how: str) -> Result:
    """The cost of a long fit from that of its steps at `places_of(case)`; the steps between are interpolated."""
    places = places_of(case)
    fit_seconds = float(np.interp(np.arange(steps_of(case)), places, measured).sum())
    return {
        "seconds": {"fit": fit_seconds},
        "total": fit_seconds,
        "steps": dict(zip(map(str, places), measured, strict=True)),
        "how": how,
    }


def run_paper_iterations(case: Problem, optimum: dict[str, list[float]], recipe_class: Any = PaperRecipe) -> Result:
    """The cost of the paper's recipe where even a single step takes many minutes: its iterations, times what one of them takes.

    The iterations are counted at places along the path, as in `run_paper_path`, with one probe that stands for all, and always with the
    grid: without it the matrix, and so the number, is the same. What an iteration of `recipe_class` takes with all columns, and what a
    step takes besides, is known from steps that are cut after few iterations.
    """

    def line(seconds: Callable[[int], float]) -> tuple[float, float]:
        """What one iteration takes, and what the rest takes."""
        short, long = seconds(CUTS[0]), seconds(CUTS[1])
        each = (long - short) / (CUTS[1] - CUTS[0])
        return each, short - CUTS[0] * each

    places, counts = places_of(case), []
    for place in places:
        recipe = PaperRecipe(case.coords, case.seen, case.make_kernels())
        recipe.move_towards(optimum, 0.1 * place)
        counts.append(recipe.iterations_of_step())
    recipe = recipe_class(case.coords, case.seen, case.make_kernels())
    recipe.move_towards(optimum, math.inf)
    each, rest = line(lambda cut: recipe.step(max_iterations=cut)[1])
    how = f"{', '.join(map(str, counts))} iterations in steps {', '.join(map(str, places))} of {steps_of(case)}, at {each:.3g} s each"
    return along_path(case, [rest + each * count for count in counts], how)


def places_of(case: Problem) -> list[int]:
    """The steps along the path of a long fit at which its cost is measured."""
    return [round(i * (steps_of(case) - 1) / (PATH_POINTS - 1)) for i in range(PATH_POINTS)]


def steps_of(case: Problem) -> int:
    return PAPER_STEPS.get(case.name.split(",")[0], 100)


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError in what takes longer, wherever it is."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_botorch(case: Problem) -> Result:
    """BoTorch's LatentKroneckerGP with the kernels and the mean of the case, its own fit, and 64 samples.

    A fit that takes too long is stopped. No samples are drawn then, and the scores are of exact predictions with the best that it had
    found.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
        from botorch.models.latent_kronecker_gp import LatentKroneckerGP  # noqa: PLC0415
        from botorch.optim.closures import get_loss_closure_with_grads  # noqa: PLC0415
    from gpytorch.means import ConstantMean  # noqa: PLC0415
    from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: PLC0415
    from gpytorch.settings import skip_posterior_variances  # noqa: PLC0415

    torch.manual_seed(0)
    first, second = (torch.as_tensor(x, dtype=torch.float64) for x in case.coords)
    values = torch.as_tensor(case.seen, dtype=torch.float64)
    kernels = [kernel.double() for kernel in case.make_kernels()]
    # The mean is a product over the factors: a constant that is learned, times one.
    means = [ConstantMean(), ConstantMean()]
    means[1].constant.requires_grad_(False).fill_(1.0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LatentKroneckerGP(
            first,
            second,
            values,
            mean_module_X=means[0],
            mean_module_T=means[1],
            covar_module_X=kernels[0],
            covar_module_T=kernels[1],
            outcome_transform=None,
        )
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        closure = get_loss_closure_with_grads(mll, {name: p for name, p in mll.named_parameters() if p.requires_grad})
        lowest, best = math.inf, (copy.deepcopy(kernels), 0.0, FIRST_NOISE)

        def watched(**words: Any) -> Any:
            nonlocal lowest, best
            loss, gradients = closure(**words)
            if float(loss) < lowest:
                lowest, best = (
                    float(loss),
                    (copy.deepcopy(kernels), means[0].constant.item(), model.likelihood.noise.item()),
                )
            return loss, gradients

        with model.use_iterative_methods():
            try:
                with stopped_after(BOTORCH_SECONDS):
                    fit_gpytorch_mll(mll, closure=watched)
            except TimeoutError:
                seconds = {"fit": time.perf_counter() - began}
                quality = exact_scores(case, *best)
                how = f"stopped after {BOTORCH_SECONDS:.0f} s, without samples; scores are of exact predictions with the best it had found"
                return {"seconds": seconds, "total": seconds["fit"], "how": how, **quality}
            seconds = {"fit": time.perf_counter() - began}
            # Its samples need no covariance of all cells, which it would form at once.
            with torch.no_grad(), skip_posterior_variances():
                samples = (
                    model.posterior(first, second).rsample(torch.Size([SAMPLES])).view(SAMPLES, len(first), len(second))
                )
    seconds["samples"] = time.perf_counter() - began - seconds["fit"]
    std = (samples.var(dim=0) + float(model.likelihood.noise.detach())).sqrt()
    return {
        "seconds": seconds,
        "total": sum(seconds.values()),
        **scores(case, samples.mean(dim=0).numpy(), std.numpy()),
    }


def run_sklearn(case: Problem) -> Result:
    """scikit-learn's exact GP on the observed cells, squared exponentials only; no samples."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel  # noqa: PLC0415

    first, second = case.coords
    rows = np.concatenate([np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))], axis=1)
    flat, seen = case.values.ravel(), case.observed.ravel()
    kernel = ConstantKernel(FIRST_NOISE) * RBF(np.full(rows.shape[1], FIRST_NOISE)) + WhiteKernel(FIRST_NOISE)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hyperparameters at their bounds
        model = GaussianProcessRegressor(kernel).fit(rows[seen], flat[seen] - flat[seen].mean())
    fitted = time.perf_counter()
    mean, std = model.predict(rows[~seen], return_std=True)
    seconds = {"fit": fitted - began, "predictions": time.perf_counter() - fitted}
    whole_mean, whole_std = np.zeros(case.values.shape), np.ones(case.values.shape)
    whole_mean[~case.observed], whole_std[~case.observed] = mean + flat[seen].mean(), std
    return {"seconds": seconds, "total": sum(seconds.values()), **scores(case, whole_mean, whole_std)}


CONTESTANTS: dict[str, Callable[..., Result]] = {
    "lkgp": run_lkgp,
    "lkgp, with the grid": lambda case: run_lkgp(case, Spectral(space="cells")),
    "lkgp, without the grid": lambda case: run_lkgp(case, Spectral(space="dense")),
    "the paper's settings": run_paper,
    "the paper's settings, by its steps": run_paper_path,
    "the paper's settings, by its iterations": run_paper_iterations,
    "iterative GP without the grid": lambda case: run_paper(case, PlainRecipe),
    "iterative GP without the grid, by its steps": lambda case, optimum: run_paper_path(case, optimum, PlainRecipe),
    "iterative GP without the grid, by its iterations": lambda case, optimum: run_paper_iterations(
        case, optimum, PlainRecipe
    ),
    "BoTorch LatentKroneckerGP": run_botorch,
    "scikit-learn": run_sklearn,
}


def contestant(name: str) -> Callable[..., Result]:
    if name not in CONTESTANTS:
        raise InputError(f"there is no contestant {name!r}; there are {', '.join(CONTESTANTS)}.")
    return CONTESTANTS[name]
