"""Compare predicted with counted iterations of solves that a filter along a long axis preconditions.

python scripts/filter_iterations.py

Every row is one made-up field: places x times, the kernel along time, the share that is missing. The prediction is that
of a plan, and the count that of conjugate gradients to a residual of 1e-6. Of PER_ROOT, the last column is the value
that would have been right.
"""

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, ScaleKernel

from lkgp import ConjugateGradients, KalmanFilter, LatentKroneckerGP, from_array, solve
from lkgp.inference.costs import PlanningProblem
from lkgp.inference.filter_costs import PER_ROOT, filter_cost, left_by_modes


def scaled(kernel: Kernel, variance: float) -> Kernel:
    found = ScaleKernel(kernel)
    found.outputscale = variance
    return found


def matern(nu: float, length: float) -> Kernel:
    found = MaternKernel(nu=nu)
    found.lengthscale = length
    return found


def cycle(period: float, keeps: float, smooth: float) -> Kernel:
    repeats = PeriodicKernel()
    repeats.period_length, repeats.lengthscale = period, smooth
    return repeats * matern(2.5, keeps)


# places, times, the kernel of weather, period, how long it keeps its shape, its variance, the noise, the missing share
CASES = [
    (10, 3000, 0.5, 12.0, 24.0, 500.0, 0.1, 0.01, 0.2),
    (10, 3000, 0.5, 12.0, 24.0, 5000.0, 0.1, 0.01, 0.2),
    (10, 3000, 1.5, 6.0, 24.0, 5000.0, 0.5, 0.1, 0.6),
    (30, 8000, 0.5, 40.0, 24.0, 2000.0, 0.1, 0.002, 0.2),
    (30, 8000, 2.5, 10.0, 365.0, 30000.0, 1.0, 0.05, 0.4),
    (1, 20000, 1.5, 20.0, 100.0, 3000.0, 0.3, 0.02, 0.3),
    (60, 4000, 0.5, 5.0, 50.0, 200.0, 0.2, 0.1, 0.1),
    (60, 4000, 0.5, 5.0, 50.0, 20000.0, 0.2, 0.001, 0.5),
]


def row(seed: int, case: tuple[int, int, float, float, float, float, float, float, float]) -> None:
    places, times, nu, memory, period, keeps, variance, noise, missing = case
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((places, times)) < missing, np.nan, rng.standard_normal((places, times)))
    data = from_array([rng.random((places, 2)), np.arange(float(times))[:, None]], y)
    along = scaled(matern(nu, memory), 0.5) + scaled(cycle(period, keeps, 1.0), variance)
    model = LatentKroneckerGP([matern(0.5, 1.0).double(), along.double()], noise=noise).double()
    problem, settings = PlanningProblem(model, data), KalmanFilter()
    _, predicted = filter_cost(problem, settings)
    left, _ = left_by_modes(problem, 1, settings.modes)
    with torch.no_grad():
        operator = model.covariance(data, problem.structures).detach()
    rhs = torch.as_tensor(rng.standard_normal((data.grid.num_observed, 1)))
    built = settings.build(operator)
    counted = solve(operator, rhs, ConjugateGradients(rtol=1e-6), preconditioner=built).iterations
    print(
        f"{places:3d} x {times:5d}, Matern-{nu:.1f} of {memory:.0f}, period {period:.0f} for {keeps:.0f}, "
        f"noise {noise}, {missing:.0%} missing: {built.modes.rank:4d} modes, left {left:7.1f}, "
        f"predicted {predicted:4.0f}, counted {counted:4d}, PER_ROOT {PER_ROOT * counted / predicted:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    for number, case in enumerate(CASES):
        row(number, case)
