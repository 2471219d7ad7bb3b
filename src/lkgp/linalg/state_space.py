"""Matern processes of half-integer smoothness as stochastic differential equations, in closed form.

The state is (f, f' / a, f'' / a^2, ...) with p = nu + 1/2 entries and a = sqrt(2 nu) / length scale. It obeys
s(t + d) = A(a d) s(t) + noise, with A(u) = exp(F u) = e^-u (I + N u + N^2 u^2 / 2), N = F + I, N^p = 0.
"""

import torch
from torch import Tensor

# F of the equation s' = F s + noise, in units of time in which a = 1, and the stationary covariance of s for variance 1
DRIFTS = {
    1: [[-1.0]],
    2: [[0.0, 1.0], [-1.0, -2.0]],
    3: [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, -3.0, -3.0]],
}
STATIONARY = {
    1: [[1.0]],
    2: [[1.0, 0.0], [0.0, 1.0]],
    3: [[1.0, 0.0, -1 / 3], [0.0, 1 / 3, 0.0], [-1 / 3, 0.0, 1.0]],
}


def stationary(order: int, like: Tensor) -> Tensor:
    """The covariance of the state at one time, for variance 1, (p, p)."""
    return torch.tensor(STATIONARY[order], dtype=like.dtype, device=like.device)


def transitions(order: int, elapsed: Tensor) -> Tensor:
    """A(u) for elapsed times u >= 0 in units of 1 / a, (..., p, p)."""
    eye = torch.eye(order, dtype=elapsed.dtype, device=elapsed.device)
    nilpotent = torch.tensor(DRIFTS[order], dtype=elapsed.dtype, device=elapsed.device) + eye
    u = elapsed[..., None, None]
    return torch.exp(-u) * (eye + u * nilpotent + u.square() / 2 * (nilpotent @ nilpotent))


def innovations(order: int, elapsed: Tensor) -> Tensor:
    """Roots of the covariance of the noise after elapsed times u >= 0, for variance 1, (..., p, p)."""
    known = stationary(order, elapsed)
    step = transitions(order, elapsed)
    values, vectors = torch.linalg.eigh(known - step @ known @ step.mT)
    # For short times, the covariance is a small difference of large numbers; what is negative is rounding.
    return vectors * values.clamp(min=0.0).sqrt()[..., None, :]


def scan(order: int, times: Tensor, added: Tensor) -> Tensor:
    """s_i = A(t_i - t_{i-1}) s_{i-1} + added_i for ascending times (n,) in units of 1 / a and added (n, p, c).

    The times are in float64 also where the rest is not, because they are differences of large numbers.

    By doubling: after k rounds, the sum over the last 2^k entries is known, because A(u) A(v) = A(u + v).
    """
    state, shift = added, 1
    while shift < len(times):
        earlier = transitions(order, times[shift:] - times[:-shift]).to(state.dtype) @ state[:-shift]
        state = torch.cat([state[:shift], state[shift:] + earlier])
        shift *= 2
    return state
