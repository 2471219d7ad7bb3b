"""One term of the covariance: a product of kernels, one per factor."""

from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from lkgp.errors import InputError
from lkgp.linalg.factors import Factor, structure_for
from lkgp.model.distances import use_exact_distances
from lkgp.model.kernels import KernelFunction, check_is_kernel, evaluate, evaluate_diagonal, is_stationary


class Term(nn.Module):
    """The product kernel k_1 x k_2 x ... x k_d.

    kernels: one GPyTorch kernel per factor, used unchanged (parameters, priors and constraints)
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        super().__init__()
        if len(kernels) == 0:
            raise InputError("no kernels were given; give one per factor.")
        for k, kernel in enumerate(kernels):
            check_is_kernel(kernel, k)
            use_exact_distances(kernel)
        self.kernels: Sequence[Kernel] = nn.ModuleList(kernels)  # type: ignore[assignment]

    def structure(self, k: int, coords: Tensor) -> str:
        """The most suitable kind of factor for axis k over the points `coords` (n_k, d_k)."""
        return structure_for(KernelFunction(self.kernels[k]), coords)

    def structures(self, coords: Sequence[Tensor]) -> tuple[str, ...]:
        """The most suitable kind of factor for every axis."""
        return tuple(self.structure(k, x) for k, x in enumerate(coords))

    def factor(self, k: int, coords: Tensor, structure: str = "dense") -> Factor:
        """K_k over its points `coords` (n_k, d_k), (n_k, n_k)."""
        if structure not in Factor.kinds:
            raise InputError(f"unknown factor structure {structure!r}; choose one of {', '.join(Factor.kinds)}.")
        return Factor.kinds[structure].of(KernelFunction(self.kernels[k]), coords)

    def factors(self, coords: Sequence[Tensor], structures: Sequence[str] | None = None) -> list[Factor]:
        """K_1, ..., K_d over their points."""
        kinds = self.structures(coords) if structures is None else structures
        if len(kinds) != len(self.kernels):
            raise InputError(
                f"{len(kinds)} structures were given for {len(self.kernels)} factors; give one per factor."
            )
        return [self.factor(k, x, kind) for k, (x, kind) in enumerate(zip(coords, kinds, strict=True))]

    def cross_factor(self, k: int, points: Tensor, coords: Tensor) -> Tensor:
        """Covariances of `points` (n'_k, d_k) with the points `coords` (n_k, d_k) of factor k, (n'_k, n_k)."""
        return evaluate(self.kernels[k], points, coords)

    def factor_variance(self, k: int, points: Tensor) -> Tensor:
        """k_k(x, x) at `points` (n'_k, d_k), (n'_k,)."""
        return evaluate_diagonal(self.kernels[k], points)

    def largest_variance(self, k: int, points: Tensor) -> Tensor:
        """The largest of k_k(x, x) over `points` (n'_k, d_k), a scalar."""
        # A stationary kernel has the same variance everywhere.
        return self.factor_variance(k, points[:1] if is_stationary(self.kernels[k]) else points).max()

    def variance(self, coords: Sequence[Tensor]) -> Tensor:
        """k(x, x) at every cell of the product of `coords`, (n'_1, ..., n'_d)."""
        variance = torch.ones((), dtype=coords[0].dtype, device=coords[0].device)
        for k, points in enumerate(coords):
            variance = variance[..., None] * self.factor_variance(k, points)
        return variance
