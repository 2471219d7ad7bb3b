"""The settings of Lin et al. (2025) in GPyTorch and linear_operator.

float32; Adam with a learning rate of 0.1 from GPyTorch's default hyperparameters; conjugate gradients to a residual of
0.01, preconditioned by a pivoted Cholesky factor of rank 100; 10 probes.
"""

import copy
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.operators import DenseLinearOperator, KroneckerProductLinearOperator, MaskedLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

# The paper's settings: probes of the log-determinant, the residual at which conjugate gradients stop (a mean over all
# columns), their most iterations, the rank of the preconditioner, and the learning rate of Adam.
PROBES, TOLERANCE, MAX_ITERATIONS, RANK, RATE = 10, 0.01, 1000, 100, 0.1
# linear_operator does not stop earlier when it also estimates the log-determinant.
LEAST_ITERATIONS = 20
# linear_operator's bound below which it takes a divisor to be zero.
SMALLEST_DIVISOR = 1e-10


def paper_steps(experiment: str) -> int:
    """The paper's steps of Adam: 50 on the robot arm, 100 elsewhere."""
    return 50 if experiment == "sarcos" else 100


@contextmanager
def paper_settings(max_iterations: int = MAX_ITERATIONS) -> Iterator[None]:
    """GPyTorch's global settings as in the paper. Fewer iterations only serve to measure what one of them takes."""
    settings = gpytorch.settings
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about conjugate gradients that end at their limit
        for context in (
            # The defaults, which BoTorch changes when it is imported.
            settings.fast_computations(covar_root_decomposition=True, log_prob=True, solves=True),
            settings.max_cholesky_size(1),
            settings.cg_tolerance(TOLERANCE),
            settings.max_preconditioner_size(RANK),
            settings.min_preconditioning_size(1),
            settings.num_trace_samples(PROBES),
            settings.max_cg_iterations(max_iterations),
        ):
            stack.enter_context(context)
        yield


