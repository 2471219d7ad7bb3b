"""What `lkgp fill` does with a file: `lkgp.xarray.fit` and `fill`, with nothing chosen by hand."""

import time

import lkgp.xarray
from lkgp.errors import InputError
from lkgp.studies.predictions import Prediction
from lkgp.studies.problems import Problem
from lkgp.studies.registry import COMPARATORS, COMPETITION, Comparator, always

FILL = "lkgp fill"


class FillField:
    """Fit and fill the labelled field of a problem."""

    def __str__(self) -> str:
        return "its defaults; --never-observed, because whole places are withheld in one set"

    def fit_predict(self, problem: Problem, seed: int) -> Prediction:
        """Observed cells keep their values, as in the file that `lkgp fill` writes."""
        if problem.make_field is None:
            raise InputError(f"{problem.name} has no coordinates with names, which `lkgp fill` needs.")
        field = problem.make_field()
        began = time.perf_counter()
        model = lkgp.xarray.fit(field, seed=seed)
        seconds = {"fit": time.perf_counter() - began}
        began = time.perf_counter()
        # As --never-observed does: whole places may be withheld.
        filled = model.fill(field, never_observed=True)
        seconds["predictions"] = time.perf_counter() - began
        report = model.gp.report_.to_dict()
        del report["history"]
        report["factors"] = [str(factor) for factor in model.layout.factors]
        mean, std = (filled[key].values.astype(float) for key in (model.name, f"{model.name}_std"))
        return Prediction(mean, std, report, seconds=seconds)


COMPARATORS.register(Comparator(FILL, always(FillField()), presets=COMPETITION, needs=("xarray",), order=60))
