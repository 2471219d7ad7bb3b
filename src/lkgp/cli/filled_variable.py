"""Fitting and filling one variable."""

from dataclasses import dataclass
from typing import Any

import lkgp.xarray
import xarray as xr
from lkgp.cli.console import print_line, print_note
from lkgp.cli.options import FactorChoice
from lkgp.cli.progress import fit_progress, solve_progress
from lkgp.xarray import FieldModel, Validation


@dataclass(frozen=True)
class FilledVariable:
    """A filled variable.

    fitted: its model; filled: the dataset of its filled values
    checked: scores on withheld values, None if not computed
    """

    fitted: FieldModel
    filled: xr.Dataset
    checked: Validation | None = None

    @property
    def count(self) -> int:
        """The number of cells that were filled."""
        return int(self.filled[f"{self.fitted.name}_filled"].sum())

    def summary(self) -> dict[str, Any]:
        """What was done, as plain data."""
        report = self.fitted.gp.report_.to_dict()
        del report["history"], report["residuals"], report["sample_residuals"]
        checked = None if self.checked is None else self.checked.to_dict()
        return {
            "name": self.fitted.name,
            "filled": self.count,
            "report": report,
            "chosen": self.fitted.notes,
            "kernels": self.fitted.tried,
            "validation": checked,
        }


def fill_variable(
    field: xr.DataArray,
    choice: FactorChoice,
    *,
    seed: int,
    max_memory: float | None,
    smooth: bool,
    never_observed: bool,
    max_gap: str | None,
    calibrate: bool,
    std: bool,
    quiet: bool,
    print_report: bool,
) -> FilledVariable:
    """Fit a model to a field and fill its gaps.

    quiet: whether to say nothing on standard error
    print_report: whether to print the report of the fit to standard output
    """
    with fit_progress(f"fitting {field.name}", quiet) as progress:
        fitted = lkgp.xarray.fit(
            field,
            space=choice.space,
            time=choice.time,
            factors=choice.factors,
            smoothness=choice.smoothness,
            seed=seed,
            max_memory=max_memory,
            progress=progress,
            on_preview=None if quiet else lambda preview: print_note(str(preview)),
        )
    with solve_progress(quiet):
        checked = fitted.validate(seed=seed) if calibrate else None
        filled = fitted.fill(
            field,
            smooth=smooth,
            never_observed=never_observed,
            max_gap=max_gap,
            calibrate=False if checked is None else checked,
            std=std,
        )
    if print_report:
        print_line("\n".join([str(fitted.gp.report_), *(f"chosen     {note}" for note in fitted.notes)]))
    return FilledVariable(fitted, filled, checked)
