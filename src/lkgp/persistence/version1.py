"""Migrate model files of format version 1, written by lkgp 0.1, to the current version."""

from typing import Any

from torch import Tensor

# Settings that have been renamed, by class.
RENAMED = {"BFGS": {"nats": "gain_per_parameter", "enough": "sufficient_observations"}}
# Settings that several inference methods share.
SHARED = (
    "residual_rtol",
    "sample_rtol",
    "rtol",
    "fit_rtol",
    "precision",
    "num_probes",
    "num_samples",
    "lanczos_steps",
    "max_iterations",
)


def migrate(header: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Convert the header and the tensors of a version 1 file to the current version."""
    header = dict(header)
    for name in ("model", "given"):
        if name in header:
            header[name] = _model(header[name])
    if "given noise" in header:
        given = header.pop("given noise")
        frozen = [f"likelihood.{name}" for name in given["frozen"]]
        header["given noise"] = {"noise": _noise(given["likelihood"]), "frozen": frozen}
    settings = dict(header["settings"])
    settings |= {name: _record(settings[name]) for name in ("solver", "optimizer")}
    header |= {"settings": settings, "plan": _plan(header["plan"])}
    # Its products, seconds and notes include those of the draws already.
    header["report"] = {**header["report"], "draws": [_draws(spec) for spec in header["draws"]]}
    return header, {_tensor_name(name): value for name, value in tensors.items()}


def _draws(spec: dict[str, Any]) -> dict[str, Any]:
    solution = spec["solution"]
    kept = {name: solution[name] for name in ("residuals", "products", "reason")}
    return {
        "num": spec["num"],
        "seed": spec["seed"],
        **kept,
        "seconds": 0.0,
        "converged": kept["reason"] == "CONVERGED",
    }


def _model(spec: dict[str, Any]) -> dict[str, Any]:
    frozen = [_parameter_name(name) for name in spec["frozen"]]
    mean = {"class": "ConstantMean"}
    return {"terms": [spec["kernels"]], "mean": mean, "noise": _noise(spec["likelihood"]), "frozen": frozen}


def _noise(likelihood: dict[str, Any]) -> dict[str, Any]:
    return {"class": "LearnedNoise", "likelihood": likelihood}


def _parameter_name(name: str) -> str:
    if name.startswith("kernels."):
        return f"terms.0.{name}"
    return f"noise.{name}" if name.startswith("likelihood.") else name


def _tensor_name(name: str) -> str:
    prefix, _, rest = name.partition(".")
    if prefix in ("model", "given"):
        return f"{prefix}.{_parameter_name(rest)}"
    return f"{prefix}.likelihood.{rest}" if prefix == "given noise" else name


def _record(value: Any) -> Any:
    """Convert a settings record; return anything else unchanged."""
    if not isinstance(value, dict):
        return value
    kind = value["class"]
    fields = {name: _record(field) for name, field in value.items() if name != "class"}
    fields = {RENAMED.get(kind, {}).get(name, name): field for name, field in fields.items()}
    if kind == "Iterative":
        fields.pop("gradient", None)
    if kind == "Spectral":
        space = fields.pop("space")
        if space != "modes":
            modes = {"class": "LeadingModes", "rank": None, "max_rank": fields["max_block"]}
            shared = {name: fields[name] for name in SHARED}
            own = {"solver": None, "preconditioner": modes, "dense": space == "dense"}
            return {"class": "ObservationSpace", **own, **shared}
    return {"class": kind, **fields}


def _plan(plan: dict[str, Any]) -> dict[str, Any]:
    method = _record(plan["method"])
    if method["class"] == "Direct":
        method |= {"axis": plan["axis"]}
    kept = {name: plan[name] for name in ("class", "why", "size", "cost")}
    return {**kept, "method": method, "obstacle": ""}
