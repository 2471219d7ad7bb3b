"""The numbers of the cost model: times beside those of a matrix product, iterations, and memory."""

import math
from dataclasses import replace
from statistics import mean

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from calibration.comparing import Effort, Found, median_of, ratio, seconds
from calibration.simulated import (
    bytes_of_curves,
    bytes_of_field,
    curves,
    field,
    in_own_process,
    iterations,
    prior_data,
)
from lkgp.inference import Direct, ObservationSpace, Purpose, Spectral, choice, log_likelihood, spectrum_estimate
from lkgp.inference.costs import PlanningProblem
from lkgp.inference.spectral import SpectralSystem
from lkgp.inference.spectrum_estimate import FactorSpectrum
from lkgp.linalg.kronecker import LatentKronecker
from lkgp.linalg.leading_modes import block_multiplications, masked_gram
from lkgp.linalg.transform import Transform
from lkgp.model import LatentKroneckerGP
from lkgp.posterior import condition

# What "some seconds", "0.06 s" and "a quarter of a second" mean in the comments beside the constants.
PLAN_SECONDS, FIT_SECONDS, POSTERIOR_SECONDS = 5.0, 0.06, 0.25
# The noise variance of learning curves, about; and a small and a large one of fields.
CURVE_NOISE, FIELD_NOISE = 0.003, (0.01, 0.1)


def eigh(effort: Effort) -> Found:
    """The time of an eigendecomposition over that of a product of two such matrices."""
    matrices = [torch.randn(n, n, dtype=torch.float64) for n in effort.sizes(400, 1000, 1500)]
    symmetric = [matrix + matrix.mT for matrix in matrices]
    return median_of([ratio(lambda m=m: torch.linalg.eigh(m), lambda m=m: m @ m, effort) for m in symmetric])


def most_planned_points(effort: Effort) -> Found:
    """How many points a factor has whose spectrum takes `PLAN_SECONDS`; that time grows with their cube."""
    points, kernel = effort.size(2500), RBFKernel().double()
    kernel.lengthscale = 1e-5  # of full rank, so that it takes longest
    # places; points of a line are estimated from some of them
    coords = torch.linspace(0, 1, points, dtype=torch.float64)[:, None].expand(-1, 2)
    term, largest = LatentKroneckerGP([kernel]).double().terms[0], spectrum_estimate.MOST_PLANNED_POINTS
    taken = seconds(lambda: FactorSpectrum(term, 0, coords).kept(1e-6), effort)
    return f"{taken * (largest / points) ** 3:.1f} s at {largest}", points * (PLAN_SECONDS / taken) ** (1 / 3)


class CountedKronecker(LatentKronecker):
    """A that counts its products in float64."""

    count = 0

    def product(self, rhs: Tensor) -> Tensor:
        CountedKronecker.count += rhs.dtype == torch.float64
        return super().product(rhs)


class CountedTransform(Transform):
    """A transform that counts itself in both directions."""

    count = 0

    def up(self, weights: Tensor) -> Tensor:
        self.count += 1
        return super().up(weights)

    def down(self, cells: Tensor) -> Tensor:
        self.count += 1
        return super().down(cells)


def checks(effort: Effort) -> Found:
    """Products in float64, and pairs of transforms, that one solve takes beside its iterations in float32."""
    found = []
    for method in (Spectral(), ObservationSpace()):
        for setting, purpose in ((method.for_fitting(), Purpose.LIKELIHOOD), (method, Purpose.SAMPLES)):
            problem = curves(effort.size(200), CURVE_NOISE)
            system = setting.system(*problem, columns=16, operators=CountedKronecker)
            rhs, functions = prior_data(system)
            counted, CountedKronecker.count = CountedTransform([]), 0
            if isinstance(system, SpectralSystem):
                counted = CountedTransform(system.space.exact.transform.bases)
                system.space.exact = replace(system.space.exact, transform=counted)
            with torch.no_grad():
                system.solve(rhs, purpose, functions)
            found.append(CountedKronecker.count + counted.count / 2)
    words = "spectral fit {:g}, samples {:g}; observation space fit {:g}, samples {:g}".format(*found)
    return words, mean(found[:2])


def solve_arrays(effort: Effort) -> Found:
    """Bytes of a likelihood with its gradient, over those of the grid for every right-hand side."""
    places, steps, probes = effort.size(1000), effort.size(100), 64
    methods = [Spectral(num_probes=probes), ObservationSpace(num_probes=probes)]
    found = [in_own_process(bytes_of_field, places, steps, FIELD_NOISE[0], method) for method in methods]
    arrays = [size / (8 * places * steps * (1 + probes)) for size in found]
    return f"spectral {arrays[0]:.1f}, observation space {arrays[1]:.1f}", max(arrays)


