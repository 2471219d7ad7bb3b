"""No command destroys what it reads or writes, and a path that cannot be written is told before any work begins."""

import os
import shutil
from pathlib import Path

import pytest
from command_line import run

import xarray as xr
from lkgp.cli.fill_paths import named_models
from lkgp.errors import FileError
from lkgp.persistence import paths
from lkgp.persistence.atomic import write_atomically
from lkgp.studies import benchmarks, experiments


@pytest.fixture
def no_work(monkeypatch):
    """Reading and computing fail the test."""

    def fail(*_, **__):
        raise AssertionError("work began")

    for place in (
        *("lkgp.gp.LKGP.fit", "lkgp.xarray.FieldModel.load", "lkgp.demo.run", "lkgp.studies.benchmarks.run"),
        *("lkgp.studies.experiments.plan", "lkgp.studies.pages.experiments.write", "lkgp.cli.source.Source.open"),
    ):
        monkeypatch.setattr(place, fail)


def refused(*arguments):
    """The sentence with which a command refuses its paths."""
    output = run(*arguments, code=2).output
    assert "Traceback" not in output
    assert len(output.strip().splitlines()) == 1
    return output


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def files(small, tmp_path):
    """A file with gaps, a Zarr store, and links to the file."""
    xr.load_dataset(small).to_zarr(tmp_path / "in.zarr", consolidated=False)
    shutil.copytree(tmp_path / "in.zarr", tmp_path / "outer.zarr" / "in.zarr")
    (tmp_path / "outer.zarr" / "zarr.json").write_text("{}")
    (tmp_path / "link.nc").symlink_to(small)
    os.link(small, tmp_path / "hard.nc")
    (tmp_path / "folder").symlink_to(tmp_path)
    shutil.copy(small, tmp_path / "model.nc")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "lcbench.jsonl").write_text("{}\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("fill", "in.nc", "in.nc"),
        ("fill", "in.nc", "link.nc"),
        ("fill", "in.nc", "hard.nc"),
        ("fill", "in.nc", "folder/in.nc"),
        ("fill", "in.nc", "results/../in.nc"),
        ("fill", "in.nc", "o.nc", "--report", "in.nc"),
        ("fill", "in.nc", "o.nc", "--report", "o.nc"),
        ("fill", "in.nc", "o.nc", "--model", "in.nc"),
        ("fill", "in.nc", "o.nc", "--model", "folder/o.nc"),
        ("fill", "in.nc", "o.nc", "--model", "m", "--report", "folder/m"),
        ("fill", "in.zarr", "in.zarr"),
        ("fill", "in.zarr", "in.zarr/o.zarr"),
        ("fill", "in.zarr", "o.zarr", "--report", "in.zarr/report.html"),
        ("fill", "in.zarr", "o.zarr", "--model", "folder/in.zarr/t2m/m.lkgp"),
        ("fill", "outer.zarr/in.zarr", "outer.zarr"),
        ("predict", "model.nc", "model.nc"),
        ("predict", "model.nc", "hard.nc", "--like", "in.nc"),
        ("sample", "model.nc", "folder/model.nc"),
        ("sample", "model.nc", "in.zarr", "--like", "in.zarr"),
        ("bench", "--output", "b.json", "--page", "folder/b.json"),
        ("experiment", "report", "--results", "results", "--page", "results/lcbench.jsonl"),
    ],
    ids=" ".join,
)
def test_outputs_never_replace_inputs_or_each_other(arguments, files, no_work, monkeypatch):
    monkeypatch.chdir(files)
    before = contents(files)
    more = ("--overwrite",) if arguments[0] in ("fill", "predict", "sample") else ()
    sentence = refused(*arguments, *more)
    assert "choose another name" in sentence or "a path of its own" in sentence
    assert contents(files) == before


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 300, "File name too long"),
        ("/".join(["long" * 40] * 40) + "/o", "too long"),
        ("gone/o", "create it first"),
        ("plain/o", "is a file, not a folder"),
        ("plain/more/o", "is a file, not a folder"),
        ("some", "is a folder"),
        ("locked", "is read-only"),
        ("/proc/o", "cannot write to the folder"),
    ],
    ids=["name", "path", "gone", "through", "far through", "folder", "read-only", "system"],
)
@pytest.mark.parametrize(
    "command",
    [
        *(
            "fill in.nc OUT.nc",
            "fill in.nc o.nc --report OUT.html",
            "predict model.nc OUT.nc",
            "sample model.nc OUT.csv",
        ),
        *("demo --output OUT.png", "bench --output OUT.json", "bench --page OUT.md", "experiment report --page OUT.md"),
    ],
)
def test_a_path_that_cannot_be_written_is_found_before_the_work(command, path, message, small, no_work, monkeypatch):
    folder = small.parent
    monkeypatch.chdir(folder)
    shutil.copy(small, "model.nc")
    Path("plain").write_text("keep me")
    arguments = command.split()
    place = next(i for i, argument in enumerate(arguments) if argument.startswith("OUT"))
    ending = arguments[place].removeprefix("OUT")
    (folder / f"some{ending}").mkdir()
    (folder / f"locked{ending}").write_text("keep me")
    (folder / f"locked{ending}").chmod(0o444)
    arguments[place] = path + ending
    before = contents(folder)
    if arguments[0] in ("fill", "predict", "sample"):
        arguments.append("--overwrite")
    assert message in refused(*arguments)
    assert contents(folder) == before


