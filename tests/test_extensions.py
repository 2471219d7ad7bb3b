"""A new way of inference, factor kind, noise, mean and optimiser: each is one class that is written nowhere but here.

`CONTRIBUTING.md` says what each must contain. File formats and comparators have tests of the same kind beside their
own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import SOME
from curves_data import curves
from gpytorch.kernels import ConstantKernel, MaternKernel, ScaleKernel

import lkgp
from lkgp import LKGP, Direct, ObservationSpace, Plan, condition
from lkgp.fitting import Optimizer, fit
from lkgp.inference import Method, System
from lkgp.inference.base import GradientWeights, LatentSolution
from lkgp.inference.gradients import quadratic_weights
from lkgp.linalg import Factor, LatentKronecker
from lkgp.model import LatentKroneckerGP, Mean, Noise
from lkgp.settings import Settings
from lkgp.solvers import Reason, Solution


@dataclass(frozen=True)
class DenseInference(Method):
    """Everything with the n x n matrix."""

    num_samples: int = 500

    exact = True

    def plan(self, problem):
        return Plan(self, f"dense: {problem.grid.num_observed} unknowns")

    def system(self, model, data, *, columns, operators=LatentKronecker):
        return DenseSystem(model, data, operators)


class DenseSystem(System):
    def __init__(self, model, data, operators):
        super().__init__(model, data, operators)
        with torch.no_grad():
            self.matrix = self.operator.rows(torch.arange(data.grid.num_observed)).double()
            self.factors = model.terms[0].factors(data.grid.coords)

    def solve_once(self, rhs, purpose, start, goal):
        values = torch.linalg.solve(self.matrix, rhs)
        latent = self.data.grid.scatter(rhs - self.noise[:, None] * values).mT
        return LatentSolution(values, torch.zeros_like(rhs[0]), 1, 0, Reason.CONVERGED, 0.0, latent)

    def residual_goal(self, rhs, purpose):
        return 1e-8

    def correction(self, residual, goal):
        values = torch.linalg.solve(self.matrix, residual)
        return Solution(values, torch.zeros_like(residual[0]), 0, 0, Reason.CONVERGED, goal)

    def log_determinant(self, seed, num_probes=None, steps=None, max_memory=None):
        return torch.linalg.slogdet(self.matrix)[1], 0.0

    @property
    def needs_probes(self):
        return False

    def exact_trace(self):
        """The eigenpairs of A^-1 as quadratic forms: tr(A^-1 dA) = sum_j v_j^T dA v_j / l_j."""
        values, vectors = torch.linalg.eigh(self.matrix)
        return self.quadratic_weights(vectors, (1 / values).tolist())

    def quadratic_weights(self, x, shares: Sequence[float]) -> GradientWeights:
        return quadratic_weights([self.factors], self.data.grid, x, shares)


def test_a_new_way_of_inference_is_one_class_and_its_system(tmp_path):
    X, T, Y, _ = curves()
    ours, direct = LKGP(solver=DenseInference()).fit([X, T], Y), LKGP(solver=Direct()).fit([X, T], Y)
    assert "dense: " in ours.report_.method
    assert ours.report_.log_likelihood == pytest.approx(direct.report_.log_likelihood, abs=0.05)
    np.testing.assert_allclose(ours.predict()[0], direct.predict()[0], atol=1e-2)
    ours.save(tmp_path / "model.lkgp")
    assert LKGP.load(tmp_path / "model.lkgp").solver == DenseInference()


class OnesFactor(Factor):
    """c times a matrix of ones, known by c."""

    kind = "ones"

    def __init__(self, value, count):
        super().__init__(value, count)
        self.value, self.count = value, count

    @classmethod
    def of(cls, function, coords):
        return cls(function(coords[:1], coords[:1])[0], torch.ones(len(coords), dtype=coords.dtype))

    @classmethod
    def suits(cls, function, coords):
        return isinstance(function.kernel, ConstantKernel)

    def rows_at(self, index):
        return self.value.expand(len(index), len(self.count))

    def rounded(self, dtype):
        return OnesFactor(self.value.to(dtype), self.count.to(dtype))

    def pull_back(self, left, right):
        return (left.sum(dim=0) * right.sum(dim=0)).sum()[None]

    def inner(self, weights):
        return (weights * self.value).sum()

    def _matmul(self, rhs):
        return self.value * rhs.sum(dim=-2, keepdim=True).expand(rhs.shape)

    def _size(self):
        return torch.Size((len(self.count), len(self.count)))

    def _transpose_nonbatch(self):
        return self

    def _diagonal(self):
        return self.value.expand(len(self.count))


@pytest.fixture
def without_ones_afterwards():
    yield
    Factor.kinds.pop("ones", None)


@pytest.mark.parametrize("solver", [Direct(), ObservationSpace()], ids=["direct", "observation space"])
def test_a_new_kind_of_factor_is_one_class(solver, without_ones_afterwards):
    """A common course of all curves: constant over X. The same numbers as with a dense factor."""
    Factor.kinds["ones"] = OnesFactor
    X, T, Y, _ = curves()

    def fitted(first):
        gp = LKGP([first, ScaleKernel(MaternKernel())], solver=solver, noise=0.3)
        return gp.fit([X, T], Y, optimize=not isinstance(solver, ObservationSpace))

    ones = fitted(ConstantKernel())
    assert ones.report_.structures == ("ones", "dense")
    Factor.kinds.pop("ones")
    plain = fitted(ConstantKernel())
    assert plain.report_.structures == ("dense", "dense")
    for ours, theirs in zip(ones.predict(), plain.predict(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


class NoisePerRow(Noise):
    """A variance of its own for every point of the first factor."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.raw_levels = torch.nn.Parameter(torch.full((rows,), -3.0, dtype=torch.float64))

    def describe(self):
        return {"rows": self.rows}

    def measurement_variance(self, data):
        return self.raw_levels.exp()[data.grid.axis_index[0]]

    def at(self, coords):
        # by the position of the row: this toy knows no new rows
        return self.raw_levels.exp().view(-1, *[1] * (len(coords) - 1))

    def levels(self):
        return [self.raw_levels]


