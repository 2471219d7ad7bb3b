"""The partial grid, its readers, scalings and scores."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lkgp import InputError, PartialGrid, from_array, from_table, metrics
from lkgp.data.grid import first_repeat
from lkgp.data.scaling import Scaling
from lkgp.data.subsets import restrict


@st.composite
def grids(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    cells = draw(st.lists(st.booleans(), min_size=math.prod(shape), max_size=math.prod(shape)))
    cells[draw(st.integers(0, len(cells) - 1))] = True
    observed = torch.tensor(cells).view(shape)
    return PartialGrid(tuple(torch.arange(float(size)) for size in shape), observed)


@settings(deadline=None, max_examples=50)
@given(grids())
def test_gather_undoes_scatter(grid):
    values = torch.arange(1.0, grid.num_observed + 1)[:, None].repeat(1, 2)
    cells = grid.scatter(values, fill=-1.0)
    assert torch.equal(grid.gather(cells), values)
    assert torch.equal(cells[:, 0].view(grid.shape) > 0, grid.observed)
    flat = np.ravel_multi_index([axis.numpy() for axis in grid.axis_index], grid.shape)
    assert np.array_equal(flat, grid.index.numpy())


@settings(deadline=None, max_examples=30)
@given(grids(), st.integers(0, 10**6))
def test_a_table_of_the_observed_cells_in_any_order_is_the_same_grid(grid, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(grid.num_observed)
    columns = [axis.numpy()[order].astype(float) for axis in grid.axis_index]
    values = rng.normal(size=grid.num_observed)
    read = from_table(columns, values[order])
    for k, points in enumerate(read.grid.coords):
        assert points[:, 0].tolist() == sorted(set(columns[k].tolist()))
    # in C order the table's rows come back sorted as the grid's own
    assert np.array_equal(read.values.numpy(), values)


def test_repeated_rows_are_named_or_averaged():
    columns = [[0.0, 1.0, 0.0], [2.0, 2.0, 2.0]]
    with pytest.raises(InputError, match=r"rows 0 and 2 of the table belong to the same cell \(\[0\.0\], \[2\.0\]\)"):
        from_table(columns, [1.0, 5.0, 3.0])
    read = from_table(columns, [1.0, 5.0, 3.0], [0.2, 0.3, 0.6], duplicates="mean")
    assert read.values.tolist() == [2.0, 5.0]
    assert read.counts.tolist() == [2.0, 1.0]
    assert read.noise_variance.tolist() == pytest.approx([0.2, 0.3])  # (0.2 + 0.6) / 2^2
    with pytest.raises(InputError, match="column 1 of the table has 2 rows"):
        from_table([[0.0, 1.0, 0.0], [1.0, 2.0]], [1.0, 5.0, 3.0])
    with pytest.raises(InputError, match="duplicates must be"):
        from_table(columns, [1.0, 5.0, 3.0], duplicates="last")


def test_rows_without_a_value_name_their_coordinates():
    read = from_table([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]], [1.0, np.nan, 3.0])
    assert read.grid.shape == (3, 1)
    assert read.grid.observed.flatten().tolist() == [True, False, True]


def test_observed_must_be_boolean():
    with pytest.raises(InputError, match="True = observed"):
        PartialGrid((torch.arange(2.0),), torch.ones(2))


def test_arrays_are_read_without_touching_them():
    values = np.array([[1.0, np.nan], [3.0, 4.0]])
    read = from_array([np.arange(2), np.arange(2)], values)
    read.values[0] = 99.0
    assert values[0, 0] == 1.0
    assert read.counts.tolist() == [1.0, 1.0, 1.0]


def test_scaling_keeps_constants_and_survives_extremes():
    data = torch.tensor([[1.0, 5.0], [3.0, 5.0]], dtype=torch.float64)
    scaling = Scaling.standard(data)
    assert scaling.scale.tolist() == [1.0, 1.0]
    torch.testing.assert_close(scaling.undo(scaling.apply(data)), data)
    for factor in (1e-200, 1e200):
        z = Scaling.standard(factor * torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)).apply(
            factor * torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
        )
        assert float(z.mean()) == pytest.approx(0.0, abs=1e-12)
        assert float(z.square().mean()) == pytest.approx(1.0)


def test_scores_against_scipy():
    rng = np.random.default_rng(0)
    y, m, s = rng.normal(size=200), rng.normal(size=200), rng.uniform(0.5, 2, 200)
    tensors = [torch.as_tensor(a) for a in (y, m, s)]
    assert metrics.rmse(*tensors[:2]) == pytest.approx(np.sqrt(np.mean((y - m) ** 2)))
    assert metrics.nll(*tensors) == pytest.approx(-stats.norm.logpdf(y, m, s).mean())
    low, high = stats.norm.interval(0.8, m, s)
    assert metrics.coverage(*tensors, 0.8) == np.mean((low <= y) & (y <= high))
    # CRPS = E|X - y| - E|X - X'| / 2
    x = m + s * rng.normal(size=(20000, 200))
    expected = np.abs(x - y).mean() - 0.5 * np.abs(x - x[rng.permutation(20000)]).mean()
    assert metrics.crps(*tensors) == pytest.approx(expected, rel=0.01)


@settings(deadline=None, max_examples=50)
@given(grids(), st.integers(0, 10**6))
def test_a_part_of_a_grid_has_its_cells_and_counts(grid, seed):
    rng = np.random.default_rng(seed)
    data = from_array(grid.coords, torch.where(grid.observed, torch.rand(grid.shape), torch.nan))
    chosen = {
        k: torch.from_numpy(np.sort(rng.choice(n, rng.integers(1, n + 1), replace=False)))
        for k, n in enumerate(grid.shape)
        if rng.random() < 0.7
    }
    cells = data.grid.scatter(data.values, fill=math.nan).view(grid.shape).numpy()
    wanted = cells[np.ix_(*(chosen.get(k, torch.arange(n)).numpy() for k, n in enumerate(grid.shape)))]
    part = restrict(data, chosen)
    if part is None:
        assert np.isnan(wanted).all()
        return
    assert np.array_equal(part.grid.scatter(part.values, fill=math.nan).view(wanted.shape), wanted, equal_nan=True)
    for k, count in enumerate(part.grid.counts):
        seen = np.isfinite(np.moveaxis(wanted, k, 0)).reshape(wanted.shape[k], -1)
        assert np.array_equal(count, seen.sum(axis=1))


def test_the_first_repeat_is_found_also_among_rows_with_equal_sums():
    rows = torch.tensor([[0.0, 1e30], [1.0, 1e30], [2.0, 1e30]], dtype=torch.float64)
    assert first_repeat(rows) is None
    assert first_repeat(torch.cat([rows, rows[1:2]])) == (1, 3)
    assert first_repeat(torch.tensor([[3.0], [1.0], [2.0], [1.0]])) == (1, 3)


def test_the_same_cells_at_other_coordinates_keep_their_index():
    grid = PartialGrid((torch.arange(3.0), torch.arange(2.0)), torch.tensor([[1, 0], [1, 1], [0, 1]]).bool())
    index = grid.index
    other = grid.with_coords([x + 1 for x in grid.coords])
    assert other.index is index
    assert torch.equal(other.coords[0], torch.arange(1.0, 4.0)[:, None])
    with pytest.raises(InputError):
        grid.with_coords([torch.zeros(3), torch.arange(2.0)])
