"""One thread a worker: the tests run side by side on few cores."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data that `$LKGP_DATA` names; tests that need it are skipped without."""
    folder = os.environ.get("LKGP_DATA")
    if not folder:
        pytest.skip("LKGP_DATA is not set, so there is no real data to test on")
    return Path(folder)
