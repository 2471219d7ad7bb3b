"""The numbers that Lin et al. (ICML 2025) published."""

import csv
from importlib.resources import files


def paper_results() -> dict[tuple[str, str, str], tuple[float, float]]:
    """(dataset, method, metric) -> mean and standard error, as printed in the paper's tables."""
    with (files("lkgp.studies") / "paper_results.csv").open() as file:
        return {
            (row["dataset"], row["model"], row["metric"]): (float(row["mean"]), float(row["stderr"]))
            for row in csv.DictReader(file)
        }


def paper_name(dataset: str) -> str | None:
    """The short name of a set in the paper's tables: blood for blood-transfusion-service-center."""
    names = {name for name, _, _ in paper_results()}
    return next((name for name in sorted(names, key=len, reverse=True) if dataset.startswith(name)), None)
