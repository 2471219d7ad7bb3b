"""What was done, how well it went, and what it cost: for people, and as plain data."""

import math
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lkgp.fitting.search import FitResult
from lkgp.inference.methods import Iterative
from lkgp.posterior.posterior import Posterior

# Of the estimate of the log-likelihood: enough to know it to a small part of a nat an observation.
REPORT_PROBES, REPORT_LANCZOS_STEPS = 3, 20


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
    residuals: true relative residual of the solve for the mean, (1,)
    sample_residuals: those of the solves for draws, (c,); empty until some are asked for
    solve: why the solve for the mean stopped
    log_likelihood, log_likelihood_error: log p(Y) with the hyperparameters that were found, in the units of the data, and its
        standard error; 0 where it is exact
    truncation: a bound of what the parts of spectra that were left out change of it, by observation; the solves know the whole
    predicted: "multiplications" and "memory" in bytes, as expected before the posterior was computed
    noise_std: standard deviation of the noise in the units of the data; None where it was given for each cell
    variance: where standard deviations come from
    variance_error: their relative standard error, by the number of samples; 0 where they are exact
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
    sample_residuals: np.ndarray
    solve: str
    log_likelihood: float
    log_likelihood_error: float
    truncation: float
    predicted: dict[str, float]
    noise_std: float | None
    variance: str
    variance_error: float
    seconds: dict[str, float]
    converged: bool
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        noise = "known for each cell" if self.noise_std is None else f"standard deviation {self.noise_std:.4g}"
        error = f" +- {self.log_likelihood_error:.2g}" if self.log_likelihood_error else ""
        lines = [
            f"data       {self.observed} of {self.cells} cells observed ({1 - self.observed / self.cells:.1%} missing)",
            f"method     {self.method}; factors {' x '.join(self.structures)}",
            f"fit        {self.fit} ({self.steps} evaluations)",
            f"solve      {self.solve}; relative residual {float(np.max(self.residuals, initial=0.0)):.1e}"
            + (
                f", of draws {float(self.sample_residuals.max()):.1e} at the worst"
                if len(self.sample_residuals)
                else ""
            ),
            f"likelihood {self.log_likelihood:.6g}{error}, {self.log_likelihood / self.observed:.4f} by observation",
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
        for name in ("residuals", "sample_residuals"):
            values[name] = np.array(values[name], dtype=float)
        values["structures"] = tuple(values["structures"])
        return cls(**values)


def make_report(
    posterior: Posterior, result: FitResult | None, scale: float, known_noise: bool, seconds: float, notes: list[str]
) -> Report:
    """What there is to say of a posterior, and of the fit before it, if there was one.

    scale: units of the data in those of the model; known_noise: whether the noise was given; seconds: of the solve
    """
    solution, grid, chosen = posterior.solution, posterior.data.grid, posterior.plan
    value, error = posterior.log_likelihood(REPORT_PROBES, REPORT_LANCZOS_STEPS)
    exact = posterior.variance_error == 0
    error_bars = (
        "exact"
        if exact
        else f"from posterior samples; relative standard error {posterior.variance_error:.1%} at the most"
    )
    if isinstance(chosen.method, Iterative):
        error_bars += (
            ", beside the errors of solves"  # which only `Spectral` makes small beside the spread of the posterior
        )
    predicted = (
        {} if chosen.cost is None else {"multiplications": chosen.cost.multiplications, "memory": chosen.cost.memory}
    )
    return Report(
        method=chosen.why,
        structures=posterior.structures,
        cells=grid.num_cells,
        observed=grid.num_observed,
        fit=result.reason if result is not None else "not asked for",
        steps=len(result.history) if result is not None else 0,
        history=list(result.history) if result is not None else [],
        iterations=solution.iterations,
        products=solution.products + (result.products if result is not None else 0),
        residuals=solution.residuals.double().cpu().numpy(),
        sample_residuals=np.empty(0),
        solve=solution.reason.value,
        # A density in other units: p(y) = p(z) / scale for each value.
        log_likelihood=value - posterior.data.num_measured * math.log(scale),
        log_likelihood_error=error,
        truncation=posterior.truncation,
        predicted=predicted,
        noise_std=None if known_noise else float(posterior.model.noise_variance().detach().sqrt()) * scale,
        variance=error_bars,
        variance_error=posterior.variance_error,
        seconds={"fit": result.seconds if result is not None else 0.0, "solve": seconds},
        converged=solution.converged and (result is None or result.converged),
        notes=notes + (result.notes if result is not None else []),
    )


def progress_words(step: int, value: float) -> str:
    """What there is to say of an evaluation of the objective, whose value may not be known."""
    return f"evaluation {step}" + (f", objective {value:.5f} by observation" if math.isfinite(value) else "")


def print_progress(step: int, value: float) -> None:
    """One line on standard error."""
    print(f"lkgp: {progress_words(step, value)}", file=sys.stderr)
