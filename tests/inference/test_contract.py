"""The contract of inference: one suite, against the dense oracle, over every concrete way."""

import math

import numpy as np
import pytest
import torch
from cases import CASES, SOME, name
from dense_gradients import dense_log_likelihood, gradients
from inference_cases import SAMPLES, TIGHT

from lkgp import LKGP, Plan, condition
from lkgp.inference import Probes, Purpose, log_likelihood, methods
from lkgp.inference.costs import PlanningProblem

every_way = pytest.mark.parametrize("method", TIGHT.values(), ids=TIGHT)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_concrete_way_is_in_this_suite():
    library = {kind for kind in methods() if kind.__module__.startswith("lkgp.")}
    assert library == {type(method) for method in TIGHT.values()}


@every_way
@pytest.mark.parametrize("case", CASES, ids=name)
def test_solves_are_those_of_the_oracle(case, method):
    system, matrix = method.system(case.build(), case.data(), columns=8), case.oracle().matrix
    rhs = normal(len(matrix), 3)
    exact = np.linalg.solve(matrix, rhs.numpy())
    start = normal(3, case.data().grid.num_cells, seed=1)  # far from the truth, which must do no harm
    for purpose in (Purpose.LIKELIHOOD, Purpose.MEAN, Purpose.SAMPLES):
        for begin in (None, start):
            solution = system.solve(rhs, purpose, begin)
            assert solution.converged
            np.testing.assert_allclose(solution.values.numpy(), exact, atol=1e-6 * np.abs(exact).max())
    # A posterior's residuals are those of A itself, per column.
    found = system.solve(rhs, Purpose.MEAN)
    true = np.linalg.norm(rhs.numpy() - matrix @ found.values.numpy(), axis=0) / np.linalg.norm(rhs.numpy(), axis=0)
    np.testing.assert_allclose(found.residuals.numpy(), true, rtol=0.5, atol=1e-12)
    rough = system.solve(rhs, Purpose.CURVATURE).values.numpy()
    error = np.einsum("ic,ij,jc->c", rough - exact, matrix, rough - exact)
    assert (error <= 0.1**2 * 1.01 * np.einsum("ic,ij,jc->c", exact, matrix, exact)).all()


@every_way
@pytest.mark.parametrize("case", SOME, ids=name)
def test_zero_and_nonsense_are_told_apart(case, method):
    system, n = method.system(case.build(), case.data(), columns=8), case.data().grid.num_observed
    nothing = system.solve(torch.zeros(n, 2, dtype=torch.float64), Purpose.MEAN)
    assert nothing.converged
    assert bool((nothing.values == 0).all())
    assert not system.solve(torch.full((n, 1), math.nan, dtype=torch.float64), Purpose.MEAN).converged


@every_way
@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_log_determinant_is_within_its_stated_error(case, method):
    system, matrix = method.system(case.build(), case.data(), columns=8), case.oracle().matrix
    value, error = system.log_determinant(3, num_probes=200, steps=len(matrix))
    assert abs(float(value) - np.linalg.slogdet(matrix)[1]) <= 4.5 * error + 1e-7
    if method.exact or not system.needs_probes:
        assert error == 0
    assert 0 <= system.truncation <= 1e-9


@every_way
@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_gradient_is_exact_with_probes_of_the_whole_space(case, method, monkeypatch):
    monkeypatch.setattr("lkgp.inference.observation_space.JITTER", 1e-9)
    model, data = case.build(), case.data()
    n, cells = data.grid.num_observed, data.grid.num_cells
    whole = math.sqrt(n + cells) * torch.eye(n + cells, dtype=torch.float64)
    found = log_likelihood(model, data, method, Probes(whole[:cells], whole[cells:]), value=method.exact)
    assert found.trusted
    dense = dense_log_likelihood(model, case, data)
    torch.testing.assert_close(gradients(found.objective, model), gradients(dense, model), atol=2e-5, rtol=2e-5)
    if method.exact:
        assert float(found.objective.detach()) == pytest.approx(float(dense.detach()), abs=1e-8)


@every_way
@pytest.mark.parametrize("case", SOME, ids=name)
def test_data_drawn_from_the_prior_have_its_covariance(case, method):
    """All entries within 5.5 standard errors of the oracle's; and the functions at the observed cells are the data
    less noise.
    """
    system, matrix = method.system(case.build(), case.data(), columns=8), case.oracle().matrix
    n, cells, count = len(matrix), case.data().grid.num_cells, 6000
    normals, noise = normal(cells, count), normal(n, count, seed=1)
    data, functions = system.prior_data(normals, noise)
    found = (data @ data.mT / count).numpy()
    diagonal = matrix.diagonal()
    assert (np.abs(found - matrix) <= 5.5 * np.sqrt((np.outer(diagonal, diagonal) + matrix**2) / count)).all()
    observed = functions[:, case.data().grid.index].mT
    torch.testing.assert_close(data, observed + system.noise.sqrt()[:, None] * noise)


@every_way
@pytest.mark.parametrize("case", SOME, ids=name)
def test_the_posterior_is_that_of_the_oracle_on_and_off_the_grid(case, method):
    posterior, oracle = condition(case.build(), case.data(), Plan(method, "")), case.oracle()
    assert posterior.solution.converged
    for new in (case.coords, case.new_coords()):
        points = [torch.as_tensor(x) for x in new]
        np.testing.assert_allclose(posterior.mean(points).numpy(), oracle.mean_at(new), atol=1e-6)
        exact = oracle.variance_at(new)
        error = np.abs(posterior.variance(points).numpy() - exact)
        # a variance from s samples has a relative standard error of at most sqrt(2 / s)
        stated = 0.0 if posterior.variance_error == 0 else 5 * math.sqrt(2 / SAMPLES)
        assert (error <= stated * exact + 1e-7).all()
        np.testing.assert_allclose(posterior.covariance(points).numpy(), oracle.covariance_at(new), atol=1e-6)


@every_way
def test_a_plan_says_how_and_survives_a_file(method, tmp_path):
    case = SOME[0]
    problem = PlanningProblem(case.build(), case.data(), fitting=True)
    found = method.plan(problem)
    assert type(found.method) is type(method)
    assert found.why
    assert not found.obstacle
    assert found.cost is None or (found.cost.multiplications > 0 and found.cost.memory > 0)
    gp = LKGP(case.kernels(), solver=method, standardize=False).fit(case.coords, case.y, optimize=False)
    gp.save(tmp_path / "model.lkgp")
    again = LKGP.load(tmp_path / "model.lkgp")
    assert again.solver == method
    np.testing.assert_array_equal(gp.predict()[0], again.predict()[0])


@every_way
def test_a_copy_for_fitting_is_no_tighter(method):
    loose = method.for_fitting().for_search(5, 1.0, 1.0).for_gain(10.0)
    assert type(loose) is type(method)
    for field in ("rtol", "tolerance"):
        assert getattr(loose, field, 1.0) >= getattr(method, field, 1.0)
