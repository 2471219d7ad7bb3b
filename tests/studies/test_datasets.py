"""The data are read as published, and what is wrong with files is said."""

import hashlib
import json
import zipfile

import numpy as np
import pooch
import pytest
from scipy.io import savemat

import xarray
from lkgp import InputError
from lkgp.studies import datasets
from lkgp.studies.cases import climate, sarcos


def test_both_forms_of_lcbench_give_the_same_arrays(curves_folder):
    folder, X, Y = curves_folder
    found = datasets.lcbench("segment")
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], Y)
    runs_ = {
        str(i): {"config": dict(zip(datasets.CONFIGURATION, X[i], strict=True)), "log": {datasets.LOSS: Y[i].tolist()}}
        for i in np.random.default_rng(1).permutation(40)  # in any order
    }
    (folder / "data_2k_lw.json").write_text(json.dumps({"car": runs_}))
    found = datasets.lcbench("car")
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], Y)
    with zipfile.ZipFile(folder / "data_2k_lw.zip", "w") as archive:
        archive.write(folder / "data_2k_lw.json", "data_2k_lw.json")
    (folder / "data_2k_lw.json").unlink()
    assert np.array_equal(datasets.lcbench("car")[1], Y)
    with pytest.raises(InputError, match="helena is not in it"):
        datasets.lcbench("helena")
    with pytest.raises(InputError, match="no set 'mnist'"):
        datasets.lcbench("mnist")


def test_both_parts_of_sarcos_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    table = np.random.default_rng(0).normal(size=(30, 28))
    for stem in ("sarcos_inv", "sarcos_inv_test"):
        savemat(tmp_path / f"{stem}.mat", {stem: table})
    for part in ("training", "test"):
        X, Y = datasets.sarcos(part)
        assert np.array_equal(np.hstack([X, Y]), table)
    problem = sarcos.sarcos(0.4, 0, "training", states=20)
    assert problem.values.shape == (20, 7)
    assert np.nanmean(problem.seen, axis=0) == pytest.approx(np.zeros(7), abs=1e-12)
    savemat(tmp_path / "sarcos_inv.mat", {"other": table})
    with pytest.raises(InputError, match="not a MATLAB file with the variable sarcos_inv"):
        datasets.sarcos("training")
    with pytest.raises(InputError, match="parts training and test"):
        datasets.sarcos("validation")


def test_nordic_files_are_read_a_day_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    generator = np.random.default_rng(0)
    lat, lon = generator.uniform(55, 70, (4, 5)), generator.uniform(5, 30, (4, 5))
    sea = generator.random((4, 5)) < 0.3
    fields = generator.normal(size=(3, 4, 5))
    (tmp_path / "nordic").mkdir()
    for i, day in enumerate(("20200101", "20200102", "20200103")):
        values = np.where(sea, np.nan, fields[i])[None]
        coords = {
            "lat": (("Y", "X"), lat, {"standard_name": "latitude"}),
            "lon": (("Y", "X"), lon, {"standard_name": "longitude"}),
        }
        dataset = xarray.Dataset({"TG": (("time", "Y", "X"), values)}, coords=coords)
        dataset.to_netcdf(tmp_path / "nordic" / f"NGCD_TG_type2_version_25.03_{day}.nc")
    places, values = datasets.nordic("TG", days=3)
    assert np.array_equal(places, np.stack([lat[~sea], lon[~sea]], axis=1))
    assert np.array_equal(values, fields[:, ~sea].T)
    with pytest.raises(InputError, match="1 of 4 days of TG, the first of them 20200104"):
        datasets.nordic("TG", days=4)
    problem = climate.nordic("TG", 0.2, places=6, days=3)
    assert problem.values.shape == (6, 3)


def test_any_netcdf_file_is_read_by_name(tmp_path):
    path = tmp_path / "fields.nc"
    xarray.Dataset({"a": (("t", "y", "x"), np.zeros((2, 3, 4))), "b": ("t", np.zeros(2))}).to_netcdf(path)
    assert datasets.netcdf(path).shape == (2, 3, 4)
    assert datasets.netcdf(path, "b").shape == (2,)
    with pytest.raises(InputError, match="no variable 'c'; it has a, b"):
        datasets.netcdf(path, "c")
    with pytest.raises(InputError, match="there is no file"):
        datasets.netcdf(tmp_path / "nothing.nc")
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(InputError, match="cannot be read as a netCDF file"):
        datasets.netcdf(tmp_path / "text.nc")


def test_offline_and_damaged_downloads_are_said_clearly(tmp_path, monkeypatch):
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))

    def offline(*_args, **_kwargs):
        raise ConnectionError

    monkeypatch.setattr(pooch, "retrieve", offline)
    with pytest.raises(InputError, match=r"segment.npz could not be downloaded .* LKGP_DATA"):
        datasets.lcbench("segment")

    def damaged(*_args, **_kwargs):
        raise ValueError("SHA256 hash does not match")

    monkeypatch.setattr(pooch, "retrieve", damaged)
    with pytest.raises(InputError, match="not the one that was expected"):
        datasets.sarcos("test")
    asked = []

    def served(url, known_hash, fname, path):
        asked.append((url, known_hash))
        np.savez(tmp_path / fname, X=np.zeros((2, 7)), Y=np.zeros((2, 5)))
        return str(tmp_path / fname)

    monkeypatch.setattr(pooch, "retrieve", served)
    assert datasets.lcbench("segment")[1].shape == (2, 5)
    assert asked[0][0].endswith("/data/LCBench/segment.npz")
    assert asked[0][1].startswith("sha256:")
    monkeypatch.setenv("LKGP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="not a folder"):
        datasets.lcbench("segment")


def test_published_files_have_the_checksums_that_are_kept(data_folder):
    for file, digest in datasets.checksums().items():
        path = data_folder / file if file.endswith(".mat") else data_folder / "lcbench" / file
        assert digest == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
