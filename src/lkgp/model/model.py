"""The model: one kernel a factor, a mean and a noise. It holds no data and knows no solver."""

import math
import warnings
from collections.abc import Sequence
from typing import Literal, get_args

import gpytorch
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    HammingIMQKernel,
    IndexKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor, nn

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations
from lkgp.errors import InputError
from lkgp.linalg import CrossKronecker, Factor, LatentKronecker, LazyFactor, LowRankFactor, ToeplitzFactor
from lkgp.linalg.eigenbasis import FactorBasis

Structure = Literal["dense", "toeplitz", "lazy", "low_rank"]

STATIONARY = (RBFKernel, MaternKernel, PeriodicKernel, RQKernel, CosineKernel, PiecewisePolynomialKernel)
# Kernels that read coordinates as the numbers, or the marks, of categories.
DISCRETE = (IndexKernel, HammingIMQKernel)
# Below this many points a dense factor multiplies faster than the FFT of a Toeplitz one.
TOEPLITZ_PAYS = 4096
# The least noise variance that is learned, in units of the variance of the data.
NOISE_FLOOR = 1e-6


def default_kernels(dims: Sequence[int]) -> list[Kernel]:
    """Matern-5/2 over every factor, a length scale a column; one output scale, on the first. `dims`: d_k, columns of each."""
    kernels: list[Kernel] = [MaternKernel(nu=2.5, ard_num_dims=dim) for dim in dims]
    return [ScaleKernel(kernels[0]), *kernels[1:]]


class LatentKroneckerGP(nn.Module):
    """f ~ GP(mean, k_1 x k_2 x ... x k_d), observed with Gaussian noise.

    kernels: one GPyTorch kernel a factor, used as they are (parameters, priors and constraints)
    mean: a number fixes it; None learns a constant, starting at zero
    noise: where the learned noise variance starts, or a GaussianLikelihood with priors and constraints of its own
    """

    def __init__(
        self, kernels: Sequence[Kernel], *, mean: float | None = None, noise: float | GaussianLikelihood = 0.05
    ) -> None:
        super().__init__()
        if len(kernels) == 0:
            raise InputError("at least one kernel is needed, one a factor.")
        for k, kernel in enumerate(kernels):
            check_is_kernel(kernel, k)
        self.kernels = nn.ModuleList(kernels)
        self.mean = ConstantMean()
        if mean is not None:
            self.mean.constant.requires_grad_(False).fill_(float(mean))
        self.likelihood = noise if isinstance(noise, GaussianLikelihood) else learned_noise(noise)

    def noise_variance(self) -> Tensor:
        """s^2, a scalar."""
        return self.likelihood.noise.squeeze()

    def noise_diagonal(self, data: Observations) -> Tensor:
        """The diagonal of D, (n,): the known variance of every cell, or s^2 over the number of rows that made its value."""
        if data.noise_variance is not None:
            return data.noise_variance
        return self.noise_variance() / data.counts

    def log_scatter(self, data: Observations) -> Tensor:
        """What measurements add to the log density of their means, a scalar; W is their sum of squares about a mean of c of them:

        log prod_j N(y_j; f, s^2)  =  log N(mean; f, s^2 / c)  -  1/2 ((c - 1) log(2 pi s^2) + log c + W / s^2)
        """
        if data.scatter is None:
            return torch.zeros_like(data.values[0])
        noise = self.noise_variance()
        more = data.num_measured - len(data.values)
        return -0.5 * (more * torch.log(2 * math.pi * noise) + data.counts.log().sum() + data.scatter.sum() / noise)

    def residuals(self, data: Observations) -> Tensor:
        """r = y - mean, (n,)."""
        return data.values - self.mean.constant

    def factor(self, k: int, coords: Tensor, structure: Structure = "dense") -> Factor:
        """K_k over its points `coords` (n_k, d_k), (n_k, n_k)."""
        kernel = self.kernels[k]
        if structure == "lazy":
            return LazyFactor(coords, coords, evaluate=lambda a, b: evaluate(kernel, a, b))
        if structure == "toeplitz":
            return ToeplitzFactor(evaluate(kernel, coords, coords[:1])[:, 0])
        matrix = evaluate(kernel, coords)
        if structure == "dense":
            return matrix
        basis = FactorBasis.of(matrix)
        return LowRankFactor(basis.root.to(matrix.dtype))

    def cross_factor(self, k: int, points: Tensor, coords: Tensor) -> Tensor:
        """Covariances of other `points` (n'_k, d_k) with the points `coords` (n_k, d_k) of factor k, (n'_k, n_k)."""
        return evaluate(self.kernels[k], points, coords)

    def structures(self, grid: PartialGrid) -> tuple[Structure, ...]:
        """Which kind of factor serves each axis best."""
        return tuple(
            "toeplitz" if len(x) >= TOEPLITZ_PAYS and is_stationary(kernel) and is_regular(x) else "dense"
            for kernel, x in zip(self.kernels, grid.coords, strict=True)
        )

    def covariance(self, data: Observations, structures: Sequence[Structure] | None = None) -> LatentKronecker:
        """A = P (K_1 (x) ... (x) K_d) P^T + D over the observed cells, n x n."""
        kinds = structures if structures is not None else self.structures(data.grid)
        unknown = [kind for kind in kinds if kind not in get_args(Structure)]
        if unknown or len(kinds) != len(self.kernels):
            raise InputError(
                f"structures must be one of {get_args(Structure)} for each of the {len(self.kernels)} factors, not {kinds}."
            )
        factors = [self.factor(k, x, kind) for k, (x, kind) in enumerate(zip(data.grid.coords, kinds, strict=True))]
        one_noise = data.noise_variance is None and bool((data.counts == 1).all())
        noise = self.noise_variance() if one_noise else self.noise_diagonal(data)
        return LatentKronecker(*factors, noise, grid=data.grid)

    def cross_covariance(self, grid: PartialGrid, coords: Sequence[Tensor]) -> CrossKronecker:
        """The covariance of every cell of the product of `coords` with the observed cells, N' x n."""
        crosses = tuple(
            self.cross_factor(k, new, old) for k, (new, old) in enumerate(zip(coords, grid.coords, strict=True))
        )
        return CrossKronecker(crosses, grid)

    def prior_variance(self, coords: Sequence[Tensor]) -> Tensor:
        """k(x, x) at every cell of the product of `coords`, (n'_1, ..., n'_d)."""
        variance = torch.ones((), dtype=coords[0].dtype, device=coords[0].device)
        for kernel, points in zip(self.kernels, coords, strict=True):
            variance = variance[..., None] * kernel(points, diag=True)
        return variance

    def log_prior(self) -> Tensor:
        """The sum of the log densities of all priors on the hyperparameters, a scalar."""
        total = torch.zeros((), dtype=self.mean.constant.dtype, device=self.mean.constant.device)
        for module in self.modules():  # each once, also a kernel that several factors share
            for prior, closure, _ in getattr(module, "_priors", {}).values():
                if prior is not None:
                    total = total + prior.log_prob(closure(module)).sum()
        return total


