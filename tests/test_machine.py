"""Memory, processes, and systems other than the one on which the tests run."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from lkgp import machine

BLOCKED_IMPORTS = """
import builtins, importlib, pkgutil

unix_only = {"resource", "fcntl", "pwd", "grp", "spwd", "crypt", "posix", "syslog"}
unix_only |= {"termios", "tty", "pty", "curses", "readline"}
import_module = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    caller = (globals or {}).get("__name__", "")
    if level == 0 and name.partition(".")[0] in unix_only and caller.partition(".")[0] == "lkgp":
        raise ModuleNotFoundError(f"{caller} imports {name}, which only Unix has", name=name)
    return import_module(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
import lkgp

names = [module.name for module in pkgutil.walk_packages(lkgp.__path__, "lkgp.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


def test_no_module_needs_one_that_only_unix_has():
    command = [sys.executable, "-W", "ignore", "-c", BLOCKED_IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_the_peak_includes_what_was_freed():
    block = np.ones(25_000_000)  # 200 MB
    del block
    assert machine.peak_memory() > 200e6
    assert machine.peak_memory() < psutil.virtual_memory().total


@pytest.mark.parametrize(("system", "expected"), [("darwin", 3e8), ("linux", 3e8 * 1024), ("freebsd14", 3e8 * 1024)])
def test_units_of_the_peak_where_the_kernel_keeps_no_status_file(system, expected, tmp_path, monkeypatch):
    """macOS counts in bytes, the others in units of 1024 bytes."""
    resource = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=300_000_000))
    monkeypatch.setitem(sys.modules, "resource", resource)
    monkeypatch.setattr(machine, "STATUS", tmp_path / "status")
    monkeypatch.setattr(sys, "platform", system)
    assert machine.peak_memory() == expected


def test_the_peak_on_windows_is_in_bytes(monkeypatch):
    counters = SimpleNamespace(rss=1, peak_wset=123_456)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(memory_info=lambda: counters))
    monkeypatch.setitem(sys.modules, "resource", None)
    assert machine.peak_memory() == 123_456.0


def test_the_status_file_counts_in_units_of_1024_bytes(tmp_path, monkeypatch):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  900 kB\nVmHWM:\t  500 kB\nVmRSS:\t  400 kB\n")
    monkeypatch.setattr(machine, "STATUS", status)
    monkeypatch.setattr(sys, "platform", "linux")
    assert machine.peak_memory() == 512_000.0


def test_a_fixed_share_of_the_memory_may_be_used(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=10_000_000_000, available=5))
    assert machine.usable_memory() == pytest.approx(7e9)
    assert machine.hardware()["memory"] == 10_000_000_000


def test_a_failure_of_a_module_is_a_result():
    assert machine.run_module("no_such_module", [], "", 60.0)["failed"].endswith("No module named no_such_module")
    assert machine.run_module("timeit", ["-n", "1", "-r", "1", "import time; time.sleep(60)"], "", 0.5) == {
        "failed": "not done after 0 s",
        "limit": 0.5,
    }
