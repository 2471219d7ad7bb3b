"""The examples and the page about learning curves run as they are."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("optuna_digits.py", ["--trials", "14", "--epochs", "4"], "LKGPPruner: best validation loss"),
        ("botorch_epochs.py", ["--rounds", "1"], "best: ("),
        ("multitask_pipeline.py", [], "all targets together"),
    ],
)
def test_examples_run(script, arguments, expected):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_the_page_about_learning_curves():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "learning-curves.md").read_text(), flags=re.S)
    names = {"train_one_epoch": lambda configuration: 0.5 + configuration["rate"]}
    for block in blocks:
        exec(block, names)
    assert len(names["model"].forecasts()) == 3
    assert names["study"].pruner.max_resource == "auto"
    assert len(names["finished"]) == 3
    # With enough runs, the loop by hand stops some.
    loop = next(block for block in blocks if "should_stop" in block)
    names["configurations"] = [{"rate": rate} for rate in (*np.linspace(0, 1, 10), 5.0, 9.0)]
    exec(loop, names)
    assert [run.complete for run in names["finished"]] == [True] * 10 + [False] * 2
