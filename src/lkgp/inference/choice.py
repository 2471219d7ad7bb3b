"""The choice of an inference method: the caller's, or the one with the lowest predicted cost."""

from dataclasses import replace
from typing import Literal

from lkgp.data.readers import Observations
from lkgp.errors import InputError
from lkgp.inference.base import Method, Plan
from lkgp.inference.costs import PlanningProblem
from lkgp.inference.direct import Direct
from lkgp.inference.observation_space import Iterative
from lkgp.inference.spectral import Spectral
from lkgp.machine import usable_memory
from lkgp.model import LatentKroneckerGP
from lkgp.settings import Settings
from lkgp.solvers import Cholesky, Solver

# An exact method is preferred if it takes at most WORTH times as long as the cheapest one, or if it takes at most
# CHEAP_FIT multiplications for a likelihood (0.06 s at the speed of products on one core, so that a search takes a
# second or two) or CHEAP_POSTERIOR for the posterior (a quarter of a second, for a variance without sampling error).
# With 2e10 for both and factorisations counted at the speed of products, a likelihood took up to 1.7 s where the
# eigenbasis took 0.12 s, and a fit to 2106 of 60 x 50 cells 5.7 instead of 0.9 s.
CHEAP_FIT, CHEAP_POSTERIOR, WORTH = 1.5e9, 6e9, 1.2

Choice = Method | Solver | Literal["auto"]


def check_choice(solver: object) -> None:
    """Refuse what is neither a way of inference nor a linear solver."""
    if solver != "auto" and not (isinstance(solver, Method) or hasattr(solver, "solve")):
        raise InputError(
            "solver must be 'auto', a method such as Direct(...), Spectral(...) or ObservationSpace(...), or a linear "
            f"solver such as ConjugateGradients(...), not {solver!r}."
        )


def as_method(solver: Choice, data: Observations) -> Method | None:
    """The inference method that the caller requests; None for "auto"."""
    if isinstance(solver, Method):
        return solver
    if isinstance(solver, str):
        check_choice(solver)
        return None
    return Direct(max_size=data.grid.num_observed) if isinstance(solver, Cholesky) else Iterative(solver=solver)


def methods() -> list[type[Method]]:
    """All known inference methods."""
    known = [kind for kind in Settings.known.values() if issubclass(kind, Method)]
    return [kind for kind in known if not getattr(kind, "__abstractmethods__", None)]


def without_factorisation() -> Method:
    """The method to continue with when a factorisation has become too large."""
    return Spectral()


def propose(
    model: LatentKroneckerGP,
    data: Observations,
    solver: Choice = "auto",
    max_memory: float | None = None,
    *,
    fitting: bool = False,
) -> Plan:
    """Plan inference: with the method that the caller requests, or else with the cheapest one.

    If the requested method cannot be used, the plan names the obstacle.

    fitting: compare the costs of one likelihood with its gradient instead of those of the posterior
    """
    budget, asked = usable_memory() if max_memory is None else max_memory, as_method(solver, data)
    problem = PlanningProblem(model, data, max_memory=max_memory, fitting=fitting, requested=asked is not None)
    if asked is not None:
        found = asked.plan(problem)
        obstacle = found.obstacle
        if asked.exact and not obstacle and _memory(found) > budget:
            obstacle = (
                f"{data.grid.num_observed} observations reduce to {found.size} unknowns "
                f"({_memory(found) / 1e9:.1f} GB), which is more than the memory limit of {budget:.3g} bytes; raise it"
            )
        return replace(found, why=f"{found.why}, as requested", obstacle=obstacle)
    settings = [setting for kind in methods() if "automatic" in vars(kind) for setting in kind.automatic()]
    possible = [found for found in (setting.plan(problem) for setting in settings) if not found.obstacle]
    affordable = [found for found in possible if _memory(found) <= budget]
    if not affordable:
        least = min(possible, key=_memory)
        return replace(least, why=f"{least.why}; more than the memory limit, but the least of all methods")
    cheapest = min(affordable, key=_multiplications)
    limit = max(CHEAP_FIT if fitting else CHEAP_POSTERIOR, WORTH * _multiplications(cheapest))
    exact = [found for found in affordable if found.method.exact and _multiplications(found) <= limit]
    return exact[0] if exact else cheapest


def plan(
    model: LatentKroneckerGP,
    data: Observations,
    solver: Choice = "auto",
    max_memory: float | None = None,
    *,
    fitting: bool = False,
) -> Plan:
    """Like `propose`, but raises an error if the requested method cannot be used."""
    found = propose(model, data, solver, max_memory, fitting=fitting)
    if found.obstacle:
        raise InputError(f"{type(found.method).__name__} was requested, but {found.obstacle}, or use solver='auto'.")
    return found


def _multiplications(candidate: Plan) -> float:
    """The predicted number of multiplications; 0 without a prediction."""
    return candidate.cost.multiplications if candidate.cost is not None else 0.0


def _memory(candidate: Plan) -> float:
    """The predicted memory in bytes; 0 without a prediction."""
    return candidate.cost.memory if candidate.cost is not None else 0.0