def direct_arrays(effort: Effort) -> Found:
    """Bytes of a likelihood with its gradient, over those of the matrix that is factorised."""
    rows = effort.size(200)
    size = Direct().plan(PlanningProblem(*curves(rows, CURVE_NOISE), fitting=True)).size
    arrays = in_own_process(bytes_of_curves, rows, CURVE_NOISE, Direct()) / (8 * size**2)
    return f"of {size} x {size}", arrays


def reading(effort: Effort) -> Found:
    """The time of a product with one column, over that of one column among many."""
    n, columns = effort.size(8000), 256
    matrix, rhs = torch.randn(n, n), torch.randn(n, columns)
    return f"at {n} points", columns * ratio(lambda: matrix @ rhs[:, :1], lambda: matrix @ rhs, effort)


def forming(effort: Effort) -> Found:
    """The time of an entry of the dense matrix of the observations over that of a multiplication in float64."""
    model, data = curves(effort.size(200), CURVE_NOISE)
    n, size = data.grid.num_observed, effort.size(800)
    matrix, cells = torch.randn(size, size, dtype=torch.float64), torch.arange(n)
    factors = [factor.rounded(torch.float32) for factor in model.terms[0].factors(data.grid.coords)]
    noise = torch.full((n,), CURVE_NOISE)
    operator = LatentKronecker(*factors, noise, grid=data.grid)
    each = ratio(lambda: operator.rows(cells), lambda: matrix @ matrix, effort)
    return f"for {n} observations", each * size**3 / n**2


def iterations_per_root(effort: Effort) -> Found:
    """Iterations over the root of the largest entry of the diagonal of H that the block leaves."""
    found = []
    for rows, noise in ((100, 0.0015), (200, 0.003), (300, 0.003), (300, 0.03)):
        for system, count in iterations(curves(effort.size(rows), noise), Spectral()):
            whitening = system.space.whitening
            left = whitening.diagonal.square().index_fill(0, whitening.modes, 1.0)
            found.append(count / math.sqrt(float(left.max())))
    return fit_and_samples(found)


def fit_and_samples(found: list[float]) -> Found:
    """The mean of what fits take, the even entries, and of what samples take, the odd ones."""
    fit, samples = mean(found[::2]), mean(found[1::2])
    return f"fit {fit:.2g}, samples {samples:.2g}", (fit + samples) / 2


def block_weight(effort: Effort) -> Found:
    """The time of a multiplication of the block over that of a multiplication of a product in float32."""
    columns = 16
    space = Spectral().system(*curves(effort.size(300), CURVE_NOISE), columns=columns).space
    exact, weights, found = space.exact, torch.randn(space.size, columns), []
    for size in effort.sizes(500, 1000, 2000):
        modes = exact.scale.topk(min(space.size, size)).indices.sort().values

        def block(modes: Tensor = modes) -> Tensor:
            bases = exact.transform.bases
            return torch.linalg.cholesky(masked_gram(bases, exact.scale, exact.precisions, space.shape, modes))

        work = block_multiplications(space.shape, [s.rank for s in space.spectra], len(modes))
        product = columns * exact.transform.multiplications
        found.append(ratio(block, lambda: space.fast.latent(weights), effort) * product / work)
    return median_of(found)


def iterations_at_random(effort: Effort) -> Found:
    """Iterations less what the law of Marchenko and Pastur adds to them for many modes beside few observations."""
    found = []
    for noise in FIELD_NOISE:
        for system, count in iterations(field(effort.size(500), effort.size(200), noise), Spectral()):
            diagonal = system.space.whitening.diagonal.square()
            crowding = math.sqrt(float((diagonal > 2).sum()) / system.data.grid.num_observed)
            found.append(count * (1 - crowding) / (1 + crowding))
    return fit_and_samples(found)


def seconds_per_multiplication(effort: Effort, fitting: bool) -> float:
    """Of a factorisation with the gradient of the likelihood, or with the variance of all cells, as the plan counts."""
    model, data = curves(effort.size(200), CURVE_NOISE)
    plan = Direct().plan(PlanningProblem(model, data, fitting=fitting))
    assert plan.cost is not None

    def posterior() -> Tensor:
        return condition(model, data, plan).variance(data.grid.coords)

    @torch.enable_grad()
    def likelihood() -> None:
        log_likelihood(model, data, plan.method.for_fitting()).objective.backward()

    return seconds(likelihood if fitting else posterior, effort) / plan.cost.multiplications


def cheap_fit(effort: Effort) -> Found:
    each = seconds_per_multiplication(effort, fitting=True)
    return f"{choice.CHEAP_FIT * each:.2g} s", FIT_SECONDS / each


def cheap_posterior(effort: Effort) -> Found:
    each = seconds_per_multiplication(effort, fitting=False)
    return f"{choice.CHEAP_POSTERIOR * each:.2g} s", POSTERIOR_SECONDS / each