class LatentKroneckerExactGP(gpytorch.models.ExactGP):
    """An exact GP whose covariance is a masked Kronecker product of two kernels.

    coords: two tensors (p, d) and (q, d'); y: (n,); observed: (p q,)
    """

    def __init__(
        self, coords: list[Tensor], kernels: list[Kernel], y: Tensor, observed: Tensor, likelihood: Any
    ) -> None:
        super().__init__(coords[0], y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.kernels = torch.nn.ModuleList(kernels)
        self.coords, self.observed = coords, observed

    def forward(self, first: Tensor) -> Any:
        factors = [
            kernel(x).evaluate_kernel() for kernel, x in zip(self.kernels, [first, *self.coords[1:]], strict=True)
        ]
        mean = self.mean_module(first.new_zeros(int(self.observed.sum()), 1))
        return gpytorch.distributions.MultivariateNormal(mean, self.covariance(factors))

    def covariance(self, factors: list[Any]) -> Any:
        return MaskedLinearOperator(KroneckerProductLinearOperator(*factors), self.observed, self.observed)


class PlainExactGP(LatentKroneckerExactGP):
    """The same model without use of the grid: a dense matrix over the observed cells."""

    def covariance(self, factors: list[Any]) -> Any:
        first, second = torch.unravel_index(torch.nonzero(self.observed).flatten(), [len(x) for x in self.coords])
        dense = [factor.to_dense() for factor in factors]
        return DenseLinearOperator(dense[0][first][:, first] * dense[1][second][:, second])


class PaperRecipe:
    """The paper's fit, step by step.

    coords: two arrays (p, d) and (q, d')
    values: (p, q), with NaN where nothing was observed
    kernels: one per factor
    """

    model_class: type[LatentKroneckerExactGP] = LatentKroneckerExactGP

    def __init__(self, coords: list[np.ndarray], values: np.ndarray, kernels: list[Kernel], seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.coords = [torch.as_tensor(x, dtype=torch.float32).reshape(len(x), -1) for x in coords]
        self.observed = torch.as_tensor(np.isfinite(values)).flatten()
        self.y = torch.as_tensor(values, dtype=torch.float32).flatten()[self.observed]
        kernels = [copy.deepcopy(kernel).float() for kernel in kernels]
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.model = self.model_class(self.coords, kernels, self.y, self.observed, likelihood)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        self.objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model)

    def step(self, max_iterations: int = MAX_ITERATIONS) -> tuple[float, float]:
        """Take one step of Adam. Returns its loss and its seconds."""
        began = time.perf_counter()
        with paper_settings(max_iterations):
            self.optimizer.zero_grad()
            loss = -self.objective(self.model(self.coords[0]), self.y)
            loss.backward()
            self.optimizer.step()
        return float(loss.detach()), time.perf_counter() - began

    @torch.no_grad()
    def sample(self, num_samples: int) -> Tensor:
        """Pathwise samples of the latent function at every cell, (num_samples, p q)."""
        # The prior is the same with and without the grid, and is drawn with the Cholesky factors of its two factors. In
        # single precision, smooth kernels are too far from positive definite for any reasonable jitter.
        kernels = [copy.deepcopy(kernel).double() for kernel in self.model.kernels]
        exact = [kernel(x.double()).to_dense() for kernel, x in zip(kernels, self.coords, strict=True)]
        with paper_settings():
            first, second = (psd_safe_cholesky(factor).float() for factor in exact)
        factors = [factor.float() for factor in exact]
        normals = torch.randn(num_samples, len(first), len(second))
        prior = (first @ normals @ second.mT).flatten(1)
        constant, noise = self.model.mean_module.constant, self.model.likelihood.noise
        seen = constant + prior[:, self.observed] + noise.sqrt() * torch.randn(num_samples, len(self.y))
        with paper_settings():
            covariance = self.model.likelihood(self.model(self.coords[0])).lazy_covariance_matrix
            weights = torch.zeros(num_samples, len(self.observed))
            weights[:, self.observed] = covariance.solve((self.y - seen).mT.contiguous()).mT
        moved = factors[0] @ weights.view(num_samples, len(first), len(second)) @ factors[1]
        return constant + prior + moved.flatten(1)

    @torch.no_grad()
    def iterations_of_step(self) -> int:
        """The iterations of conjugate gradients that the next step would take, run as linear_operator runs them.

        One probe stands for all: the others would take about as many.
        """
        with paper_settings():
            covariance = self.model.likelihood(self.model(self.coords[0])).lazy_covariance_matrix
            solve, preconditioner, _ = covariance._preconditioner()
            probe = preconditioner.zero_mean_mvn_samples(1).mT
            r = torch.cat([(self.y - self.model.mean_module.constant)[:, None], probe], dim=1)
            r, shares = r / r.norm(dim=0), torch.tensor([1.0, PROBES]) / (1 + PROBES)
            z = solve(r)
            p, inner = z, (z * r).sum(dim=0)
            for k in range(MAX_ITERATIONS):
                q = covariance._matmul(p)
                r = r - or_zero(inner, (p * q).sum(dim=0)) * q
                if not bool(torch.isfinite(r).all()):
                    raise ArithmeticError(
                        f"conjugate gradients broke down after {k} iterations; they cannot be counted"
                    )
                if k >= LEAST_ITERATIONS and float(shares @ r.norm(dim=0)) < TOLERANCE:
                    return k + 1
                z = solve(r)
                before, inner = inner, (z * r).sum(dim=0)
                p = z + or_zero(inner, before) * p
        return MAX_ITERATIONS

    def move_towards(self, optimum: dict[str, list[float]], distance: float) -> None:
        """Move every raw parameter by at most `distance` towards a raw `optimum` of the same model in lkgp."""
        names = {"mean_module.raw_constant": "mean.raw_constant"}
        for name, parameter in self.model.named_parameters():
            key = names.get(name, name)
            goal = torch.tensor(optimum[key], dtype=parameter.dtype).view(parameter.shape)
            if name.endswith("raw_noise"):
                # The lower bound of the noise is 1e-6 in lkgp and 1e-4 in GPyTorch.
                noise = torch.nn.functional.softplus(goal) + 1e-6
                goal = torch.log(torch.expm1((noise - 1e-4).clamp(min=1e-6)))
            shift = goal - parameter.data
            parameter.data += shift.clamp(-distance, distance) if math.isfinite(distance) else shift


def or_zero(above: Tensor, below: Tensor) -> Tensor:
    """A quotient, or zero where the divisor is nearly zero, as linear_operator divides."""
    return torch.where(below < SMALLEST_DIVISOR, 0.0, above / below)


class PlainRecipe(PaperRecipe):
    """The same steps for the iterative exact GP without use of the grid."""

    model_class = PlainExactGP
