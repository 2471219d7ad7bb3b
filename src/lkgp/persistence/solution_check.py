"""Check that a solution from a file belongs to its model, at a few cells: a full check would take a product with A.

At an observed cell i, the equations A a = y - m with A = P K P^T + D say

    k(x_i, X) a + D_i a_i  =  y_i - m
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lkgp.data.readers import Observations
from lkgp.model import LatentKroneckerGP
from lkgp.persistence.damage import DamageError
from lkgp.solvers import Solution

# The number of cells at which the equations are checked, spread over the observed ones, besides those with the smallest
# and the largest noise.
CHECKED_CELLS = 8
# How many times larger than stated a residual may be at a single cell, and how many roundings an error may have.
# Residuals are stated for all cells together, so a correct solution keeps well below.
SLACK, ROUNDINGS = 10.0, 1e4
# The relative residual that a converged solve may have without stating it: settings of users can be looser than this,
# but those solves state their residuals.
LEAST_RESIDUAL = 1e-5
# Standard deviations that no normal number exceeds, and the largest value whose square is still finite.
MOST_DEVIATIONS, MOST_REACH = 40.0, 1e150


@torch.no_grad()
def check_solution(model: LatentKroneckerGP, data: Observations, solution: Solution, draws: Sequence[Solution]) -> None:
    """Refuse a model that is not finite over its own grid, or whose weights do not solve its equations.

    model, data: in the model's units; solution: of A a = y - m, (n, 1); draws: of A v = f + e, each (n, num)
    """
    grid, weights = data.grid, solution.values[:, 0].double()
    variance = largest_variance(model, data)
    noise, right = model.noise_diagonal(data).double(), model.residuals(data).double()
    if not bool(torch.isfinite(noise).all()) or not bool((noise > 0).all()):
        raise DamageError("its noise is not positive everywhere")
    # |k(x, X) a| <= max k(x, x) |a|_1: the largest value that a prediction can have
    reach = variance * float(weights.abs().sum())
    if not max(reach, float(right.abs().max())) <= MOST_REACH:
        raise DamageError("its weights or its mean are too large for its data")
    cells = torch.arange(CHECKED_CELLS).mul(grid.num_observed).div(CHECKED_CELLS, rounding_mode="floor")
    # A damaged number of measurements, or a damaged noise, is most likely the smallest or the largest.
    cells = torch.cat([cells, noise.argmin()[None], noise.argmax()[None]])
    points = [x[index[cells]] for x, index in zip(grid.coords, grid.axis_index, strict=True)]
    left = sum_over_terms(model, data, points, weights) + noise[cells] * weights[cells]
    residual = max(float(solution.residuals.max()), LEAST_RESIDUAL) if solution.converged else math.inf
    rounding = ROUNDINGS * torch.finfo(data.values.dtype).eps * (reach + float((noise * weights).abs().max()))
    error = float((left - right[cells]).abs().max())
    # written so that NaN is refused
    if not error <= SLACK * residual * float(right.norm()) + rounding:
        raise DamageError("its weights do not solve the equations of its model")
    # |v| <= |f + e| / (smallest eigenvalue of A), where f and e have standard deviations of at most sqrt(max k(x, x))
    # and sqrt(max D), and the smallest eigenvalue is at least min D
    size = math.sqrt(grid.num_observed * (variance + float(noise.max())))
    bound = SLACK * MOST_DEVIATIONS * size / float(noise.min())
    for one in draws:
        most = min(bound if one.converged else math.inf, MOST_REACH / max(variance, 1.0))
        if not float(one.values.double().norm(dim=0).max()) <= most:
            raise DamageError("the weights of its draws are too large for its kernels")


def largest_variance(model: LatentKroneckerGP, data: Observations) -> float:
    """The largest prior variance on the grid."""
    for term in model.terms:
        variances = [term.factor_variance(k, x) for k, x in enumerate(data.grid.coords)]
        if not all(bool((torch.isfinite(v) & (v >= 0)).all()) for v in variances):
            raise DamageError("its kernels are not finite on its grid")
    return float(model.largest_variance(data.grid.coords))


def sum_over_terms(model: LatentKroneckerGP, data: Observations, points: list[Tensor], weights: Tensor) -> Tensor:
    """k(x_i, X) a at single cells, (m,); points: their coordinates, (m, d_k) for every factor."""
    total = weights.new_zeros(len(points[0]))
    for term in model.terms:
        crosses = [term.cross_factor(k, x, data.grid.coords[k]).double() for k, x in enumerate(points)]
        # the covariance of cell i with every observed cell: the product over the factors, one cell at a time
        for i in range(len(total)):
            product = weights
            for cross, index in zip(crosses, data.grid.axis_index, strict=True):
                product = product * cross[i, index]
            total[i] += product.sum()
    return total