def test_a_device_is_not_replaced(small, tmp_path, no_work):
    for arguments in (
        ("fill", small, tmp_path / "o.nc", "--report", "/dev/null", "--overwrite"),
        ("bench", "--output", "/dev/null"),
    ):
        assert "neither a file nor a folder" in refused(*arguments)


def test_the_models_of_several_variables_are_compared_before_the_fit(small, tmp_path, monkeypatch):
    def no_fit(*_, **__):
        raise AssertionError("a fit began")

    monkeypatch.setattr("lkgp.gp.LKGP.fit", no_fit)
    monkeypatch.chdir(tmp_path)
    two = xr.load_dataset(small)
    two.assign(other=two.t2m + 1).to_netcdf("two.nc")
    for model, more in (("m.html", ("--report", "m-other.html")), ("two.nc", ()), ("n" * 245 + ".lkgp", ())):
        refused("fill", "two.nc", "o.nc", "--model", model, "--overwrite", *more)
    named = named_models(Path("m.lkgp"), ["a/b", "c"])
    assert named == {"--model for a/b": Path("m-a_b.lkgp"), "--model for c": Path("m-c.lkgp")}


def test_stores_and_files_do_not_replace_each_other(small, tmp_path, no_work, monkeypatch):
    monkeypatch.chdir(tmp_path)
    xr.load_dataset(small).to_zarr("there.zarr", consolidated=False)
    Path("file.zarr").write_text("keep me")
    before = contents(tmp_path)
    assert "is a Zarr store" in refused("fill", small, "o.nc", "--report", "there.zarr", "--overwrite")
    assert "is a file" in refused("fill", small, "file.zarr", "--overwrite")
    assert "unknown format of figures" in refused("demo", "--output", "figure.xyz")
    assert "unknown file format" in refused("predict", small, "o.xyz")
    assert contents(tmp_path) == before


def test_studies_check_their_paths_themselves(small, tmp_path):
    for path in (tmp_path / "gone" / "b.json", tmp_path):
        with pytest.raises(FileError):
            benchmarks.run(["curves"], path)
    with pytest.raises(FileError, match="not a file of benchmark results"):
        benchmarks.run(["curves"], small)
    with pytest.raises(FileError, match="is a file, not a folder"):
        experiments.run("lcbench", small)
    with pytest.raises(FileError, match="is a file, not a folder"):
        experiments.run("synthetic", small / "results")


def test_a_file_with_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("ö" * 124 + ".txt")  # 252 bytes
    paths.check_writable(path, overwrite=False)
    write_atomically(path, lambda temporary: temporary.write_text("done"))
    assert path.read_text() == "done"


def test_names_that_differ_in_case_are_the_same_where_case_is_ignored(tmp_path, monkeypatch):
    one, two = tmp_path / "Out.nc", tmp_path / "out.nc"
    assert not paths.overlap(one, two)
    monkeypatch.setattr(paths, "ignores_case", lambda folder: True)
    assert paths.overlap(one, two)
    assert not paths.overlap(one, tmp_path / "other.nc")
    assert paths.overlap(tmp_path / "caf\u00e9.nc", tmp_path / "cafe\u0301.nc")
