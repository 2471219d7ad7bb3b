"""The randomised Nystrom approximation."""

from dataclasses import dataclass

import torch

from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.preconditioners.base import LowRankPlusDiagonal, PreconditionerSettings
from lkgp.settings import check_positive


@dataclass(frozen=True)
class Nystrom(PreconditionerSettings):
    """The randomised Nystrom approximation of P K P^T from products with `rank` random vectors."""

    rank: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, rank=self.rank)

    def build(
        self, operator: LatentKronecker, *, columns: int = 20, product: float | None = None
    ) -> LowRankPlusDiagonal:
        noise = operator.noise_diagonal()
        n = len(noise)
        generator = torch.Generator(noise.device).manual_seed(self.seed)
        shape = (n, min(self.rank, n))
        normals = torch.randn(shape, generator=generator, dtype=noise.dtype, device=noise.device)
        test, _ = torch.linalg.qr(normals)
        sketch = operator.product(test) - noise[:, None] * test
        # K ~ Y (T^T Y)^-1 Y^T. A shift of the size of the rounding error keeps the core positive definite.
        shift = torch.finfo(noise.dtype).eps * n**0.5 * torch.linalg.matrix_norm(sketch)
        sketch = sketch + shift * test
        core = test.mT @ sketch
        eigenvalues, basis = torch.linalg.eigh((core + core.mT) / 2)
        keep = eigenvalues > shift
        root = sketch @ (basis[:, keep] / eigenvalues[keep].sqrt())
        return LowRankPlusDiagonal(root, noise)
