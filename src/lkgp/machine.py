"""Processes whose memory and failures are known, and what results were measured on."""

import json
import os
import platform
import resource
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("lkgp", "torch", "gpytorch", "linear_operator", "botorch", "scikit-learn", "faiss-cpu", "numpy", "scipy")


def run_module(module: str, arguments: list[str], given: str, timeout: float) -> dict[str, Any]:
    """A module in a process of its own; what it prints last is JSON. A failure is a result, too: {"failed": why}.

    given: what it reads from standard input
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {timeout:.0f} s", "limit": timeout}
    if done.returncode < 0:
        return {"failed": f"killed by {signal.Signals(-done.returncode).name}; perhaps there was too little memory"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def peak_memory() -> float:
    """The most bytes that this process has had resident; what the kernel counts since its program began, where it says so."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def hardware() -> dict[str, Any]:
    """Processor, threads, bytes of memory and system."""
    model = ""
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model or platform.processor(),
        "threads": torch.get_num_threads(),
        "memory": memory,
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """Of Python and of the packages that matter to a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
