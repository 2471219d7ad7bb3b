"""What was done, how well it went, and what it cost: for people, and as plain data."""

import math
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Report:
    """Filled in by `LKGP.fit` and `LKGP.update`; `print(gp.report_)` shows it.

    method: how inference was done, and why
    structures: the kind of each factor ("dense", "toeplitz", ...)
    cells, observed: N and n
    fit: why the search for hyperparameters stopped ("not asked for" with optimize=False)
    steps: evaluations of the likelihood in that search
    history: the objective (log likelihood and log prior, by observation) at those evaluations
    iterations, products: of the solve for the mean, and products with the covariance in fit and solve together
    residuals: true relative residual of every right-hand side that was solved for the posterior, (c,)
    solve: why that solve stopped
    noise_std: standard deviation of the noise in the units of the data; None where it was given for each cell
    variance: where standard deviations come from
    variance_error: their relative standard error; 0 where they are exact
    seconds: by stage
    converged: whether fit and solve both did
    notes: whatever else was decided
    """

    method: str
    structures: tuple[str, ...]
    cells: int
    observed: int
    fit: str
    steps: int
    history: list[float]
    iterations: int
    products: int
    residuals: np.ndarray
    solve: str
    noise_std: float | None
    variance: str
    variance_error: float
    seconds: dict[str, float]
    converged: bool
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        noise = "known for each cell" if self.noise_std is None else f"standard deviation {self.noise_std:.4g}"
        lines = [
            f"data       {self.observed} of {self.cells} cells observed ({1 - self.observed / self.cells:.1%} missing)",
            f"method     {self.method}; factors {' x '.join(self.structures)}",
            f"fit        {self.fit} ({self.steps} evaluations)",
            f"solve      {self.solve}; worst relative residual {float(np.max(self.residuals, initial=0.0)):.1e}",
            f"noise      {noise}",
            f"error bars {self.variance}",
            "seconds    " + ", ".join(f"{stage} {time:.2f}" for stage, time in self.seconds.items()),
            f"converged  {'yes' if self.converged else 'NO'}",
        ]
        return "\n".join(lines + [f"note       {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        values = dict(values)
        values["residuals"] = np.array(values["residuals"], dtype=float)
        values["structures"] = tuple(values["structures"])
        return cls(**values)


def print_progress(step: int, value: float) -> None:
    """One line on standard error for an evaluation of the objective, whose value may not be known."""
    known = f", objective {value:.5f} by observation" if math.isfinite(value) else ""
    print(f"lkgp: evaluation {step}{known}", file=sys.stderr)
