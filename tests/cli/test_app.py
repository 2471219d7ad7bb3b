"""The list of commands, and that a command imports only what it needs."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

from lkgp.cli.app import COMMANDS, load

# The packages that neither the help page nor the demo needs.
OPTIONAL = (
    "xarray",
    "pandas",
    "cf_xarray",
    "cftime",
    "netCDF4",
    "zarr",
    "pyarrow",
    "dask",
    "optuna",
    "botorch",
    "faiss",
)


RESULTS = Path(__file__).parents[2] / "docs" / "results"


def run_without(packages, *arguments, folder=None):
    """A command in a process in which some packages cannot be imported."""
    block = f"import sys; [sys.modules.__setitem__(name, None) for name in {packages!r}]"
    start = f"{block}; sys.argv = {['lkgp', *arguments]!r}; from lkgp.cli import main; main()"
    command = [sys.executable, "-W", "ignore", "-c", start]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_and_the_page_of_a_command_agree(name):
    help_text = load(name).help
    assert help_text.partition("\n")[0] == COMMANDS[name].help
    page = " ".join(run(name, "--help").output.split())
    assert COMMANDS[name].help in page
    assert f"{name} [OPTIONS]" in page


def test_all_commands_are_listed_and_a_typing_error_is_answered():
    text = run("--help").output
    assert all(name in text for name in COMMANDS)
    assert "Did you mean 'fill'" in run("fil", code=2).output


def test_the_help_page_needs_no_optional_package():
    done = run_without((*OPTIONAL, "matplotlib", "sklearn"), "--help")
    assert done.returncode == 0, done.stderr
    assert "inspect" in done.stdout


def test_the_demo_needs_no_package_of_other_commands():
    done = run_without(OPTIONAL, "demo", "--help")
    assert done.returncode == 0, done.stderr
    assert "--output" in done.stdout


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (("fill", "in.nc", "out.nc"), "xarray", "files"),
        (("inspect", "in.nc"), "pandas", "files"),
        (("validate", "model.lkgp"), "xarray", "files"),
        (("demo",), "matplotlib", "cli"),
        (("experiment", "report", "--results", str(RESULTS), "--page", "page.md"), "matplotlib", "experiments"),
    ],
)
def test_a_missing_package_is_named_in_one_sentence(command, package, extra, tmp_path):
    done = run_without((package,), *command, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip() == (
        f"this command needs the package {package}; install it with: pip install 'lkgp[{extra}]'"
    )


def test_a_benchmark_names_the_package_that_it_lacks(tmp_path):
    done = run_without(("optuna",), "bench", "pruning", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "needs the package optuna, which is not installed; install it with: pip install" in done.stderr


def test_the_command_line_itself_needs_typer_and_rich():
    done = run_without(("rich",), "--help")
    assert done.returncode == 1
    assert done.stderr.strip() == "the command line needs the package rich; install it with: pip install 'lkgp[cli]'"
