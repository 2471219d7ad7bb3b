"""The page about the model file lists what real files hold."""

import json
import re
from pathlib import Path

import pytest
from model_files import KINDS
from safetensors import safe_open

from lkgp.persistence import header, kernel_checks
from lkgp.persistence.model_file import VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "model-file.md").read_text()
# What stands on the page for a number or for the name of a parameter.
STANDS_FOR = {"i": r"\d+", "j": r"\d+", "k": r"\d+", "d": r"\d+", "NAME": ".+"}


def listed(section):
    """The names in the first column of the first table of a section."""
    lines = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    return [name for row in rows for name in re.findall("`([^`]+)`", row.split("|")[1])]


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Descriptions, names of tensors with their shapes, and metadata of files of every kind."""
    folder, found = tmp_path_factory.mktemp("models"), []
    for name, write in KINDS.items():
        write(folder / name)
        with safe_open(folder / name, framework="pt") as file:
            shapes = {tensor: tuple(file.get_tensor(tensor).shape) for tensor in file.keys()}  # noqa: SIM118
            found.append((file.metadata(), json.loads(file.metadata()["model"]), shapes))
    return found


def test_all_tensors_are_on_the_page_and_no_others(contents):
    patterns = {
        name: re.compile(r"\.".join(STANDS_FOR.get(part, re.escape(part)) for part in name.split(".")))
        for name in listed("Tensors")
    }
    tensors = {tensor for _, _, shapes in contents for tensor in shapes}
    unlisted = [tensor for tensor in tensors if not any(one.fullmatch(tensor) for one in patterns.values())]
    assert not unlisted
    unused = [name for name, one in patterns.items() if not any(one.fullmatch(tensor) for tensor in tensors)]
    assert not unused


def test_their_shapes_are_those_of_the_page(contents):
    rows = re.findall(r"^\| (`[^|]+) \| \(([^|]*)\) \|", PAGE, re.MULTILINE)
    dims = {name: shape for names, shape in rows for name in re.findall("`([^`]+)`", names)}
    for _, description, shapes in contents:
        coords = [shapes[f"coords.{k}"] for k in range(len(description["model"]["terms"][0]))]
        known = {
            "n_1, ..., n_d": tuple(n for n, _ in coords),
            "n": shapes["values"],
            "": (),
            **{f"d_{k}": (columns,) for k, (_, columns) in enumerate(coords)},
        }
        for name in ("observed", "counts", "weights", "noise_variance", "scatter", "noise_everywhere"):
            assert name not in shapes or shapes[name] == known[dims[name]], name
        for k, (_, columns) in enumerate(coords):
            assert shapes[f"scaling.{k}.shift"] == shapes[f"scaling.{k}.scale"] == (columns,)
        assert shapes[f"scaling.{len(coords)}.shift"] == known[dims["scaling.d.shift"]]
        for i, entry in enumerate(description["draws"]):
            assert shapes[f"draws.{i}"] == (*known["n"], entry["num"])


def test_all_entries_are_on_the_page_and_no_others(contents):
    assert set(listed("Container")) == set(contents[0][0])
    assert set(listed("Description")) == {name for _, description, _ in contents for name in description}


def test_limits_and_versions_on_the_page_are_those_of_the_code():
    words = " ".join(PAGE.split())
    assert f"at most {header.MAX_CHARACTERS:,} characters" in words
    assert f"{header.MAX_CONTAINERS:,} lists and dictionaries, and {header.MAX_DEPTH} levels" in words
    assert f"at most {kernel_checks.MAX_STEPS} steps" in words
    assert listed("Versions") == []
    assert [int(row) for row in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == list(range(1, VERSION + 1))
