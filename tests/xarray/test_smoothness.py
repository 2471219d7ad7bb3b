"""The choice of kernels for a field, and what is said about it."""

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, ScaleKernel

import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray import FieldModel
from lkgp.xarray.kernels import SHAPES
from lkgp.xarray.summary import summarize


def rough_map(shape=(9, 10), seed=0):
    """An exponential process on a map with gaps."""
    rng = np.random.default_rng(seed)
    y, x = (np.arange(float(n)) for n in shape)
    points = np.stack([a.ravel() for a in np.meshgrid(y, x, indexing="ij")], axis=1)
    distance = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    values = (np.linalg.cholesky(np.exp(-distance / 8)) @ rng.standard_normal(len(points))).reshape(shape)
    values[2:4, 3:6] = np.nan
    return xr.DataArray(values, dims=("y", "x"), coords={"y": y, "x": x}, name="height")


@pytest.fixture(scope="module")
def rough():
    return rough_map().lkgp.fit()


def test_all_candidates_are_compared_and_reported(rough, tmp_path):
    (tried,) = rough.tried
    assert tried["factor"] == "y x x"
    assert {one["name"] for one in tried["candidates"]} == set(SHAPES)
    worth = [one["worth"] for one in tried["candidates"]]
    assert worth == sorted(worth, reverse=True)
    by_name = {one["name"]: one["nats"] for one in tried["candidates"]}
    assert by_name["Matern-1/2"] > by_name["Matern-5/2"]
    best = tried["candidates"][0]["name"]
    note = next(note for note in rough.notes if "likelihood" in note)
    assert note.startswith(f"{best} along y x x, by the likelihood of all observations")
    assert all(name in note for name in SHAPES)
    assert any(note in line for line in summarize(rough))
    rough.save(tmp_path / "rough.lkgp")
    loaded = FieldModel.load(tmp_path / "rough.lkgp")
    assert loaded.notes == rough.notes
    assert np.array_equal(loaded.predict(std=False).height, rough.predict(std=False).height)


def test_the_fit_begins_at_the_best_candidate_and_repeats_with_the_seed(rough):
    assert rough.gp.optimizer.fitted_on == 84
    assert not any("starting values" in note for note in rough.gp.report_.notes)
    again = rough_map().lkgp.fit()
    assert again.tried == rough.tried
    # The likelihood of all observations, in the units of the data, is at least that of the comparison.
    scale = float(rough.gp.standardization_.values.scale)
    assert rough.gp.report_.log_likelihood > rough.tried[0]["candidates"][0]["nats"] - 84 * np.log(scale) - 0.1


def test_no_choice_is_made_where_kernels_or_a_smoothness_are_given():
    field = rough_map()
    fixed = field.lkgp.fit(smoothness=0.5)
    assert fixed.gp.model_.kernels[0].base_kernel.nu == 0.5
    given = field.lkgp.fit(kernels=[ScaleKernel(MaternKernel(nu=1.5))])
    assert given.gp.model_.kernels[0].base_kernel.nu == 1.5
    assert fixed.tried == given.tried == []
    with pytest.raises(InputError, match=r"smoothness must be 0\.5, 1\.5 or 2\.5, not 3"):
        field.lkgp.inspect(smoothness=3)
    with pytest.raises(InputError, match="not both"):
        field.lkgp.fit(smoothness=0.5, kernels=[MaternKernel()])


def test_no_choice_is_made_where_nothing_can_be_learned(field):
    constant = xr.full_like(rough_map(), 3.0)
    assert constant.lkgp.fit().tried == []
    few = field.isel(latitude=[0], longitude=[0, 1], time=slice(0, 12))
    model = few.lkgp.fit()
    assert [one["factor"] for one in model.tried] == ["time"]
    assert model.gp.model_.kernels[0].nu == 2.5
    assert "choice of kernels along time" in str(few.lkgp.inspect())


def test_a_preview_is_for_the_kernels_with_which_the_choice_begins():
    field = rough_map()
    begins, given = field.lkgp.inspect(), field.lkgp.inspect(smoothness=1.5)
    assert begins.method == given.method
    assert "method and estimate are for Matern-3/2" in str(begins)
    assert "method and estimate" not in str(given)
