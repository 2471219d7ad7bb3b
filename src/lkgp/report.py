"""The report of a fit: what was done, how well it went and what it cost, as text and as plain data."""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn, get_type_hints

import numpy as np

from lkgp.fitting import FitResult
from lkgp.persistence.plain_types import check_type
from lkgp.posterior import Posterior, PosteriorDraws

# Probes and Lanczos steps of the log-likelihood estimate in a report. Its error is then a small fraction of a nat per
# observation, at little cost.
REPORT_PROBES, REPORT_LANCZOS_STEPS = 3, 20


class FrozenDict(dict[str, float]):
    """A dictionary that cannot be changed."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a report cannot be changed.")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type, tuple[dict[str, float]]]:
        return FrozenDict, (dict(self),)


@dataclass(frozen=True)
class DrawReport:
    """How the solves for one set of draws went.

    residuals: true relative residual of every solve, (num,)
    reason: why the worst solve stopped; products: number of products with the covariance
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


@dataclass(frozen=True, eq=False)
class Report:
    """The report of `LKGP.fit` and `LKGP.update`; `print(gp.report_)` shows it.

    A report is immutable; when further draws are computed, a new report replaces it.

    method: the inference method, and why it was chosen
    structures: the kind of each factor ("dense", "toeplitz", ...)
    cells, observed: N and n
    fit: why the search for hyperparameters stopped ("not requested" with optimize=False)
    steps: number of likelihood evaluations in that search
    history: the objective (log likelihood plus log prior, per observation) at those evaluations
    iterations: iterations of the solve for the mean; products: products with the covariance, in fit and solves together
    residuals: true relative residual of the solve for the mean, (1,)
    draws: how the solves for draws went, one entry per set
    solve: why the solve for the mean stopped
    log_likelihood, log_likelihood_error: log p(Y) at the fitted hyperparameters, in the units of the data, and its
        standard error, which is 0 if the value is exact
    truncation: a bound on the change in the log-likelihood, per observation, caused by omitting small eigenvalues; the
        solves correct for them
    predicted: "multiplications" and "memory" in bytes, as predicted before the posterior was computed
    noise_std: standard deviation of the noise in the units of the data; None if it was given for each cell
    variance: how the standard deviations were computed
    variance_error: their relative standard error, from the number of samples; 0 if they are exact
    seconds: run time of each stage
    converged: whether the fit and all solves converged
    notes: further decisions and remarks
    new_points: for every set of draws, how many points outside the fitted grid it remembers, and how much memory they
        take of what they may take; beyond that, further points are refused
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
    new_points: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        residuals = np.array(self.residuals, dtype=float)
        residuals.setflags(write=False)
        frozen = {"residuals": residuals, "predicted": FrozenDict(self.predicted), "seconds": FrozenDict(self.seconds)}
        for name, value in frozen.items():
            object.__setattr__(self, name, value)

    @property
    def sample_residuals(self) -> np.ndarray:
        """True relative residuals of all solves for draws, (c,); empty until draws are requested."""
        return np.array([residual for draws in self.draws for residual in draws.residuals], dtype=float)

    def with_draws(self, draws: Sequence[PosteriorDraws]) -> "Report":
        """Return the same report with the sets of draws that were computed since."""
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

    def with_new_points(self, draws: Sequence[PosteriorDraws]) -> "Report":
        """Return the same report with what the draws remember now."""
        found = tuple(
            f"{one.num} with seed {one.seed} remember {one.prior.num_new} points outside the grid: "
            f"{one.prior.bytes_of_new / 1e9:.2g} of at most {one.prior.max_bytes / 1e9:.2g} GB"
            for one in draws
            if one.prior.num_new
        )
        return self if found == self.new_points else replace(self, new_points=found)

    def with_variance(self, posterior: Posterior) -> "Report":
        """Return the same report with what is known now of the error bars."""
        words, error = posterior.variance_source, posterior.variance_error
        if (self.variance, self.variance_error) == (words, error):
            return self
        return replace(self, variance=words, variance_error=error)

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
        lines += [f"draws      {remembered}" for remembered in self.new_points]
        return "\n".join(lines + [f"note       {note}" for note in self.notes])

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain lists and numbers, for JSON."""
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        return lists | {
            "predicted": dict(self.predicted),
            "seconds": dict(self.seconds),
            "draws": [asdict(one) | {"residuals": list(one.residuals)} for one in self.draws],
            "sample_residuals": self.sample_residuals.tolist(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """Inverse of `to_dict`; also reads reports written by version 0.1."""
        kinds: dict[str, Any] = get_type_hints(cls) | {"residuals": list[float], "draws": list[dict[str, Any]]}
        known = {name: value for name, value in values.items() if name in kinds}
        for name, value in known.items():
            check_type(value, kinds[name], f"the entry {name!r} of the report")
        for one in known.get("draws", []):
            for name, kind in get_type_hints(DrawReport).items():
                check_type(one.get(name), kind, f"the entry {name!r} of the draws in the report")
        draws = [DrawReport(**one | {"residuals": tuple(one["residuals"])}) for one in values.get("draws", [])]
        return cls(
            **known
            | {
                "residuals": np.array(values["residuals"], dtype=float),
                "structures": tuple(values["structures"]),
                "history": tuple(values["history"]),
                "notes": tuple(values["notes"]),
                "draws": tuple(draws),
                "new_points": tuple(values.get("new_points", ())),
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
    """Summarise a posterior and, if there was one, the fit before it.

    scale: the number by which the values were divided before they were modelled
    noise_std: noise standard deviation in the units of the data; None if the noise was given
    seconds: run time of the solve
    """
    solution, grid, chosen = posterior.solution, posterior.data.grid, posterior.plan
    value, error = posterior.log_likelihood(REPORT_PROBES, REPORT_LANCZOS_STEPS)
    remarks = [posterior.system.solve_remark] if posterior.system.solve_remark else []
    predicted = {}
    if chosen.cost is not None:
        predicted = {"multiplications": chosen.cost.multiplications, "memory": chosen.cost.memory}
    return Report(
        method=chosen.why,
        structures=posterior.system.structures,
        cells=grid.num_cells,
        observed=grid.num_observed,
        fit=result.reason if result is not None else "not requested",
        steps=len(result.history) if result is not None else 0,
        history=tuple(result.history) if result is not None else (),
        iterations=solution.iterations,
        products=solution.products + (result.products if result is not None else 0),
        residuals=solution.residuals.double().cpu().numpy(),
        solve=solution.why,
        # Change of units: p(y) = p(z) / scale for each value.
        log_likelihood=value - posterior.data.num_measured * math.log(scale),
        log_likelihood_error=error,
        truncation=posterior.system.truncation,
        predicted=predicted,
        noise_std=noise_std,
        variance=posterior.variance_source,
        variance_error=posterior.variance_error,
        seconds={"fit": result.seconds if result is not None else 0.0, "solve": seconds},
        converged=solution.converged and (result is None or result.converged),
        notes=(*notes, *(result.notes if result is not None else ()), *remarks),
    )


def progress_text(step: int, value: float) -> str:
    """Describe one evaluation of the objective; its value may be unknown (not finite)."""
    return f"evaluation {step}" + (f", objective {value:.5f} per observation" if math.isfinite(value) else "")


def print_progress(step: int, value: float) -> None:
    """Print one line of progress to standard error."""
    print(f"lkgp: {progress_text(step, value)}", file=sys.stderr)
