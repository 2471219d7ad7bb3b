"""Whether the diagonal is enough to whiten a system in the eigenbasis, or a dense block pays."""

import numpy as np
import pytest
import torch
from cases import Case

from lkgp import Plan, Spectral, condition
from lkgp.inference import Purpose
from lkgp.linalg.leading_modes import cheapest_block
from lkgp.linalg.whitening_choice import TRIAL_CONDITION, leading_rectangle

# Most rows are complete, so that the leading modes see hardly any gap.
FEW_CUT = Case("few cut curves", (60, 30), "few curves", columns=(3, 1), kinds=("rbf", "rbf"), noise=1e-5)
ALL_CUT = Case("cut curves", (60, 30), "curves", columns=(3, 1), kinds=("rbf", "rbf"), noise=1e-5)
AT_RANDOM = Case("random gaps", (60, 30), "random", columns=(3, 1), kinds=("rbf", "rbf"), noise=1e-2)


def trial_condition(space):
    """The condition number of the leading modes, whitened by the diagonal alone."""
    modes = leading_rectangle(space.exact.transform.bases, torch.device("cpu"))
    whole = space.exact.latent(torch.eye(space.size, dtype=torch.float64))
    root = whole.diagonal().sqrt()
    eigenvalues = torch.linalg.eigvalsh((whole / root / root[:, None])[modes][:, modes])
    return float(eigenvalues[-1] / eigenvalues[0])


@pytest.mark.parametrize("case", [FEW_CUT, ALL_CUT], ids=lambda case: case.name)
def test_cut_curves_take_few_iterations(case):
    """However few of them are cut: with the diagonal alone, the mean takes hundreds of iterations."""
    model, data = case.build().requires_grad_(False), case.data()
    system = Spectral().system(model, data, columns=64)
    if case is FEW_CUT:
        assert trial_condition(system.space) < TRIAL_CONDITION
    rhs = torch.as_tensor(case.oracle().values)[:, None]
    solution = system.solve(rhs, Purpose.MEAN)
    assert solution.converged
    assert solution.iterations <= 60
    posterior = condition(model, data, Plan(Spectral(), ""))
    points = [torch.as_tensor(x) for x in case.coords]
    np.testing.assert_allclose(posterior.mean(points).numpy(), case.oracle().mean_at(case.coords), atol=1e-3)


def test_random_gaps_need_no_block():
    """A pilot solve finds that the diagonal is enough, although the bound on the condition number asks for a block."""
    case = AT_RANDOM
    system = Spectral().system(case.build().requires_grad_(False), case.data(), columns=64)
    diagonal, shapes = system.space.whitening.diagonal.square().sort(descending=True).values, ((60, 30), (60, 7))
    product = system.space.exact.transform.multiplications
    assert cheapest_block(diagonal, product, *shapes, 8000, 64) > 0
    assert len(system.space.whitening.modes) == 0
    solution = system.solve(torch.as_tensor(case.oracle().values)[:, None], Purpose.MEAN)
    assert solution.converged
    exact = np.linalg.solve(case.oracle().matrix, case.oracle().values)
    np.testing.assert_allclose(solution.values[:, 0].numpy(), exact, atol=1e-4 * np.abs(exact).max())


def test_a_block_may_hold_all_modes():
    """Where they are few, a factorisation of all of them costs less than any iteration saves."""
    for size in (225, 1300):
        diagonal = torch.full((size,), 1e6, dtype=torch.float64)
        assert cheapest_block(diagonal, 1e6, (400, 50), (size // 15, 15), 8000, 64) == size
        assert cheapest_block(diagonal, 1e6, (400, 50), (size // 15, 15), 100, 64) in (0, 100)
