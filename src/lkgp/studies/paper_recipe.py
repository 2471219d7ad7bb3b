"""The settings of Lin et al. (2025) in GPyTorch and linear_operator, as a peer to compare with.

float32, Adam with rate 0.1 from GPyTorch's default hyperparameters, conjugate gradients to a residual of 0.01, pivoted Cholesky of
rank 100 and 10 probes.
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

# Random vectors for the log-determinant, and the residual at which conjugate gradients stop, as a mean over all columns.
PROBES, TOLERANCE, MAX_ITERATIONS = 10, 0.01, 1000
# They do not stop before this, for the sake of the log-determinant.
LEAST_ITERATIONS = 20


@contextmanager
def paper_settings(max_iterations: int = MAX_ITERATIONS) -> Iterator[None]:
    """GPyTorch's global settings as the paper sets them; fewer iterations only to find out what one takes."""
    settings = gpytorch.settings
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of conjugate gradients that end at their limit
        for context in (
            settings.fast_computations(
                covar_root_decomposition=True, log_prob=True, solves=True
            ),  # BoTorch would change them
            settings.max_cholesky_size(1),
            settings.cg_tolerance(TOLERANCE),
            settings.max_preconditioner_size(100),
            settings.min_preconditioning_size(1),
            settings.num_trace_samples(PROBES),
            settings.max_cg_iterations(max_iterations),
        ):
            stack.enter_context(context)
        yield


class LatentKroneckerExactGP(gpytorch.models.ExactGP):
    """An exact GP whose covariance is a masked Kronecker product of two kernels."""

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
    """The same model without use of the grid: one dense matrix over the observed cells."""

    def covariance(self, factors: list[Any]) -> Any:
        first, second = torch.unravel_index(torch.nonzero(self.observed).flatten(), [len(x) for x in self.coords])
        dense = [factor.to_dense() for factor in factors]
        return DenseLinearOperator(dense[0][first][:, first] * dense[1][second][:, second])


class PaperRecipe:
    """The fit, step by step.

    coords: two arrays (p, d) and (q, d'); values: (p, q), NaN where nothing was observed
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
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model)

    def step(self, max_iterations: int = MAX_ITERATIONS) -> tuple[float, float]:
        """One step of Adam. Returns its loss and its seconds."""
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
        # Both kinds of model have the same prior, which is drawn by the Cholesky factors of its two factors.
        # In single precision, such factors of smooth kernels are too far from positive definite for any reasonable jitter.
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
        """The iterations that a step takes here: preconditioned conjugate gradients in float32 as linear_operator runs them.

        One probe stands for all: the others would take as many.
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
                        f"conjugate gradients broke down after {k} iterations, so they cannot be counted"
                    )
                if k >= LEAST_ITERATIONS and float(shares @ r.norm(dim=0)) < TOLERANCE:
                    return k + 1
                z = solve(r)
                before, inner = inner, (z * r).sum(dim=0)
                p = z + or_zero(inner, before) * p
        return MAX_ITERATIONS

    def move_towards(self, optimum: dict[str, list[float]], distance: float) -> None:
        """Move every raw parameter by `distance`, or less if it is there, towards a raw `optimum` of the same model in lkgp."""
        names = {"mean_module.raw_constant": "mean.raw_constant"}
        for name, parameter in self.model.named_parameters():
            key = names.get(name, name)
            goal = torch.tensor(optimum[key], dtype=parameter.dtype).view(parameter.shape)
            if name.endswith("raw_noise"):
                # lkgp's noise has a lower bound than GPyTorch's 1e-4.
                noise = torch.nn.functional.softplus(goal) + 1e-6
                goal = torch.log(torch.expm1((noise - 1e-4).clamp(min=1e-6)))
            shift = goal - parameter.data
            parameter.data += shift.clamp(-distance, distance) if math.isfinite(distance) else shift


def or_zero(above: Tensor, below: Tensor) -> Tensor:
    """A quotient, or zero where the divisor is nearly that, as linear_operator divides."""
    return torch.where(below < 1e-10, 0.0, above / below)


class PlainRecipe(PaperRecipe):
    """The same steps for the iterative exact GP without latent structure."""

    model_class = PlainExactGP
