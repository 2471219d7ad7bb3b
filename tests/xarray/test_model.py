"""Predictions elsewhere, and saved models."""

import numpy as np
import pytest

import lkgp
import lkgp.xarray
import xarray as xr
from lkgp.errors import FileError, InputError
from lkgp.persistence import ModelContents


def test_predictions_elsewhere_have_their_own_labels(field, model):
    found = model.predict({"time": ["2019-03-05T18", "2019-03-05T19"]})
    assert found.t2m.dims == field.dims
    assert found.t2m.shape == (2, 4, 5)
    assert bool(found.t2m.isnull().equals(found.t2m.isnull() & field.isnull().all("time")))
    single = model.predict({"latitude": 50.3, "longitude": 0.7, "time": "2019-03-01T05:30"})
    assert single.t2m.shape == (1, 1, 1)
    other = model.predict(field.isel(time=[3, 4]))
    assert np.allclose(
        other.t2m.where(field.notnull().any("time")), model.predict().t2m.isel(time=[3, 4]), atol=1e-3, equal_nan=True
    )
    for coords, message in (
        ({"depth": [1]}, "no coordinate 'depth'"),
        ([1, 2], "as a dictionary"),
        ({"time": ["soon"]}, "give dates such as"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(coords)


def test_points_can_be_asked_by_their_labels(field):
    stations = field.stack(station=("latitude", "longitude")).reset_index("station").drop_vars("height")
    stations = stations.assign_coords(station=[f"S{k}" for k in range(20)]).isel(station=slice(0, 6), time=slice(0, 12))
    model = stations.lkgp.fit()
    found = model.predict({"station": ["S3", "S1"]})
    assert found.t2m.sizes["station"] == 2
    assert np.allclose(found.t2m, model.predict().t2m.isel(station=[3, 1]), atol=1e-3)
    track = {name: xr.DataArray([50.0, 51.0], dims="point") for name in ("latitude", "longitude")}
    for coords, message in (
        ({"station": ["S9"]}, "name points of the field"),
        ({"latitude": [50.5]}, "have different lengths"),
        ({**track, "time": xr.DataArray(field.time.values[:2], dims="point")}, "share a dimension"),
        (xr.Dataset(coords={"lat": [1.0]}), "has none of the field's coordinates"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(coords)


def test_a_saved_model_answers_as_before(field, model, tmp_path):
    predicted = model.predict()
    model.save(tmp_path / "model.lkgp")
    loaded = lkgp.xarray.FieldModel.load(tmp_path / "model.lkgp")
    xr.testing.assert_identical(loaded.predict(), predicted)
    xr.testing.assert_equal(loaded.observed, field.where(field.notnull()))
    xr.testing.assert_identical(loaded.sample(2, {"time": ["2019-03-03"]}), model.sample(2, {"time": ["2019-03-03"]}))
    xr.testing.assert_identical(loaded.fill(field).drop_attrs(), model.fill(field).drop_attrs())
    plain = lkgp.LKGP.load(tmp_path / "model.lkgp")
    assert np.array_equal(plain.predict()[0], model.gp.predict()[0])
    plain.save(tmp_path / "plain.lkgp")
    with pytest.raises(FileError, match="without labels"):
        lkgp.xarray.FieldModel.load(tmp_path / "plain.lkgp")


def test_files_with_the_former_names_are_read(model, tmp_path):
    """Scalings were called rulers, and the points on the grid kept."""
    model.save(tmp_path / "model.lkgp")
    contents = ModelContents.read(tmp_path / "model.lkgp")
    spec = contents.header["field"]
    spec["rulers"] = spec.pop("scalings")
    tensors = {name.replace("field.on_grid.", "field.kept."): tensor for name, tensor in contents.tensors.items()}
    ModelContents(contents.header, tensors).write(tmp_path / "former.lkgp")
    loaded = lkgp.xarray.FieldModel.load(tmp_path / "former.lkgp")
    xr.testing.assert_identical(loaded.predict(), model.predict())
    assert loaded.layout.scalings == model.layout.scalings
    assert loaded.notes == model.notes
