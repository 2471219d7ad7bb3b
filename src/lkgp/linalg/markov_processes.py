"""Sums of Matern processes of half-integer smoothness along an axis, joined to one process with a state.

Each is a stochastic differential equation; see `state_space`. Side by side, their states form one state x whose future
depends on its past through the present only, and f = e^T x.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ScaleKernel
from torch import Tensor

from lkgp.linalg.state_space import stationary, transitions


@dataclass(frozen=True)
class Process:
    """variance m(rate |t - t'|) with the Matern function m of order p = nu + 1/2."""

    order: int
    variance: float
    rate: float


def components(kernel: Kernel) -> list[tuple[int, Tensor, Tensor]] | None:
    """p = nu + 1/2, the variance and a = sqrt(2 nu) / length scale of each part of a sum; None if it is no such sum."""
    if isinstance(kernel, ScaleKernel):
        parts = components(kernel.base_kernel)
        return None if parts is None else [(p, kernel.outputscale * variance, a) for p, variance, a in parts]
    if isinstance(kernel, AdditiveKernel):
        every = [components(part) for part in kernel.kernels]
        return None if any(part is None for part in every) else [one for part in every for one in part or ()]
    if type(kernel) is not MaternKernel or kernel.nu not in (0.5, 1.5, 2.5) or kernel.lengthscale.numel() != 1:
        return None
    a = (2 * kernel.nu) ** 0.5 / kernel.lengthscale.double().reshape(())
    return [(int(kernel.nu + 0.5), torch.ones_like(a), a)]


def processes_of(function: Any, columns: int) -> tuple[Process, ...]:
    """The processes of which a `CovarianceFunction` over so many columns is the covariance; none if it is not."""
    found = components(function.kernel) if columns == 1 else None
    return tuple(Process(p, float(variance.detach()), float(a.detach())) for p, variance, a in found or ())


@dataclass(frozen=True, eq=False)
class JointProcess:
    """The processes side by side, with p numbers in their states together."""

    parts: Sequence[Process]

    @property
    def size(self) -> int:
        return sum(part.order for part in self.parts)

    @property
    def readout(self) -> Tensor:
        """e, (p,)."""
        return torch.cat([torch.eye(part.order, dtype=torch.float64)[0] for part in self.parts])

    @property
    def stationary(self) -> Tensor:
        """The covariance of the state at one time, (p, p)."""
        like = torch.zeros((), dtype=torch.float64)
        return torch.block_diag(*[part.variance * stationary(part.order, like) for part in self.parts])

    def transitions(self, elapsed: Tensor) -> Tensor:
        """The expected change of the state after elapsed times >= 0, (..., p, p)."""
        found = elapsed.new_zeros(*elapsed.shape, self.size, self.size)
        start = 0
        for part in self.parts:
            stop = start + part.order
            found[..., start:stop, start:stop] = transitions(part.order, part.rate * elapsed)
            start = stop
        return found

    def covariance(self, apart: Tensor) -> Tensor:
        """The covariance of f at two times so far apart, in their shape."""
        return torch.einsum("i,...ij,j->...", self.readout @ self.stationary, self.transitions(apart).mT, self.readout)
