"""The model: a sum of products of kernels, a mean and a noise. It knows neither data nor solvers."""

from collections.abc import Sequence
from functools import reduce

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import Observations
from lkgp.linalg.kronecker import CrossKronecker, LatentKronecker, OperatorFactory
from lkgp.model.mean import ConstantMean, Mean
from lkgp.model.noise import Noise, as_noise
from lkgp.model.term import Term


class LatentKroneckerGP(nn.Module):
    """f ~ GP(mean, k_1 x k_2 x ... x k_d), observed with Gaussian noise.

    kernels: one GPyTorch kernel per factor, used unchanged (parameters, priors and constraints)
    mean: a number fixes a constant mean; None learns one, starting at zero; or a `Mean`
    noise: the initial value of a learned noise variance; or a GaussianLikelihood with its own priors and constraints;
        or a `Noise`
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        *,
        mean: float | Mean | None = None,
        noise: float | GaussianLikelihood | Noise = 0.05,
    ) -> None:
        super().__init__()
        self.terms: Sequence[Term] = nn.ModuleList([Term(kernels)])  # type: ignore[assignment]
        self.mean = mean if isinstance(mean, Mean) else ConstantMean(mean)
        self.noise = as_noise(noise)

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels of the first term, one per factor."""
        return self.terms[0].kernels

    # Noise and mean

    @property
    def likelihood(self) -> GaussianLikelihood:
        """The likelihood, if the noise is one learned variance."""
        return self.noise.likelihood

    def noise_variance(self) -> Tensor:
        """s^2, a scalar, if the noise is one learned variance."""
        return self.noise.variance

    def noise_diagonal(self, data: Observations) -> Tensor:
        """The diagonal of D, (n,)."""
        return self.noise.diagonal(data)

    def log_scatter(self, data: Observations) -> Tensor:
        """The part of the log density that the means do not carry, a scalar; see `Noise.log_scatter`."""
        return self.noise.log_scatter(data)

    def residuals(self, data: Observations) -> Tensor:
        """r = y - mean, (n,)."""
        return data.values - self.mean.of(data)

    # Covariance

    def structures(self, grid: PartialGrid) -> tuple[str, ...]:
        """The most suitable kind of factor for each axis, term by term."""
        return tuple(kind for term in self.terms for kind in term.structures(grid.coords))

    def covariance(
        self,
        data: Observations,
        structures: Sequence[str] | None = None,
        operators: OperatorFactory = LatentKronecker,
    ) -> LatentKronecker:
        """A = P (sum over terms of K_1 (x) ... (x) K_d) P^T + D over the observed cells, n x n.

        structures: the kinds of the factors, term by term; by default the most suitable ones
        operators: the class or function that makes A
        """
        kinds = self.structures(data.grid) if structures is None else tuple(structures)
        width, factors = len(data.grid.coords), []
        for t, term in enumerate(self.terms):
            factors += term.factors(data.grid.coords, kinds[t * width : (t + 1) * width])
        return operators(*factors, self.noise_diagonal(data), grid=data.grid, num_terms=len(self.terms))

    def cross_covariance(self, grid: PartialGrid, coords: Sequence[Tensor]) -> CrossKronecker:
        """The covariance of every cell of the product of `coords` with the observed cells, N' x n."""
        pairs = list(enumerate(zip(coords, grid.coords, strict=True)))
        return CrossKronecker(
            [[term.cross_factor(k, new, old) for k, (new, old) in pairs] for term in self.terms], grid
        )

    def prior_variance(self, coords: Sequence[Tensor]) -> Tensor:
        """k(x, x) at every cell of the product of `coords`, (n'_1, ..., n'_d)."""
        return torch.stack([term.variance(coords) for term in self.terms]).sum(dim=0)

    def largest_variance(self, coords: Sequence[Tensor]) -> Tensor:
        """A bound of k(x, x) on the product of `coords`, a scalar: the largest of each factor of each term."""
        terms = [[term.largest_variance(k, x) for k, x in enumerate(coords)] for term in self.terms]
        return torch.stack([reduce(torch.mul, factors) for factors in terms]).sum()

    # Priors

    def log_prior(self) -> Tensor:
        """Sum of the log densities of all priors on the hyperparameters, a scalar."""
        like = next(self.parameters())
        total = torch.zeros((), dtype=like.dtype, device=like.device)
        for module in self.modules():  # visits each module once, even a kernel shared by several factors
            for prior, closure, _ in getattr(module, "_priors", {}).values():
                if prior is not None:
                    total = total + prior.log_prob(closure(module)).sum()
        return total