def learned_noise(start: float, floor: float = NOISE_FLOOR) -> GaussianLikelihood:
    """A noise variance that is learned from `start`, bounded below by `floor`, or far under a start that is not far above that."""
    if isinstance(start, bool) or not isinstance(start, (int, float)) or not start > 0:
        raise InputError(f"the noise variance must be a positive number, not {start!r}.")
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(min(floor, 1e-3 * start)))
    # Written in float64: GPyTorch would round the start to float32.
    likelihood.double()
    likelihood.noise = torch.tensor(float(start), dtype=torch.float64)
    return likelihood


def evaluate(kernel: Kernel, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """Kernel values between `rows` (a, d) and `columns` (b, d), dense, (a, b); among the rows if no columns are given."""
    with gpytorch.settings.lazily_evaluate_kernels(False), warnings.catch_warnings():
        # torch says so of the sparse matrices inside `IndexKernel`; the caller can do nothing about it.
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return kernel(rows, rows if columns is None else columns).to_dense()


def is_stationary(kernel: Kernel) -> bool:
    """Whether k(x, x') depends on x - x' only, as far as the class of the kernel tells."""
    if isinstance(kernel, ScaleKernel):
        return is_stationary(kernel.base_kernel)
    if isinstance(kernel, (AdditiveKernel, ProductKernel)):
        return all(is_stationary(part) for part in kernel.kernels)
    return isinstance(kernel, STATIONARY)


def is_regular(coords: Tensor) -> bool:
    """Whether the points (n_k, d_k) are one column of equally spaced numbers."""
    if coords.shape[1] != 1 or len(coords) < 3:
        return False
    steps = coords[1:, 0] - coords[:-1, 0]
    spread = (steps - steps.mean()).abs().max()
    return bool(spread <= 1e-9 * steps.mean().abs())


def is_discrete(kernel: Kernel) -> bool:
    """Whether the kernel, or a part of it, reads its coordinates as categories."""
    return any(isinstance(part, DISCRETE) for part in kernel.modules())


def discrete_columns(kernel: Kernel, coords: Tensor) -> Tensor:
    """Which columns of the coordinates (n_k, d_k) are read as categories, (d_k,)."""
    found = torch.zeros(coords.shape[1], dtype=torch.bool, device=coords.device)
    for part in kernel.modules():
        if isinstance(part, DISCRETE):
            found[slice(None) if part.active_dims is None else part.active_dims.to(found.device)] = True
    return found


def check_is_kernel(kernel: object, factor: int) -> None:
    """Refuse what is not one GPyTorch kernel."""
    if not isinstance(kernel, Kernel):
        raise InputError(f"the kernel of factor {factor} is a {type(kernel).__name__}; give a gpytorch kernel.")
    if len(kernel.batch_shape):
        raise InputError(
            f"the kernel of factor {factor} has batch shape {tuple(kernel.batch_shape)}; give one without."
        )


def check_kernel(kernel: Kernel, coords: Tensor, factor: int) -> None:
    """Refuse a kernel that does not fit the coordinates (n_k, d_k) of its factor."""
    check_is_kernel(kernel, factor)
    columns = coords.shape[1]
    for part in kernel.modules():
        if not isinstance(part, Kernel):
            continue
        if part.active_dims is not None and int(part.active_dims.max()) >= columns:
            raise InputError(
                f"the kernel of factor {factor} reads column {int(part.active_dims.max())}, but that factor has {columns} column(s); "
                "change its active_dims."
            )
        seen = columns if part.active_dims is None else len(part.active_dims)
        if part.ard_num_dims not in (None, 1, seen):
            raise InputError(
                f"the kernel of factor {factor} has ard_num_dims={part.ard_num_dims}, but that factor has {seen} column(s); make it {seen}."
            )
        if isinstance(part, IndexKernel):
            tasks = part.covar_factor.shape[-2]
            codes = coords if part.active_dims is None else coords[:, part.active_dims]
            if (
                codes.shape[1] != 1
                or bool((codes != codes.round()).any())
                or bool((codes < 0).any())
                or bool((codes >= tasks).any())
            ):
                raise InputError(
                    f"factor {factor} has an IndexKernel of {tasks} categories, so its coordinates must be one column of whole numbers "
                    f"from 0 to {tasks - 1}."
                )
