"""The machine and its processes: memory, hardware, package versions, and modules run in a separate process."""

import importlib
import json
import platform
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

PACKAGES = (
    "lkgp",
    "torch",
    "gpytorch",
    "linear_operator",
    "botorch",
    "scikit-learn",
    "faiss-cpu",
    "gpboost",
    "numpy",
    "scipy",
)

# The share of the machine's memory that may be used if the caller sets no limit. It trades room for large problems
# against room for the system, for other programs, and for errors in the predicted cost, which is an estimate.
SHARE_OF_MEMORY = 0.7
# The kernel's record of this process: present on Linux only.
STATUS = Path("/proc/self/status")
# getrusage counts in bytes on macOS, and in units of 1024 bytes on Linux and the BSDs.
BYTES_PER_MAXRSS = {"darwin": 1.0}


def usable_memory() -> float:
    """The number of bytes that may be used if the caller sets no limit: a fixed share of the machine's memory.

    The memory that happens to be free is ignored, so that the same data are always treated in the same way.
    """
    return SHARE_OF_MEMORY * psutil.virtual_memory().total


def peak_memory() -> float:
    """The largest number of bytes that this process has had resident at any time."""
    if sys.platform == "win32":
        return float(psutil.Process().memory_info().peak_wset)
    if STATUS.is_file():
        # Counted since the program started; getrusage, in contrast, would include the process that started it.
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) * 1024
    # `resource` exists on Unix only, so it cannot be imported above.
    resource: Any = importlib.import_module("resource")
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * BYTES_PER_MAXRSS.get(sys.platform, 1024.0)


def run_module(module: str, arguments: list[str], given: str, timeout: float) -> dict[str, Any]:
    """Run a module in a separate process and parse its last line of output as JSON; {"failed": why} on failure.

    given: text passed to the module on standard input; timeout: in seconds
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {timeout:.0f} s", "limit": timeout}
    if done.returncode < 0:
        return {"failed": f"killed by {signal.Signals(-done.returncode).name}, possibly for lack of memory"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no error message"])[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def hardware() -> dict[str, Any]:
    """Processor, number of threads, bytes of memory, and operating system."""
    model = ""
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor(),
        "threads": torch.get_num_threads(),
        "memory": psutil.virtual_memory().total,
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that affect results."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
