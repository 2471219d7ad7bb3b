"""Whole datasets, and fields in chunks."""

import dask.array
import numpy as np
import pytest

import lkgp.xarray  # noqa: F401  (registers `.lkgp`)
import xarray as xr
from lkgp.errors import InputError
from lkgp.xarray.datasets import choose_variables


def test_chunked_fields_and_integers(field):
    small = field.isel(time=slice(0, 12), latitude=[0, 1], longitude=[0, 1])
    chunked = small.copy(data=dask.array.from_array(small.values, chunks=(5, 1, 2)))
    told = []
    xr.testing.assert_equal(chunked.lkgp.fill(on_preview=told.append), small.lkgp.fill())
    assert "GB of memory" in str(told[0])
    whole = (small.fillna(280.0) * 10).astype(int)
    filled = whole.lkgp.fill()
    assert filled.t2m.dtype == float
    assert int(filled.t2m_filled.sum()) == 0


def test_a_dataset_is_filled_variable_by_variable(field):
    small = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1])
    dataset = xr.Dataset(
        {"a": small, "b": 2 * small, "mask": small.isel(time=0) > 0}, attrs={"title": "two", "history": "made"}
    )
    filled = dataset.lkgp.fill()
    assert set(filled.data_vars) == {"a", "a_std", "a_filled", "b", "b_std", "b_filled", "mask"}
    assert filled.attrs["title"] == "two"
    lines = filled.attrs["history"].splitlines()
    assert len(lines) == 3
    assert lines[-1] == "made"
    assert np.allclose(filled.b, 2 * filled.a, rtol=1e-4)
    with pytest.raises(InputError, match="no variable 'c'; available variables: a, b, mask"):
        dataset.lkgp.fill(["c"])
    with pytest.raises(InputError, match="no variable has gaps"):
        dataset.fillna(280.0).lkgp.fill()


def test_only_what_varies_in_time_is_filled_unless_it_is_named(field):
    sea = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1, 2])
    depth = sea.isel(time=0, drop=True).drop_vars("height")
    dataset = xr.Dataset({"sst": sea, "depth": depth, "edges": sea.expand_dims(nv=2)})
    dataset["latitude"].attrs["bounds"] = "edges"
    assert choose_variables(dataset, None) == ["sst"]
    assert choose_variables(dataset, ["depth"]) == ["depth"]
    assert choose_variables(dataset[["depth"]].where(dataset.latitude > 51.5), None) == ["depth"]
    with pytest.raises(InputError, match="no variable has gaps"):
        choose_variables(dataset.fillna({"sst": 280.0}), None)


def test_the_callers_chunks_stay_chunks(field):
    small = field.isel(time=slice(0, 12), latitude=[0, 1], longitude=[0, 1])
    chunked = small.chunk({"time": 5})
    filled = chunked.lkgp.fill()
    assert chunked.chunks is not None
    assert filled.t2m.chunks is None
