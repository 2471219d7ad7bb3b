"""From observations to a posterior and a report: scale, fit hyperparameters, condition."""

import copy
import time
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lkgp.data.readers import ArrayKind, Observations
from lkgp.data.standardization import Standardization
from lkgp.fitting import FitResult, Optimizer, fit
from lkgp.fitting.objective import Progress
from lkgp.inference import Choice, Plan, plan, propose, without_factorisation
from lkgp.model import LatentKroneckerGP
from lkgp.persistence.state import FittedState
from lkgp.posterior import condition
from lkgp.posterior.rounding import factorisations_explained
from lkgp.report import Report, make_report


@dataclass(frozen=True)
class Engine:
    """How to compute: the arguments of `LKGP` that do not define the model."""

    solver: Choice
    optimizer: Optimizer | Literal["auto"]
    dtype: torch.dtype
    device: torch.device | str | None
    seed: int
    progress: Progress | None
    max_memory: float | None

    def scaled(self, observations: Observations, standardization: Standardization) -> Observations:
        """Return the observations in the units of the model."""
        device = torch.device(self.device) if self.device is not None else observations.values.device
        return standardization.apply(observations, dtype=self.dtype, device=device)

    def run(
        self,
        model: LatentKroneckerGP,
        standardization: Standardization,
        observations: Observations,
        kind: ArrayKind,
        noise_everywhere: Tensor | None,
        optimize: bool,
        start: Tensor | None = None,
    ) -> tuple[FittedState, Report, list[str]]:
        """Fit the hyperparameters if `optimize`, condition and report; `model` is not changed.

        Also returns a message for each step that did not converge.

        start: weights of similar data, (n,), as an initial guess for the solve
        """
        data = self.scaled(observations, standardization)
        model = copy.deepcopy(model).to(dtype=self.dtype, device=data.values.device)
        notes: list[str] = []
        result: FitResult | None = None
        if optimize and bool((data.values == data.values[0]).all()):
            notes.append(
                "all observed values are equal, so there is nothing to learn and the hyperparameters stay as given"
            )
        elif optimize:
            with factorisations_explained(self.dtype):
                result = fit(
                    model,
                    data,
                    method=self.solver,
                    optimizer=self.optimizer,
                    seed=self.seed,
                    progress=self.progress,
                    max_memory=self.max_memory,
                )
            model = result.model
        began = time.perf_counter()
        chosen = self._plan(model, data, result, notes)
        x0 = None if start is None else start.to(data.values.device)
        with factorisations_explained(self.dtype):
            posterior = condition(model, data, chosen, seed=self.seed, max_memory=self.max_memory, start=x0)
        seconds = time.perf_counter() - began
        scale, noise = float(standardization.values.scale), None
        if observations.noise_variance is None:
            noise = float(model.noise.typical(data).detach().sqrt()) * scale
        report = make_report(posterior, result, scale=scale, noise_std=noise, seconds=seconds, notes=notes)
        failures = []
        if result is not None and not result.converged:
            failures.append(f"the search for hyperparameters did not converge: {result.reason}")
        if not posterior.solution.converged:
            failures.append(f"the solve did not converge: {posterior.solution}")
        return FittedState(observations, kind, noise_everywhere, standardization, posterior), report, failures

    def _plan(self, model: LatentKroneckerGP, data: Observations, result: FitResult | None, notes: list[str]) -> Plan:
        if result is None:
            return plan(model, data, self.solver, self.max_memory)
        chosen = propose(model, data, self.solver, self.max_memory)
        if not chosen.obstacle:
            return chosen
        # The search started with a factorisation that was small enough; its result should not be lost.
        notes.append(f"the posterior was computed in the eigenbasis: {chosen.obstacle}")
        instead = propose(model, data, without_factorisation(), self.max_memory)
        return replace(instead, why="spectral: direct inference became too large")
