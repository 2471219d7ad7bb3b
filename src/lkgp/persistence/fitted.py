"""A fitted model as plain data and tensors, and back."""

import copy
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from lkgp.data.grid import PartialGrid
from lkgp.data.readers import ArrayKind, Observations
from lkgp.data.scaling import Scaling
from lkgp.data.standardization import Standardization
from lkgp.errors import FileError, InputError
from lkgp.inference.methods import Plan
from lkgp.model.model import LatentKroneckerGP
from lkgp.persistence import model_file as files
from lkgp.posterior.posterior import Posterior, PosteriorDraws
from lkgp.solvers import Reason, Solution

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def _dtype_name(dtype: torch.dtype) -> str:
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
    """A model as plain data, and its parameters under names that begin with `prefix`."""
    if len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters())):
        raise InputError(
            "a kernel is in the model twice, and a file cannot keep that it is one; put a copy (copy.deepcopy) in one place."
        )
    spec = {
        "kernels": [files.describe_kernel(kernel) for kernel in model.kernels],
        "likelihood": files.describe_likelihood(model.likelihood),
        "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
    }
    return spec, files.parameter_tensors(model, prefix)


def build_model(spec: dict[str, Any], prefix: str, tensors: dict[str, Tensor]) -> LatentKroneckerGP:
    """The inverse of `describe_model`."""
    kernels = [files.build_kernel(kernel) for kernel in spec["kernels"]]
    model = LatentKroneckerGP(kernels, noise=files.build_likelihood(spec["likelihood"]))
    files.restore_parameters(model, prefix, tensors, spec["frozen"])
    return model.to(next(model.parameters()).dtype)


def describe(gp: Any, posterior: Posterior) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a fitted `LKGP`."""
    data = gp.observations_
    fitted, tensors = describe_model(gp.model_, "model")
    tensors |= {f"coords.{k}": x for k, x in enumerate(data.grid.coords)}
    tensors |= {
        "observed": data.grid.observed,
        "values": data.values,
        "counts": data.counts,
        "weights": posterior.weights,
    }
    if data.noise_variance is not None:
        tensors["noise_variance"] = data.noise_variance
    if data.scatter is not None:
        tensors["scatter"] = data.scatter
    if gp._noise_everywhere is not None:
        tensors["noise_everywhere"] = gp._noise_everywhere
    for k, scaling in enumerate([*gp._standardization.coords, gp._standardization.values]):
        tensors |= {f"scaling.{k}.shift": scaling.shift, f"scaling.{k}.scale": scaling.scale}
    draws = []
    for i, ((num, seed), kept) in enumerate(posterior.kept_draws.items()):
        tensors[f"draws.{i}"] = kept.weights
        for j, coords in enumerate(kept.prior.asked):
            tensors |= {f"draws.{i}.{j}.{k}": x for k, x in enumerate(coords)}
        draws.append(
            {"num": num, "seed": seed, "asked": len(kept.prior.asked), "solution": _describe_solution(kept.solution)}
        )
    header: dict[str, Any] = {
        "model": fitted,
        "settings": {
            "mean": None if gp.mean is None else float(gp.mean),
            "noise": float(gp.noise) if isinstance(gp.noise, Real) else None,
            "standardize": gp.standardize,
            "solver": files.describe_settings(gp.solver),
            "optimizer": files.describe_settings(gp.optimizer),
            "dtype": _dtype_name(gp.dtype),
            "seed": int(gp.seed),
            "max_memory": None if gp.max_memory is None else float(gp.max_memory),
            "strict": gp.strict,
        },
        "array": {"library": gp._kind.library, "dtype": _dtype_name(gp._kind.dtype)},
        "plan": files.describe_settings(posterior.plan),
        "solution": _describe_solution(posterior.solution),
        "draws": draws,
        "report": gp.report_.to_dict(),
    }
    if gp.kernels is not None:
        given = LatentKroneckerGP([copy.deepcopy(kernel) for kernel in gp.kernels], noise=gp.noise)
        header["given"], parameters = describe_model(given, "given")
        tensors |= parameters
    elif not isinstance(gp.noise, Real):
        frozen = [name for name, parameter in gp.noise.named_parameters() if not parameter.requires_grad]
        header["given noise"] = {"likelihood": files.describe_likelihood(gp.noise), "frozen": frozen}
        tensors |= files.parameter_tensors(gp.noise, "given noise")
    # Every tensor in a file has its own memory.
    return header, {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def rebuild(cls: type, header: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """The inverse of `describe`: a fitted object of the class `cls`."""
    settings = dict(header["settings"])
    settings["solver"] = files.build_settings(settings["solver"])
    settings["optimizer"] = files.build_settings(settings["optimizer"])
    settings["dtype"] = DTYPES[settings["dtype"]]
    kernels, noise = None, settings.pop("noise")
    if "given" in header:
        given = build_model(header["given"], "given", tensors)
        kernels, noise = list(given.kernels), noise if noise is not None else given.likelihood
    elif "given noise" in header:
        noise = files.build_likelihood(header["given noise"]["likelihood"])
        files.restore_parameters(noise, "given noise", tensors, header["given noise"]["frozen"])
    gp = cls(kernels, noise=noise, **settings)
    num_factors = len(header["model"]["kernels"])
    grid = PartialGrid(tuple(tensors[f"coords.{k}"] for k in range(num_factors)), tensors["observed"])
    values = tensors["values"]
    if (
        values.shape != (grid.num_observed,)
        or tensors["counts"].shape != values.shape
        or tensors["weights"].shape != values.shape
    ):
        raise FileError("the values in the file do not fit its grid; it is damaged, save the model again.")
    gp.observations_ = Observations(
        grid, values, tensors["counts"], tensors.get("noise_variance"), tensors.get("scatter")
    )
    gp._noise_everywhere = tensors.get("noise_everywhere")
    gp._kind = ArrayKind(header["array"]["library"], DTYPES[header["array"]["dtype"]], torch.device("cpu"))
    scalings = [Scaling(tensors[f"scaling.{k}.shift"], tensors[f"scaling.{k}.scale"]) for k in range(num_factors + 1)]
    gp._standardization = Standardization(scalings[-1], tuple(scalings[:-1]))
    gp.model_ = build_model(header["model"], "model", tensors)
    plan = files.build_settings(header["plan"])
    if not isinstance(plan, Plan):
        raise FileError("the file does not say how its model was solved; it is damaged, save the model again.")
    data = gp._standardization.apply(gp.observations_, dtype=gp.dtype)
    posterior = Posterior(gp.model_, data, plan, gp.seed, gp.max_memory)
    posterior.weights = tensors["weights"]
    posterior.solution = _build_solution(header["solution"], posterior.weights[:, None])
    for i, spec in enumerate(header["draws"]):
        kept = PosteriorDraws(
            posterior, spec["num"], spec["seed"], _build_solution(spec["solution"], tensors[f"draws.{i}"])
        )
        kept.prior.replay([[tensors[f"draws.{i}.{j}.{k}"] for k in range(num_factors)] for j in range(spec["asked"])])
        posterior.kept_draws[spec["num"], spec["seed"]] = kept
    gp._posterior, gp._reported_draws = posterior, set(posterior.kept_draws)
    return gp
