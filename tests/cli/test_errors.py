"""Errors in one sentence, with an exit code."""

from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import run

import xarray as xr
from lkgp.cli.console import err
from lkgp.cli.errors import report_errors


def test_bad_files_and_outputs_are_refused_in_a_sentence(small, tmp_path):
    (tmp_path / "text.nc").write_text("this is not netCDF")
    (tmp_path / "there.nc").write_text("keep me")
    nothing = xr.load_dataset(small)
    (nothing * np.nan).to_netcdf(tmp_path / "nothing.nc")
    xr.Dataset({"a": (("x", "y"), [[1.0, np.nan]])}).to_netcdf(tmp_path / "bare.nc")
    for arguments, message in (
        ((tmp_path / "text.nc", tmp_path / "o.nc"), "is not a readable netCDF file"),
        ((tmp_path / "gone.nc", tmp_path / "o.nc"), "does not exist"),
        ((small, tmp_path / "there.nc"), "use --overwrite"),
        ((small, tmp_path / "no" / "o.nc"), "create it first"),
        ((small, Path("/proc/o.nc")), "cannot write to the folder"),
        ((small, tmp_path / "o.xyz"), "unknown file format"),
        ((small, tmp_path / "o.csv"), "must both be tables, or both be gridded"),
        ((small, tmp_path / "o.nc", "-v", "wind"), "no variable 'wind'; available variables: t2m"),
        ((small, tmp_path / "o.nc", "--station", "a"), "--station applies only to tables"),
        ((small, tmp_path / "o.nc", "--max-memory", "much"), "a size such as 4GB"),
        ((tmp_path / "nothing.nc", tmp_path / "o.nc"), "nothing is observed"),
        ((tmp_path / "bare.nc", tmp_path / "o.nc"), "has no coordinates"),
    ):
        output = run("fill", *arguments, code=2).output
        assert message in output.replace("\n", " "), output
        assert "Traceback" not in output
        assert not (tmp_path / "o.nc").exists()
    assert (tmp_path / "there.nc").read_text() == "keep me"


def test_values_that_are_damaged_are_told_in_a_sentence(tmp_path):
    values = np.random.default_rng(0).standard_normal((40, 20, 20))
    coords = {"time": np.arange(40.0), "lat": np.linspace(40, 50, 20), "lon": np.linspace(0, 10, 20)}
    path = tmp_path / "in.nc"
    xr.Dataset({"v": (("time", "lat", "lon"), values)}, coords).to_netcdf(
        path, encoding={"v": {"zlib": True, "fletcher32": True}}
    )
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    output = run("inspect", path, code=2).output
    assert "contains values that cannot be read" in output.replace("\n", " ")


def test_want_of_memory_and_of_files_is_told_in_a_sentence():
    for error, message in (
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
            "not enough memory",
        ),
        (OSError(5, "Input/output error"), "could not be read or written"),
    ):
        with err.capture() as said, pytest.raises(typer.Exit) as stopped, report_errors():
            raise error
        assert stopped.value.exit_code == 1
        assert message in said.get()
    with pytest.raises(RuntimeError, match="a mistake of ours"), report_errors():
        raise RuntimeError("a mistake of ours")
