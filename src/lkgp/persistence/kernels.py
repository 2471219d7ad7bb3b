"""Convert kernels, priors, constraints and noises to plain data, and back.

They are described by the name of their class and its arguments; classes that are not in the tables below are rejected.
"""

from typing import Any, NotRequired, TypedDict

import gpytorch
import torch
from gpytorch import constraints, kernels, priors
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from lkgp.errors import InputError
from lkgp.model import LearnedNoise, Mean, Noise
from lkgp.persistence.damage import DamageError
from lkgp.persistence.header import Described
from lkgp.persistence.kernel_checks import check_entries_of
from lkgp.persistence.plain_types import check_entries
from lkgp.persistence.records import find_class
from lkgp.persistence.tensors import get_finite

# class -> (plain arguments, parameters that may carry a constraint and a prior)
KERNELS: dict[type[Kernel], tuple[tuple[str, ...], tuple[str, ...]]] = {
    kernels.RBFKernel: ((), ("lengthscale",)),
    kernels.MaternKernel: (("nu",), ("lengthscale",)),
    kernels.RQKernel: ((), ("lengthscale", "alpha")),
    kernels.PeriodicKernel: ((), ("lengthscale", "period_length")),
    kernels.CosineKernel: ((), ("period_length",)),
    kernels.PiecewisePolynomialKernel: (("q",), ("lengthscale",)),
    kernels.LinearKernel: ((), ("variance",)),
    kernels.ScaleKernel: ((), ("outputscale",)),
    kernels.IndexKernel: ((), ("var",)),
    kernels.AdditiveKernel: ((), ()),
    kernels.ProductKernel: ((), ()),
}
PRIORS: dict[type, tuple[str, ...]] = {
    priors.GammaPrior: ("concentration", "rate"),
    priors.NormalPrior: ("loc", "scale"),
    priors.LogNormalPrior: ("loc", "scale"),
    priors.HalfNormalPrior: ("scale",),
    priors.HalfCauchyPrior: ("scale",),
}
CONSTRAINTS = (constraints.Positive, constraints.GreaterThan, constraints.LessThan, constraints.Interval)


class Likelihood(TypedDict):
    """The description of a likelihood."""

    noise_constraint: NotRequired[Described]
    noise_prior: NotRequired[Described]


def _describe_constraint(constraint: constraints.Interval) -> dict[str, Any]:
    transform = constraint._transform
    own = (
        transform is torch.sigmoid
        if type(constraint) is constraints.Interval
        else isinstance(transform, torch.nn.Softplus)
    )
    if type(constraint) not in CONSTRAINTS or not own:
        raise InputError(
            f"the constraint {constraint} cannot be saved; use one of {[c.__name__ for c in CONSTRAINTS]} with its "
            "default transform."
        )
    return {
        "class": type(constraint).__name__,
        "lower": float(constraint.lower_bound),
        "upper": float(constraint.upper_bound),
    }


def _build_constraint(spec: dict[str, Any]) -> constraints.Interval:
    cls = find_class(CONSTRAINTS, spec["class"], "constraint")
    if cls is constraints.Positive:
        return cls()
    if cls is constraints.Interval:
        return cls(spec["lower"], spec["upper"])
    return cls(spec["lower"] if cls is constraints.GreaterThan else spec["upper"])


def _describe_prior(prior: Any) -> dict[str, Any]:
    if type(prior) not in PRIORS:
        raise InputError(
            f"the prior {type(prior).__name__} cannot be saved; use one of {[p.__name__ for p in PRIORS]}."
        )
    return {
        "class": type(prior).__name__,
        **{name: torch.as_tensor(getattr(prior, name)).tolist() for name in PRIORS[type(prior)]},
    }


def _build_prior(spec: dict[str, Any]) -> Any:
    cls = find_class(PRIORS, spec["class"], "prior")
    return cls(
        *(
            torch.tensor(spec[name], dtype=torch.float64) if isinstance(spec[name], list) else spec[name]
            for name in PRIORS[cls]
        )
    )


def _describe_parameters(module: gpytorch.Module, names: tuple[str, ...]) -> dict[str, Any]:
    """Describe the constraints and priors of the named parameters, keyed by constructor argument."""
    found: dict[str, Any] = {}
    for name in names:
        constraint = getattr(module, f"raw_{name}_constraint", None)
        if constraint is not None:
            found[f"{name}_constraint"] = _describe_constraint(constraint)
        if f"{name}_prior" in module._priors:
            found[f"{name}_prior"] = _describe_prior(getattr(module, f"{name}_prior"))
    unknown = [name for name in module._priors if name not in found]
    if unknown:
        raise InputError(f"the prior {unknown[0]!r} of a {type(module).__name__} cannot be saved; remove it.")
    return found


