"""BoTorch's LatentKroneckerGP with the kernels and the mean of the problem, its own fit, and 64 samples."""

import copy
import math
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.settings import skip_posterior_variances
from torch import Tensor

from lkgp.studies.comparators.paper_recipe import exact_prediction
from lkgp.studies.predictions import SAMPLES, Prediction
from lkgp.studies.problems import FIRST_NOISE, Problem
from lkgp.studies.registry import BENCHMARK, COMPARATORS, Comparator, always

# Seconds after which a fit is stopped and scored as it is; on the larger cases it would take hours.
LONGEST_FIT = 600.0


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
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


class Search:
    """BoTorch's model of a problem, and the best hyperparameters that its search has seen.

    first, second: the coordinates (n_k, d_k)
    """

    def __init__(self, problem: Problem) -> None:
        from botorch.models.latent_kronecker_gp import LatentKroneckerGP  # noqa: PLC0415  (an optional package)

        self.first, self.second = (torch.as_tensor(x, dtype=torch.float64) for x in problem.coords)
        self.kernels: list[Kernel] = [kernel.double() for kernel in problem.make_kernels()]
        # The mean is a product over the factors: a constant that is learned, times one.
        self.mean, one = ConstantMean(), ConstantMean()
        one.constant.requires_grad_(False).fill_(1.0)
        self.model = LatentKroneckerGP(
            self.first,
            self.second,
            torch.as_tensor(problem.seen, dtype=torch.float64),
            mean_module_X=self.mean,
            mean_module_T=one,
            covar_module_X=self.kernels[0],
            covar_module_T=self.kernels[1],
            outcome_transform=None,
        )
        # The lowest loss so far, and the kernels, the mean and the noise there.
        self.lowest = math.inf
        self.best: tuple[list[Kernel], float, float] = (copy.deepcopy(self.kernels), 0.0, FIRST_NOISE)

    @property
    def noise(self) -> float:
        return float(self.model.likelihood.noise.detach())

    def fit(self) -> None:
        """Run BoTorch's own search, and keep track of the best."""
        from botorch.fit import fit_gpytorch_mll  # noqa: PLC0415
        from botorch.optim.closures import get_loss_closure_with_grads  # noqa: PLC0415

        mll = ExactMarginalLogLikelihood(self.model.likelihood, self.model)
        closure = get_loss_closure_with_grads(mll, {name: p for name, p in mll.named_parameters() if p.requires_grad})

        def watched(**keywords: Any) -> Any:  # whatever BoTorch passes on
            loss, gradients = closure(**keywords)
            if float(loss) < self.lowest:
                self.lowest = float(loss)
                self.best = (copy.deepcopy(self.kernels), self.mean.constant.item(), self.noise)
            return loss, gradients

        fit_gpytorch_mll(mll, closure=watched)

    @torch.no_grad()
    def sample(self) -> Tensor:
        """Posterior samples at every cell, (samples, n_1, n_2)."""
        # Samples need no covariance of all cells, which it would form otherwise.
        with skip_posterior_variances():
            samples: Tensor = self.model.posterior(self.first, self.second).rsample(torch.Size([SAMPLES]))
        return samples.view(SAMPLES, len(self.first), len(self.second))


@dataclass(frozen=True)
class FitBoTorch:
    """A fit that takes too long is stopped; then no samples are drawn, and the best fit so far predicts exactly.

    longest_fit: seconds
    """

    longest_fit: float = LONGEST_FIT

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Slow to import, which should not count as a part of the fit.
            import botorch.fit  # noqa: PLC0415
            import botorch.models.latent_kronecker_gp  # noqa: PLC0415
            import botorch.optim.closures  # noqa: F401, PLC0415

            torch.manual_seed(seed)
            began = time.perf_counter()
            search = Search(problem)
            with search.model.use_iterative_methods():
                try:
                    with time_limit(self.longest_fit):
                        search.fit()
                except TimeoutError:
                    seconds = {"fit": time.perf_counter() - began}
                    how = (
                        f"stopped after {self.longest_fit:.0f} s, without samples; exact predictions from its best fit"
                    )
                    return exact_prediction(problem, *search.best, seconds, {"how": how})
                seconds = {"fit": time.perf_counter() - began}
                began = time.perf_counter()
                samples = search.sample()
        seconds["samples"] = time.perf_counter() - began
        std = (samples.var(dim=0) + search.noise).sqrt()
        return Prediction(samples.mean(dim=0).numpy(), std.numpy(), seconds=seconds)


COMPARATORS.register(
    Comparator("BoTorch LatentKroneckerGP", always(FitBoTorch()), presets=(BENCHMARK,), needs=("botorch",), order=50)
)