def test_a_new_noise_is_one_class(tmp_path):
    rng = np.random.default_rng(0)
    X, T = np.linspace(0, 1, 6), np.linspace(0, 1, 60)
    true = np.array([0.05, 0.05, 0.05, 0.5, 0.5, 0.5])
    Y = np.sin(6 * T) + X[:, None] + true[:, None] * rng.normal(size=(6, 60))
    Y[rng.random(Y.shape) < 0.1] = np.nan
    gp = LKGP(noise=NoisePerRow(6)).fit([X, T], Y)
    told = gp.predict(observation_noise=True)[1] ** 2 - gp.predict()[1] ** 2
    np.testing.assert_allclose(np.sqrt(told[:, 0]), true, rtol=0.35)
    one = LKGP().fit([X, T], Y)
    assert gp.report_.log_likelihood > one.report_.log_likelihood + 50
    gp.save(tmp_path / "model.lkgp")
    again = LKGP.load(tmp_path / "model.lkgp")
    np.testing.assert_array_equal(again.predict(observation_noise=True)[1], gp.predict(observation_noise=True)[1])


class SlopeMean(Mean):
    """A slope along the second factor."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def describe(self):
        return {}

    def of(self, data):
        return self.slope * data.grid.coords[1][data.grid.axis_index[1], 0]

    def at(self, coords):
        return self.slope * coords[1][:, 0]

    def at_rows(self, columns):
        return self.slope * columns[1][:, 0]


def test_a_new_mean_is_one_class():
    case = SOME[0]
    data = case.data()
    steep = data._replace(values=data.values + 3.0 * data.grid.coords[1][data.grid.axis_index[1], 0])
    model = LatentKroneckerGP(case.kernels(), mean=SlopeMean(), noise=case.noise).double()
    for kernel in model.kernels:
        kernel.requires_grad_(False)
    from_zero, from_slope = (fit(model, each, method=Direct()) for each in (data, steep))
    difference = from_slope.model.mean.slope.item() - from_zero.model.mean.slope.item()
    assert difference == pytest.approx(3.0, abs=0.05)


def test_a_new_mean_is_extrapolated_and_saved(tmp_path):
    X, T = np.linspace(0, 1, 8), np.linspace(0, 1, 12)
    Y = 5 * T + 0.1 * np.sin(9 * X)[:, None] + 0.01 * np.random.default_rng(0).normal(size=(8, 12))
    Y[2:4, 5:] = np.nan
    gp = LKGP(mean=SlopeMean()).fit([X, T], Y)
    flat = LKGP().fit([X, T], Y)
    later = [X, np.array([100.0])]
    assert np.abs(gp.predict(later)[0] - 500).max() < 50 < np.abs(flat.predict(later)[0] - 500).max()
    gp.save(tmp_path / "model.lkgp")
    again = LKGP.load(tmp_path / "model.lkgp")
    assert isinstance(again.mean, SlopeMean)
    np.testing.assert_array_equal(again.predict(later)[0], gp.predict(later)[0])


@dataclass(frozen=True)
class OneGradientStep(Optimizer):
    length: float = 1e-3

    def search(self, objective):
        here = objective.evaluate()
        direction = here.gradient / np.linalg.norm(here.gradient)
        objective.at(objective.parameters.get() + self.length * direction)
        return True, "one step was taken"


def test_a_new_optimiser_is_one_class():
    X, T, Y, _ = curves()
    gp = LKGP(optimizer=OneGradientStep()).fit([X, T], Y)
    assert gp.report_.fit == "one step was taken"
    assert gp.report_.history[1] > gp.report_.history[0]
    assert Settings.known["OneGradientStep"] is OneGradientStep


@pytest.mark.parametrize(
    "room", ["inference", "linalg/factors", "linalg/preconditioners", "fitting/optimizers", "model"]
)
def test_a_new_file_is_found_without_editing_another(room, tmp_path):
    """A copy of the library with one more file that registers a record of settings, or a kind, of its own."""
    copied = tmp_path / "lkgp"
    shutil.copytree(Path(lkgp.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    new = "from lkgp.settings import Settings\n\n\nclass BrandNew(Settings):\n    pass\n"
    (copied / room / "brand_new.py").write_text(new)
    check = "import lkgp; from lkgp.settings import Settings; assert 'BrandNew' in Settings.known"
    command = [sys.executable, "-W", "ignore", "-c", check]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})


class CountedKronecker(LatentKronecker):
    """The operator A, which counts its products: a stand-in for one whose products are shared out."""

    products = 0

    def product(self, rhs):
        CountedKronecker.products += rhs.shape[-1]
        return super().product(rhs)


def test_another_operator_is_passed_in_and_changes_no_number():
    case = SOME[0]
    method = ObservationSpace(preconditioner=None, num_samples=20)
    plain, counted = (
        condition(case.build(), case.data(), Plan(method, ""), operators=operators)
        for operators in (LatentKronecker, CountedKronecker)
    )
    assert CountedKronecker.products > 0
    torch.testing.assert_close(plain.weights, counted.weights)
    before = CountedKronecker.products
    fitted = [
        fit(case.build(), case.data(), method=method, optimizer=OneGradientStep(), operators=operators)
        for operators in (LatentKronecker, CountedKronecker)
    ]
    assert CountedKronecker.products > before
    for ours, theirs in zip(*(result.model.parameters() for result in fitted), strict=True):
        torch.testing.assert_close(ours, theirs)
