"""The free hyperparameters of a model as one vector, in units that suit a search.

Output scales, length scales and noise variances are positive, and the log-likelihood is far closer to a parabola in
their logarithms than in GPyTorch's raw parameters: a length scale without influence goes to infinity in a few steps.
Parameters that GPyTorch keeps positive by a softplus are therefore represented by u = log softplus(raw); parameters
without a lower bound are represented by the raw parameter.
"""

import numpy as np
import torch
from gpytorch import Module
from gpytorch.constraints import GreaterThan
from torch import Tensor
from torch.nn.functional import softplus

from lkgp.model import LatentKroneckerGP

# To the last digit, softplus(x) is x above this value, and exp(x) below minus this value: exp(-36) is close to the
# rounding unit of float64.
LINEAR = 36.0


class FreeParameters:
    """All P entries of the parameters that require a gradient, in the order of the model."""

    def __init__(self, model: LatentKroneckerGP) -> None:
        self.tensors: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        positive = {id(p) for p in _kept_positive(model)}
        self.in_logs = np.concatenate(
            [np.zeros(0, bool), *(np.full(p.numel(), id(p) in positive) for p in self.tensors)]
        )

    def __len__(self) -> int:
        return len(self.in_logs)

    def get(self) -> np.ndarray:
        """The current values, (P,)."""
        raw = self._flat(self.tensors)
        return np.where(self.in_logs, log_softplus(raw), raw)

    def set(self, flat: np.ndarray) -> None:
        """Set the parameters of the model to `flat` (P,)."""
        raw = np.where(self.in_logs, inverse_log_softplus(flat), flat)
        start = 0
        for p in self.tensors:
            part = torch.as_tensor(raw[start : start + p.numel()], dtype=p.dtype, device=p.device)
            p.data.copy_(part.view(p.shape))
            start += p.numel()

    def scales(self) -> np.ndarray:
        """d raw / d flat at the current parameters, (P,)."""
        raw = self._flat(self.tensors)
        # u = log softplus(r), so dr/du = softplus(r) / sigmoid(r) = exp(u) (1 + exp(-r)).
        small = np.maximum(raw, -LINEAR)
        return np.where(
            self.in_logs, np.where(raw < -LINEAR, 1.0, np.exp(log_softplus(small)) * (1 + np.exp(-small))), 1.0
        )

    def gradient(self) -> np.ndarray:
        """The derivatives with respect to `flat` of the scalar that `backward` was called on, (P,)."""
        return self._flat([torch.zeros_like(p) if p.grad is None else p.grad for p in self.tensors]) * self.scales()

    def positions(self, tensor: Tensor) -> range:
        """The positions of the entries of a parameter in `flat`; empty if it is not free."""
        start = 0
        for p in self.tensors:
            if p is tensor:
                return range(start, start + p.numel())
            start += p.numel()
        return range(0)

    def clear_gradient(self) -> None:
        for p in self.tensors:
            p.grad = None

    @staticmethod
    def _flat(tensors: list[Tensor]) -> np.ndarray:
        return np.concatenate([np.zeros(0), *(t.detach().double().cpu().numpy().ravel() for t in tensors)])


def _kept_positive(model: LatentKroneckerGP) -> list[Tensor]:
    """The raw parameters r whose value is softplus(r), possibly plus a lower bound."""
    found = []
    for module in model.modules():
        if isinstance(module, Module):
            for name, p in module.named_parameters(recurse=False):
                constraint = module.constraint_for_parameter_name(name)
                if isinstance(constraint, GreaterThan) and _is_softplus(constraint._transform):
                    found.append(p)
    return found


def _is_softplus(transform: object) -> bool:
    return transform is softplus or (isinstance(transform, torch.nn.Softplus) and transform.beta == 1)


def log_softplus(raw: np.ndarray) -> np.ndarray:
    """log log(1 + exp(raw)), without loss of accuracy."""
    middle = np.clip(raw, -LINEAR, LINEAR)
    return np.where(raw < -LINEAR, raw, np.log(np.where(raw > LINEAR, raw, np.log1p(np.exp(middle)))))


def inverse_log_softplus(flat: np.ndarray) -> np.ndarray:
    """The raw parameter r with log softplus(r) = flat."""
    value = np.exp(np.clip(flat, -LINEAR, 700.0))
    return np.where(flat < -LINEAR, flat, np.where(value > LINEAR, value, np.log(np.expm1(np.minimum(value, LINEAR)))))