def _build_parameters(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _build_constraint(value) if name.endswith("_constraint") else _build_prior(value)
        for name, value in spec.items()
    }


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """Describe a kernel as plain data, without the values of its parameters."""
    if type(kernel) not in KERNELS:
        known = ", ".join(cls.__name__ for cls in KERNELS)
        raise InputError(f"the kernel {type(kernel).__name__} cannot be saved; use one of {known}.")
    plain, parameters = KERNELS[type(kernel)]
    spec: dict[str, Any] = {
        "class": type(kernel).__name__,
        "arguments": {name: getattr(kernel, name) for name in plain},
        "parameters": _describe_parameters(kernel, parameters),
    }
    if isinstance(kernel, kernels.ScaleKernel):
        spec["parts"] = [describe_kernel(kernel.base_kernel)]
    elif isinstance(kernel, (kernels.AdditiveKernel, kernels.ProductKernel)):
        spec["parts"] = [describe_kernel(part) for part in kernel.kernels]
    else:
        spec["ard_num_dims"] = kernel.ard_num_dims
        spec["active_dims"] = None if kernel.active_dims is None else kernel.active_dims.tolist()
    if isinstance(kernel, kernels.IndexKernel):
        spec["num_tasks"], spec["rank"] = kernel.covar_factor.shape[-2:]
    return spec


def build_kernel(spec: dict[str, Any]) -> Kernel:
    """Inverse of `describe_kernel`; parameters have their initial values."""
    cls = find_class(KERNELS, spec.get("class"), "kernel")
    check_entries_of(spec, cls, *KERNELS[cls])
    arguments = {**spec["arguments"], **_build_parameters(spec["parameters"])}
    if cls is kernels.ScaleKernel:
        return cls(build_kernel(spec["parts"][0]), **arguments)
    if cls in (kernels.AdditiveKernel, kernels.ProductKernel):
        return cls(*(build_kernel(part) for part in spec["parts"]))
    active = None if spec["active_dims"] is None else tuple(spec["active_dims"])
    if cls is kernels.IndexKernel:
        return cls(num_tasks=spec["num_tasks"], rank=spec["rank"], active_dims=active, **arguments)
    if spec["ard_num_dims"] is not None:
        arguments["ard_num_dims"] = spec["ard_num_dims"]
    return cls(active_dims=active, **arguments)


def describe_likelihood(likelihood: GaussianLikelihood) -> dict[str, Any]:
    """Describe a likelihood as plain data, without the value of the noise."""
    if type(likelihood) is not GaussianLikelihood:
        raise InputError(f"the likelihood {type(likelihood).__name__} cannot be saved; use a GaussianLikelihood.")
    if likelihood._priors:
        raise InputError(
            f"the prior {next(iter(likelihood._priors))!r} cannot be saved; give it as "
            "GaussianLikelihood(noise_prior=...)."
        )
    return _describe_parameters(likelihood.noise_covar, ("noise",))


def build_likelihood(spec: dict[str, Any]) -> GaussianLikelihood:
    check_entries(spec, Likelihood, "the noise")
    return GaussianLikelihood(**_build_parameters(spec))


def describe_mean(mean: Mean) -> dict[str, Any]:
    """A mean as plain data, without the values of its parameters."""
    return {"class": type(mean).__name__, **mean.describe()}


def build_mean(spec: dict[str, Any]) -> Mean:
    """The inverse of `describe_mean`; its parameters have their initial values."""
    cls: type[Mean] = find_class(Mean.known.values(), spec["class"], "mean")
    return cls(**{name: value for name, value in spec.items() if name != "class"})


def describe_noise(noise: Noise) -> dict[str, Any]:
    """Describe a noise as plain data, without the values of its parameters."""
    if isinstance(noise, LearnedNoise):
        return {"class": "LearnedNoise", "likelihood": describe_likelihood(noise.likelihood)}
    return {"class": type(noise).__name__, **noise.describe()}


def build_noise(spec: dict[str, Any]) -> Noise:
    """Inverse of `describe_noise`; parameters have their initial values."""
    cls: type[Noise] = find_class(Noise.known.values(), spec["class"], "noise")
    if cls is LearnedNoise:
        return LearnedNoise(build_likelihood(spec["likelihood"]))
    return cls(**{name: value for name, value in spec.items() if name != "class"})


def parameter_tensors(module: torch.nn.Module, prefix: str) -> dict[str, Tensor]:
    """The values of all parameters, named for a file."""
    return {f"{prefix}.{name}": value.detach().contiguous().clone() for name, value in module.named_parameters()}


def restore_parameters(module: torch.nn.Module, prefix: str, tensors: dict[str, Tensor], frozen: list[str]) -> None:
    """Set the parameters of `module` to the values in a file; those named in `frozen` are not learned."""
    for name, parameter in module.named_parameters():
        value = get_finite(tensors, f"{prefix}.{name}", tuple(parameter.shape))
        parameter.data = value.clone()
        parameter.requires_grad_(name not in frozen)
    check_positive_parameters(module, prefix)


def check_positive_parameters(module: torch.nn.Module, prefix: str) -> None:
    """Refuse parameters that are not positive within their constraints, such as a length scale that underflows."""
    for part in module.modules():
        named: dict[str, Any] = getattr(part, "_constraints", {})
        for name, constraint in named.items():
            values = constraint.transform(getattr(part, name.removesuffix("_constraint"))).detach()
            # The square, because kernels divide by it.
            squares = values.double().square()
            if not bool((values > 0).all()) or not bool(((squares > 0) & torch.isfinite(squares)).all()):
                parameter = name.removeprefix("raw_").removesuffix("_constraint")
                raise DamageError(f"the parameter {parameter} of the {prefix} is not a positive number")
