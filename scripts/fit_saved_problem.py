"""Fit one saved problem with whichever lkgp is imported, as `lkgp bench` does; `compare_versions.py` runs this.

python scripts/fit_saved_problem.py FOLDER [SEED]

It uses only names that every version of lkgp has. It reads problem.npz and kernels.pickle, writes prediction.npz, and
prints one line of JSON.
"""

import json
import pickle
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import lkgp

# Posterior samples that the benchmarks draw.
SAMPLES = 64
# The kernel's record of this process: present on Linux only.
STATUS = Path("/proc/self/status")


def peak_memory() -> float:
    """The largest number of bytes that this process has had resident at any time."""
    if STATUS.is_file():
        # Counted since the program was started; getrusage, in contrast, would include the process that started it.
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def fit(folder: Path, seed: int = 0) -> dict[str, Any]:
    """Fit, draw samples, and predict every cell."""
    with np.load(folder / "problem.npz") as arrays:
        seen, noise = arrays["seen"], float(arrays["noise"])
        coords = [arrays[f"coords_{k}"] for k in range(seen.ndim)]
    kernels = pickle.loads((folder / "kernels.pickle").read_bytes())
    times = [time.perf_counter()]
    gp = lkgp.LKGP(kernels, noise=noise, standardize=False, solver="auto", optimizer="auto", seed=seed)
    gp.fit(coords, seen)
    times.append(time.perf_counter())
    gp.sample(SAMPLES)
    times.append(time.perf_counter())
    mean, std = gp.predict(observation_noise=True)
    times.append(time.perf_counter())
    np.savez(folder / "prediction.npz", mean=mean, std=std)
    report = gp.report_
    stages = zip(("fit and mean", "samples", "predictions"), np.diff(times).tolist(), strict=True)
    return {
        "imported": lkgp.__file__,
        "stages": dict(stages),
        "log_likelihood": report.log_likelihood,
        "log_likelihood_error": report.log_likelihood_error,
        "steps": report.steps,
        "converged": report.converged,
        "method": report.method,
        "peak_memory": peak_memory(),
        "parameters": {name: p.detach().flatten().tolist() for name, p in gp.model_.named_parameters()},
    }


if __name__ == "__main__":
    print(json.dumps(fit(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
