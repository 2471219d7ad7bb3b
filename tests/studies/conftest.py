"""Data in the form of LCBench."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def curves_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray, np.ndarray]:
    """A folder, named by LKGP_DATA, with a small set of learning curves; and its configurations and losses."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0.1, 1, (40, 7))
    epochs = np.arange(1, 13)
    Y = X[:, :1] + X[:, 1:2] * epochs**-0.7 + 0.01 * generator.normal(size=(40, 12))
    (tmp_path / "lcbench").mkdir()
    np.savez(tmp_path / "lcbench" / "segment.npz", X=X, Y=Y)
    monkeypatch.setenv("LKGP_DATA", str(tmp_path))
    return tmp_path, X, Y
