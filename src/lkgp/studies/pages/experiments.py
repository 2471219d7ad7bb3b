"""The page about the experiments: tables and figures, written from the recorded results alone."""

from pathlib import Path

from lkgp.errors import InputError
from lkgp.studies.pages import climate, competition, lcbench, resources, sarcos
from lkgp.studies.pages.sections import method_names
from lkgp.studies.registry import PRESETS, comparators

INTRODUCTION = """\
# The paper's experiments

We repeated the experiments of Lin et al., *Scalable Gaussian Processes with Latent Kronecker Structure* (ICML 2025), \
with `lkgp experiment`, and show our results beside the published numbers. `lkgp experiment report` writes this page \
from the results in `{folder}/`, one JSON line per run. Values are standardised. Lower is better in every table except \
those of coverage.

**LKGP** is lkgp with its own kernels and defaults: Matern-5/2; for learning curves, also logarithms of the learning \
rate, batch size and width, and the scale of values that `lkgp.curves` finds from the observed part, which a few \
diverged runs do not determine. Its density is scored in the units of the data, like that of the others; its RMSE is \
that of the median. **LKGP, the paper's kernels** is the same engine with squared exponentials as in the paper, for a \
like-for-like comparison. **LKGP, the paper's recipe** is the paper's optimiser, solver and samples in GPyTorch. All \
others use the paper's kernels, inputs and values.
"""

REMARK = """\
The small preset stops early where a run would take long: the bound of VNNGP and the loss of the paper's recipe are \
still improving when they stop. An asterisk marks a run that reported that it did not converge.
"""


def has_results(results: Path) -> bool:
    """Whether a folder has results that this page shows."""
    return any(path.name != competition.RESULTS for path in results.glob("*.jsonl"))


def write(results: Path, page: Path) -> None:
    """Write the page, and its figures beside it.

    results: the folder with the results
    """
    if not has_results(results):
        raise InputError(
            f"there are no results in {results}; run an experiment first, for example: lkgp experiment lcbench."
        )
    lines = [INTRODUCTION.format(folder=results.name), *settings_table(), "", REMARK]
    for section in (resources, sarcos, lcbench, climate):
        lines += section.write(results, page)
    page.write_text("\n".join(lines).rstrip() + "\n")


def settings_table() -> list[str]:
    """A table of the settings of every comparator in both presets."""
    lines = ["| | small preset | paper preset |", "|---|---|---|"]
    known = {preset: comparators(preset) for preset in PRESETS}
    for name in method_names():
        cells = []
        for preset in PRESETS:
            if name not in known[preset]:
                cells.append("")
                continue
            settings = known[preset][name].settings
            usual = str(settings(preset, "lcbench"))
            for experiment, where in (("sarcos", "on the robot arm"), ("climate", "on climate")):
                other = str(settings(preset, experiment))
                usual += "" if other == str(settings(preset, "lcbench")) else f"; {where}, {other}"
            cells.append(usual)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines
