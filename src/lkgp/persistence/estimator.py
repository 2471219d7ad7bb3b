"""Convert the constructor arguments of an `LKGP` to plain data and tensors, and back."""

import copy
from numbers import Real
from typing import Any

from torch import Tensor

from lkgp.model import LatentKroneckerGP, LearnedNoise, Mean, Noise, as_noise
from lkgp.persistence import kernels as described
from lkgp.persistence.fitted import DTYPES, build_model, describe_model, dtype_name
from lkgp.persistence.records import build_settings, describe_settings


def describe_settings_of(gp: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The constructor arguments of an `LKGP`: entries for the header of a file, and tensors."""
    tensors: dict[str, Tensor] = {}
    header: dict[str, Any] = {
        "settings": {
            "mean": float(gp.mean) if isinstance(gp.mean, Real) else None,
            "noise": float(gp.noise) if isinstance(gp.noise, Real) else None,
            "standardize": gp.standardize,
            "solver": describe_settings(gp.solver),
            "optimizer": describe_settings(gp.optimizer),
            "dtype": dtype_name(gp.dtype),
            "seed": int(gp.seed),
            "max_memory": None if gp.max_memory is None else float(gp.max_memory),
            "strict": gp.strict,
        }
    }
    if gp.kernels is not None:
        given = LatentKroneckerGP([copy.deepcopy(kernel) for kernel in gp.kernels], noise=gp.noise)
        header["given"], tensors = describe_model(given, "given")
    elif not isinstance(gp.noise, Real):
        noise = as_noise(gp.noise)
        frozen = [name for name, parameter in noise.named_parameters() if not parameter.requires_grad]
        header["given noise"] = {"noise": described.describe_noise(noise), "frozen": frozen}
        tensors = described.parameter_tensors(noise, "given noise")
    if isinstance(gp.mean, Mean):
        frozen = [name for name, parameter in gp.mean.named_parameters() if not parameter.requires_grad]
        header["given mean"] = {"mean": described.describe_mean(gp.mean), "frozen": frozen}
        tensors |= described.parameter_tensors(gp.mean, "given mean")
    return header, {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def build_settings_of(header: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Inverse of `describe_settings_of`: the constructor arguments."""
    settings = dict(header["settings"])
    settings["solver"] = build_settings(settings["solver"])
    settings["optimizer"] = build_settings(settings["optimizer"])
    settings["dtype"] = DTYPES[settings["dtype"]]
    kernels, noise = None, settings.pop("noise")
    if "given" in header:
        given = build_model(header["given"], "given", tensors)
        kernels, noise = list(given.kernels), noise if noise is not None else _as_given(given.noise)
    elif "given noise" in header:
        built = described.build_noise(header["given noise"]["noise"])
        described.restore_parameters(built, "given noise", tensors, header["given noise"]["frozen"])
        noise = _as_given(built)
    if "given mean" in header:
        settings["mean"] = described.build_mean(header["given mean"]["mean"])
        described.restore_parameters(settings["mean"], "given mean", tensors, header["given mean"]["frozen"])
    return {"kernels": kernels, "noise": noise, **settings}


def _as_given(noise: Noise) -> Any:
    """Return the likelihood of a `LearnedNoise`, as the caller gave it, and any other noise unchanged."""
    return noise.likelihood if isinstance(noise, LearnedNoise) else noise
