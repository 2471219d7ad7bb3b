"""The rules of the house: sizes, layers, and who may ask which way of inference it is."""

import ast
import re
import statistics
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALLOWED = ("__init_subclass__", "check_positive", "watched")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def name(path):
    return str(path.relative_to(ROOT / "src"))


def test_files_are_short():
    lengths = [len(path.read_text().splitlines()) for path in SOURCES if path.name != "__init__.py"]
    assert max(lengths) <= 400
    assert statistics.median(lengths) <= 130


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_are_short_and_import_nothing_of_ours(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS):
            assert node.end_lineno - node.lineno <= 80, f"{node.name} is too long"
            imports = [x for x in ast.walk(node) if isinstance(x, (ast.Import, ast.ImportFrom))]
            modules = [getattr(x, "module", None) or x.names[0].name for x in imports]
            assert not any(module.split(".")[0] == "lkgp" for module in modules), f"{node.name} imports lkgp"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_only_the_room_of_inference_asks_which_way_it_is(path):
    if "inference" in path.parts:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked = ast.unparse(node.args[1])
            assert not re.search(r"\b(Direct|Spectral|Iterative|ObservationSpace|Method|\w*System)\b", asked), asked


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_nobody_takes_a_bag_of_keywords(path):
    """But for what passes them on unread, and for the names of numbers that are all checked in the same way."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, FUNCTIONS) and node.args.kwarg is not None:
            assert node.name in ALLOWED, f"{node.name} takes **{node.args.kwarg.arg}"


def test_the_rooms_have_at_most_thirteen_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = next(contract for contract in contracts if contract["name"] == "Data flows one way")
    assert len(rooms["layers"]) <= 13
    listed = {room.strip() for layer in rooms["layers"] for room in re.split(r"[|:]", layer)}
    found = {f"lkgp.{path.stem}" for path in (ROOT / "src" / "lkgp").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"lkgp.__init__", "lkgp.__pycache__"} == listed


def test_tests_do_not_import_each_other():
    for path in (ROOT / "tests").rglob("*.py"):
        assert not re.search(r"^(from|import) test_", path.read_text(), re.MULTILINE), path
