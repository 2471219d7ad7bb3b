"""Numbers of the cost model that represent factorisations, and passes over arrays, beside products of matrices."""

from collections.abc import Callable

import torch
from torch import Tensor

from calibration.comparing import Effort, Found, median_of, ratio, seconds
from calibration.simulated import Problem, curves, field
from lkgp.inference import Direct, Method, Probes, Spectral, direct, log_likelihood
from lkgp.inference.costs import FIT_COLUMNS, OUTSIDE, PlanningProblem

# Columns of triangular solves that are many, and the numbers of unknowns.
MANY_COLUMNS, UNKNOWNS = 256, (1000, 2000, 3000)
PRODUCT_SIZE = 800
CURVE_NOISE, FIELD_NOISE = 0.003, 0.1


def over_product(work: Callable[[Tensor], object], power: float, share: float, dtype: torch.dtype, e: Effort) -> Found:
    """The time of `work` with a triangular matrix of n unknowns over that of share n^power multiplications."""
    size, found = e.size(PRODUCT_SIZE), []
    square = torch.randn(size, size, dtype=dtype)
    for n in e.sizes(*UNKNOWNS):
        root = torch.eye(n, dtype=dtype) + torch.randn(n, n, dtype=dtype).tril() / n
        found.append(ratio(lambda m=root: work(m), lambda: square @ square, e) * size**3 / (share * n**power))
    return median_of(found)


def cholesky(effort: Effort) -> Found:
    # It reads only the lower triangle.
    return over_product(torch.linalg.cholesky, 3, 1 / 6, torch.float64, effort)


def inverse(effort: Effort) -> Found:
    return over_product(torch.cholesky_inverse, 3, 1 / 3, torch.float64, effort)


def substitution(effort: Effort) -> Found:
    """One triangular solve in float64."""

    def work(root: Tensor) -> Tensor:
        rhs = torch.ones(len(root), MANY_COLUMNS, dtype=root.dtype)
        return torch.linalg.solve_triangular(root, rhs, upper=False)

    return over_product(work, 2, MANY_COLUMNS / 2, torch.float64, effort)


def triangular(effort: Effort) -> Found:
    """A triangular solve and one with the transpose, in float32."""

    def work(root: Tensor) -> Tensor:
        rhs = torch.ones(len(root), MANY_COLUMNS, dtype=root.dtype)
        top = torch.linalg.solve_triangular(root, rhs, upper=False)
        return torch.linalg.solve_triangular(root.mT, top, upper=True)

    return over_product(work, 2, MANY_COLUMNS, torch.float32, effort)


def multiplications(problem: Problem, method: Method, effort: Effort) -> float:
    """Those that take as long as a likelihood with its gradient."""
    model, data = problem
    probes = None if method.exact else Probes.draw(data, FIT_COLUMNS, 0)
    size = effort.size(PRODUCT_SIZE)
    square = torch.randn(size, size, dtype=torch.float64)

    @torch.enable_grad()
    def likelihood() -> None:
        log_likelihood(model, data, method.for_fitting(), probes, value=method.exact).objective.backward()

    return seconds(likelihood, effort) / seconds(lambda: square @ square, effort) * size**3


def outside(effort: Effort) -> Found:
    """What a likelihood in the eigenbasis takes beyond its products, per cell and right-hand side."""
    problem = field(effort.size(500), effort.size(200), FIELD_NOISE)
    cost = Spectral().plan(PlanningProblem(*problem, fitting=True)).cost
    assert cost is not None
    numbers = (1 + FIT_COLUMNS) * problem[1].grid.num_cells
    beyond = multiplications(problem, Spectral(), effort) - (cost.multiplications - OUTSIDE * numbers)
    return f"{problem[1].grid.num_cells} cells", max(0.0, beyond / numbers)


def entries(effort: Effort) -> Found:
    """What a direct likelihood takes beyond its factorisation and products, per entry of the matrix."""
    problem = curves(effort.size(200), CURVE_NOISE)
    plan = Direct().plan(PlanningProblem(*problem, fitting=True))
    assert plan.cost is not None
    known = plan.cost.multiplications - direct.ENTRIES * plan.size**2
    beyond = multiplications(problem, plan.method, effort) - known
    return f"{plan.size} unknowns", max(0.0, beyond / plan.size**2)
