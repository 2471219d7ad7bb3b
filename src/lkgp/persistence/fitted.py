"""Convert a fitted model to plain data and tensors, and back."""

from typing import Any

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import ArrayKind, Observations
from lkgp.data.scaling import Scaling
from lkgp.data.standardization import Standardization
from lkgp.errors import InputError
from lkgp.inference import Plan
from lkgp.model import LatentKroneckerGP, check_kernel
from lkgp.persistence import kernels as described
from lkgp.persistence.damage import DamageError
from lkgp.persistence.kernel_checks import is_too_large
from lkgp.persistence.records import build_settings, describe_settings
from lkgp.persistence.solution_check import check_solution
from lkgp.persistence.state import FittedState
from lkgp.posterior import Posterior
from lkgp.solvers import Reason, Solution

DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _describe_solution(solution: Solution) -> dict[str, Any]:
    return {
        "residuals": solution.residuals.tolist(),
        "iterations": solution.iterations,
        "products": solution.products,
        "reason": solution.reason.name,
        "rtol": solution.rtol,
    }


def _build_solution(spec: dict[str, Any], values: Tensor) -> Solution:
    residuals = torch.tensor(spec["residuals"], dtype=values.dtype)
    return Solution(values, residuals, spec["iterations"], spec["products"], Reason[spec["reason"]], spec["rtol"])


def describe_model(model: LatentKroneckerGP, prefix: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Describe a model as plain data, and its parameters as tensors whose names begin with `prefix`."""
    if len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters())):
        raise InputError(
            "the model contains the same kernel twice, which a file cannot record; replace one of them by a copy "
            "(copy.deepcopy)."
        )
    if len(model.terms) > 1:
        raise InputError("a model with several terms cannot be saved yet.")
    terms = [[described.describe_kernel(kernel) for kernel in term.kernels] for term in model.terms]
    if any(is_too_large(kernels) for kernels in terms):
        raise InputError("the kernels have too many parts, or they are nested too deeply, for a file; simplify them.")
    spec = {
        "terms": terms,
        "mean": described.describe_mean(model.mean),
        "noise": described.describe_noise(model.noise),
        "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
    }
    return spec, described.parameter_tensors(model, prefix)


def build_model(spec: dict[str, Any], prefix: str, tensors: dict[str, Tensor]) -> LatentKroneckerGP:
    """Inverse of `describe_model`."""
    (kernels,) = [[described.build_kernel(kernel) for kernel in term] for term in spec["terms"]]
    mean, noise = described.build_mean(spec["mean"]), described.build_noise(spec["noise"])
    model = LatentKroneckerGP(kernels, mean=mean, noise=noise)
    described.restore_parameters(model, prefix, tensors, spec["frozen"])
    return model.to(next(model.parameters()).dtype)


def describe_state(state: FittedState) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Describe a fitted model: entries for the header of a file, and tensors."""
    data, posterior = state.observations, state.posterior
    fitted, tensors = describe_model(state.model, "model")
    tensors |= {f"coords.{k}": x for k, x in enumerate(data.grid.coords)}
    tensors |= {"observed": data.grid.observed, "values": data.values, "counts": data.counts}
    tensors["weights"] = posterior.weights
    optional = {"noise_variance": data.noise_variance, "scatter": data.scatter}
    optional["noise_everywhere"] = state.noise_everywhere
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    for k, scaling in enumerate([*state.standardization.coords, state.standardization.values]):
        tensors |= {f"scaling.{k}.shift": scaling.shift, f"scaling.{k}.scale": scaling.scale}
    draws = []
    for i, ((num, seed), kept) in enumerate(posterior.draw_store.kept.items()):
        tensors[f"draws.{i}"] = kept.weights
        log = list(kept.prior.replay_log)
        for j, coords in enumerate(log):
            tensors |= {f"draws.{i}.{j}.{k}": x for k, x in enumerate(coords)}
        draws.append({"num": num, "seed": seed, "asked": len(log), "solution": _describe_solution(kept.solution)})
    header = {
        "model": fitted,
        "array": {"library": state.kind.library, "dtype": dtype_name(state.kind.dtype)},
        "plan": describe_settings(posterior.plan),
        "solution": _describe_solution(posterior.solution),
        "draws": draws,
    }
    # The file format does not allow tensors to share memory.
    return header, {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def rebuild_state(
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    dtype: torch.dtype,
    seed: int,
    max_memory: float | None,
) -> FittedState:
    """Inverse of `describe_state`, for contents that `check_contents` accepted."""
    num_factors = len(header["model"]["terms"][0])
    grid = PartialGrid(tuple(tensors[f"coords.{k}"] for k in range(num_factors)), tensors["observed"])
    values, weights = tensors["values"], tensors["weights"]
    known = tensors.get("noise_variance"), tensors.get("scatter")
    observations = Observations(grid, values, tensors["counts"], *known)
    kind = ArrayKind(header["array"]["library"], DTYPES[header["array"]["dtype"]], torch.device("cpu"))
    numbers = range(num_factors + 1)
    scalings = [Scaling(tensors[f"scaling.{k}.shift"], tensors[f"scaling.{k}.scale"]) for k in numbers]
    standardization = Standardization(scalings[-1], tuple(scalings[:-1]))
    plan = build_settings(header["plan"])
    if not isinstance(plan, Plan):
        raise DamageError("it does not name the inference method")
    obstacle = plan.method.obstacle(num_factors)
    if obstacle:
        raise DamageError(f"its inference method cannot be used: {obstacle}")
    model, data = build_model(header["model"], "model", tensors), standardization.apply(observations, dtype=dtype)
    for k, (kernel, x) in enumerate(zip(model.kernels, data.grid.coords, strict=True)):
        check_kernel(kernel, x, k)
    if {parameter.dtype for parameter in model.parameters()} != {dtype}:
        raise DamageError(f"not all parameters of the model are {dtype_name(dtype)} numbers")
    solution = _build_solution(header["solution"], weights[:, None])
    draws = [_build_solution(spec["solution"], tensors[f"draws.{i}"]) for i, spec in enumerate(header["draws"])]
    check_solution(model, data, solution, draws)
    posterior = Posterior(model, data, plan, seed=seed, max_memory=max_memory, solution=solution)
    for i, spec in enumerate(header["draws"]):
        log = [[tensors[f"draws.{i}.{j}.{k}"] for k in range(num_factors)] for j in range(spec["asked"])]
        posterior.draw_store.restore(spec["num"], spec["seed"], draws[i], log)
    return FittedState(observations, kind, tensors.get("noise_everywhere"), standardization, posterior)
