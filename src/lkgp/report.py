"""What was done, how well it went, and what it cost: for people, and as plain data."""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from lkgp.fitting import FitResult
from lkgp.posterior import Posterior, PosteriorDraws

# Of the estimate of the log-likelihood in a report: it knows it to a small part of a nat per observation.
REPORT_PROBES, REPORT_LANCZOS_STEPS = 3, 20


@dataclass(frozen=True)
class DrawReport:
    """How the solves for one set of draws went.

    residuals: true relative residual of every solve, (num,)
    reason: why they stopped, the worst of all; products: with the covariance
    """

    num: int
    seed: int
    residuals: tuple[float, ...]
    products: int
    seconds: float
    converged: bool
    reason: str

    @classmethod
    def of(cls, draws: PosteriorDraws) -> "DrawReport":
        solution = draws.solution
        return cls(
            draws.num,
            draws.seed,
            tuple(solution.residuals.double().cpu().tolist()),
            solution.products,
            draws.seconds,
            solution.converged,
            str(solution),
        )


@dataclass(frozen=True)
class Report:
    """Made by `LKGP.fit` and `LKGP.update`; `print(gp.report_)` shows it. It never changes; draws that are solved for
    later make a new one.

    method: how inference was done, and why
    structures: the kind of each factor ("dense", "toeplitz", ...)
    cells, observed: N and n
    fit: why the search for hyperparameters stopped ("not asked for" with optimize=False)
    steps: evaluations of the likelihood in that search
    history: the objective (log likelihood and log prior, per observation) at those evaluations
    iterations: of the solve for the mean; products: with the covariance, in fit and solves together
    residuals: true relative residual of the solve for the mean, (1,)
    draws: how the solves for draws went, one entry per set
    solve: why the solve for the mean stopped
    log_likelihood, log_likelihood_error: log p(Y) with the hyperparameters that were found, in the units of the data,
        and its standard error; 0 where it is exact
    truncation: a bound of what the parts of spectra that were left out change of it, per observation; the solves know
        the whole
    predicted: "multiplications" and "memory" in bytes, as expected before the posterior was computed
    noise_std: standard deviation of the noise in the units of the data; None where it was given for each cell
    variance: where standard deviations come from
    variance_error: their relative standard error, by the number of samples; 0 where they are exact
    seconds: by stage
    converged: whether the fit and all solves did
    notes: whatever else was decided
    """

    method: str
    structures: tuple[str, ...]
    cells: int
    observed: int
    fit: str
    steps: int
    history: tuple[float, ...]
    iterations: int
    products: int
    residuals: np.ndarray
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
    draws: tuple[DrawReport, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sample_residuals(self) -> np.ndarray:
        """True relative residuals of all solves for draws, (c,); empty until some are asked for."""
        return np.array([residual for draws in self.draws for residual in draws.residuals], dtype=float)

    def with_draws(self, draws: Sequence[PosteriorDraws]) -> "Report":
        """The same report with sets of draws that were solved for since."""
        known = {(one.num, one.seed) for one in self.draws}
        new = [DrawReport.of(one) for one in draws if (one.num, one.seed) not in known]
        if not new:
            return self
        return replace(
            self,
            draws=(*self.draws, *new),
            products=self.products + sum(one.products for one in new),
            converged=self.converged and all(one.converged for one in new),
            seconds={**self.seconds, "draws": self.seconds.get("draws", 0.0) + sum(one.seconds for one in new)},
            notes=(*self.notes, *(f"draws: {one.reason}" for one in new if not one.converged)),
        )

    def __str__(self) -> str:
        noise = "known for each cell" if self.noise_std is None else f"standard deviation {self.noise_std:.4g}"
        error = f" +- {self.log_likelihood_error:.2g}" if self.log_likelihood_error else ""
        of_draws = self.sample_residuals
        lines = [
            f"data       {self.observed} of {self.cells} cells observed ({1 - self.observed / self.cells:.1%} missing)",
            f"method     {self.method}; factors {' x '.join(self.structures)}",
            f"fit        {self.fit} ({self.steps} evaluations)",
            f"solve      {self.solve}; relative residual {float(np.max(self.residuals, initial=0.0)):.1e}"
            + (f", at most {float(of_draws.max()):.1e} for draws" if len(of_draws) else ""),
            f"likelihood {self.log_likelihood:.6g}{error}, {self.log_likelihood / self.observed:.4f} per observation",
            f"noise      {noise}",
            f"error bars {self.variance}",
            "seconds    " + ", ".join(f"{stage} {time:.2f}" for stage, time in self.seconds.items()),
            f"converged  {'yes' if self.converged else 'NO'}",
        ]
        return "\n".join(lines + [f"note       {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        return lists | {
            "draws": [asdict(one) | {"residuals": list(one.residuals)} for one in self.draws],
            "sample_residuals": self.sample_residuals.tolist(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """The inverse of `to_dict`; also of reports that version 0.1 wrote."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        draws = [DrawReport(**one | {"residuals": tuple(one["residuals"])}) for one in values.get("draws", [])]
        return cls(
            **known
            | {
                "residuals": np.array(values["residuals"], dtype=float),
                "structures": tuple(values["structures"]),
                "history": tuple(values["history"]),
                "notes": tuple(values["notes"]),
                "draws": tuple(draws),
            }
        )


def make_report(
    posterior: Posterior,
    result: FitResult | None,
    *,
    scale: float,
    noise_std: float | None,
    seconds: float,
    notes: Sequence[str],
) -> Report:
    """What there is to say of a posterior, and of the fit before it, if there was one.

    scale: units of the data in those of the model; noise_std: in the units of the data, None where the noise was given
    seconds: of the solve
    """
    solution, grid, chosen = posterior.solution, posterior.data.grid, posterior.plan
    value, error = posterior.log_likelihood(REPORT_PROBES, REPORT_LANCZOS_STEPS)
    error_bars = "exact"
    if posterior.variance_error:
        error_bars = f"from posterior samples; relative standard error at most {posterior.variance_error:.1%}"
        error_bars += posterior.system.sampling_remark
    predicted = {}
    if chosen.cost is not None:
        predicted = {"multiplications": chosen.cost.multiplications, "memory": chosen.cost.memory}
    return Report(
        method=chosen.why,
        structures=posterior.system.structures,
        cells=grid.num_cells,
        observed=grid.num_observed,
        fit=result.reason if result is not None else "not asked for",
        steps=len(result.history) if result is not None else 0,
        history=tuple(result.history) if result is not None else (),
        iterations=solution.iterations,
        products=solution.products + (result.products if result is not None else 0),
        residuals=solution.residuals.double().cpu().numpy(),
        solve=solution.reason.value,
        # A density in other units: p(y) = p(z) / scale for each value.
        log_likelihood=value - posterior.data.num_measured * math.log(scale),
        log_likelihood_error=error,
        truncation=posterior.system.truncation,
        predicted=predicted,
        noise_std=noise_std,
        variance=error_bars,
        variance_error=posterior.variance_error,
        seconds={"fit": result.seconds if result is not None else 0.0, "solve": seconds},
        converged=solution.converged and (result is None or result.converged),
        notes=(*notes, *(result.notes if result is not None else ())),
    )


def progress_text(step: int, value: float) -> str:
    """What there is to say of an evaluation of the objective, whose value may not be known."""
    return f"evaluation {step}" + (f", objective {value:.5f} per observation" if math.isfinite(value) else "")


def print_progress(step: int, value: float) -> None:
    """One line on standard error."""
    print(f"lkgp: {progress_text(step, value)}", file=sys.stderr)
