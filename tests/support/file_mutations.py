"""Damaged model files, always the same for a seed, and what must be true of each: refused in a sentence, or sound.

Most damage comes with a checksum that was computed again, so that only the checks of the contents can find it.
"""

import hashlib
import json
import random
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lkgp import LKGP, FileError
from lkgp.model.kernels import is_discrete
from lkgp.persistence.kernels import KERNELS
from lkgp.settings import Settings
from lkgp.xarray import FieldModel

# What every bad file must keep to.
MOST_SECONDS, MOST_BYTES = 1.0, 200e6
# A damaged file may ask for any number of samples, as a caller may; predictions are tried only up to this many numbers.
MOST_SAMPLED = 2_000_000
TORCH_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
STRANGE_NUMBERS = [
    *(0, -1, 1, 2, 3, 7, 1000, -1000, 2**31, 2**63, -(2**70), 10**30, 10**400, 0.0, -0.0, 0.5, -2.5, 1e-320, 1e-200),
    *(1e-12, 1e12, 1e154, 1e200, 1.7e308, float("nan"), float("inf"), -float("inf")),
]
STRANGE_VALUES = [
    None,
    True,
    False,
    "",
    "0",
    "nan",
    "float64",
    "__class__",
    [],
    {},
    [[]],
    [None],
    {"class": "Plan"},
    "x" * 5000,
]


@dataclass
class File:
    """A model file taken apart: metadata, description, and tensors as (dtype, shape, bytes) by name."""

    metadata: dict[str, str]
    header: Any
    tensors: dict[str, tuple[str, list[int], bytes]] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: bytes) -> "File":
        (length,) = struct.unpack("<Q", content[:8])
        entries, body = json.loads(content[8 : 8 + length]), content[8 + length :]
        metadata = entries.pop("__metadata__")
        tensors = {
            name: (one["dtype"], one["shape"], body[slice(*one["data_offsets"])]) for name, one in entries.items()
        }
        return cls(metadata, json.loads(metadata["model"]), tensors)

    def pack(self, text: str | None = None) -> bytes:
        """The file with a checksum of its own; text: another text than the description."""
        text = json.dumps(self.header) if text is None else text
        digest, entries, body = hashlib.sha256(text.encode()), {}, b""
        for name in sorted(self.tensors):
            dtype, shape, raw = self.tensors[name]
            digest.update(f"{name} torch.{TORCH_NAMES[dtype]} {tuple(shape)}".encode() + raw)
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
            body += raw
        metadata = {**self.metadata, "model": text, "checksum": digest.hexdigest()}
        head = json.dumps({"__metadata__": metadata, **entries}).encode()
        head += b" " * (-len(head) % 8)
        return struct.pack("<Q", len(head)) + head + body


# Places in a description


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in nested plain data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def parent_of(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def copy_of(value: Any) -> Any:
    """A copy of plain data, however deep it is: `copy.deepcopy` takes several Python frames for every level."""
    return json.loads(json.dumps(value))


# Kinds of damage; each changes a file in place


def strange_value(file: File, rng: random.Random) -> None:
    path = rng.choice(list(places(file.header)))
    names = [*(cls.__name__ for cls in KERNELS), *Settings.known, "os.system"]
    parent_of(file.header, path)[path[-1]] = rng.choice(
        [rng.choice(STRANGE_NUMBERS), rng.choice(STRANGE_VALUES), rng.choice(names)]
    )


def scaled_number(file: File, rng: random.Random) -> None:
    def is_number(path: tuple[Any, ...]) -> bool:
        found = parent_of(file.header, path)[path[-1]]
        return isinstance(found, (int, float)) and not isinstance(found, bool)

    path = rng.choice([path for path in places(file.header) if is_number(path)])
    parent = parent_of(file.header, path)
    change = rng.choice([lambda x: -x, lambda x: x + 1, lambda x: x - 1, lambda x: x * 1e6, lambda x: x / 3, str])
    parent[path[-1]] = change(parent[path[-1]])


def missing_entry(file: File, rng: random.Random) -> None:
    path = rng.choice(list(places(file.header)))
    del parent_of(file.header, path)[path[-1]]


def further_entry(file: File, rng: random.Random) -> None:
    within = [path for path in places(file.header) if isinstance(parent_of(file.header, path)[path[-1]], (dict, list))]
    path = rng.choice(within)
    target = parent_of(file.header, path)[path[-1]]
    if isinstance(target, dict):
        target[rng.choice(["strange", "class", "batch_shape", "value", "axis"])] = rng.choice(STRANGE_NUMBERS)
    else:
        target.append(copy_of(rng.choice(target)) if target else rng.choice(STRANGE_VALUES))


def moved_entry(file: File, rng: random.Random) -> None:
    one, two = (rng.choice(list(places(file.header))) for _ in range(2))
    parent_of(file.header, one)[one[-1]] = copy_of(parent_of(file.header, two)[two[-1]])


def nested_kernels(file: File, rng: random.Random) -> None:
    """A kernel in many layers of others, with the parameters that these would have."""
    name = rng.choice([name for name in ("model", "given") if name in file.header])
    k = rng.randrange(len(file.header[name]["terms"][0]))
    kernel, depth, outer = file.header[name]["terms"][0][k], rng.choice([3, 8, 12, 20, 30, 200]), rng.random() < 0.5
    cls = "ScaleKernel" if outer else rng.choice(["AdditiveKernel", "ProductKernel"])
    prefix, inner = f"{name}.terms.0.kernels.{k}", "base_kernel" if outer else "kernels.0"
    moved = {tensor: value for tensor, value in file.tensors.items() if tensor.startswith(prefix)}
    for tensor in moved:
        del file.tensors[tensor]
    for tensor, value in moved.items():
        file.tensors[tensor.replace(prefix, prefix + f".{inner}" * depth, 1)] = value
    for level in range(depth):
        kernel = {"class": cls, "arguments": {}, "parameters": {}, "parts": [kernel]}
        if outer:
            file.tensors[prefix + f".{inner}" * level + ".raw_outputscale"] = ("F64", [], struct.pack("<d", 0.5413))
    file.header[name]["terms"][0][k] = kernel


def many_kernels(file: File, rng: random.Random) -> None:
    kernel = copy_of(file.header["model"]["terms"][0][-1])
    parts = [kernel] * rng.choice([2, 50, 3000])
    file.header["model"]["terms"][0][-1] = {
        "class": rng.choice(["AdditiveKernel", "ProductKernel"]), "arguments": {}, "parameters": {}, "parts": parts,
    }  # fmt: skip


def large_kernel(file: File, rng: random.Random) -> None:
    size = rng.choice([5, 1000, 30_000, 10**6, 10**12])
    file.header["model"]["terms"][0][0] = {
        "class": "IndexKernel", "arguments": {}, "parameters": {}, "ard_num_dims": None, "active_dims": None,
        "num_tasks": size, "rank": rng.choice([1, size]),
    } if rng.random() < 0.5 else {
        "class": "RBFKernel", "arguments": {}, "parameters": {}, "ard_num_dims": size, "active_dims": None,
    }  # fmt: skip


def deep_list(file: File, rng: random.Random) -> None:
    value: Any = rng.choice(STRANGE_NUMBERS)
    for _ in range(rng.choice([40, 100, 300])):
        value = [value] if rng.random() < 0.5 else {"parts": value}
    path = rng.choice([*places(file.header)])
    parent_of(file.header, path)[path[-1]] = value


def numbers_of(file: File, rng: random.Random) -> tuple[str, np.ndarray]:
    """A tensor of floating-point numbers that is not empty, as a flat array."""
    names = [name for name, (dtype, _, raw) in file.tensors.items() if dtype in ("F64", "F32") and raw]
    name = rng.choice(sorted(names))
    dtype, _, raw = file.tensors[name]
    return name, np.frombuffer(raw, dtype="<f8" if dtype == "F64" else "<f4").copy()


def strange_number(file: File, rng: random.Random) -> None:
    name, values = numbers_of(file, rng)
    strange = np.float64(rng.choice([n for n in STRANGE_NUMBERS if isinstance(n, float) or abs(n) < 2**70]))
    with np.errstate(over="ignore"):
        values[rng.randrange(len(values)) if rng.random() < 0.7 else slice(None)] = strange.astype(values.dtype)
    file.tensors[name] = (*file.tensors[name][:2], values.tobytes())


def scaled_tensor(file: File, rng: random.Random) -> None:
    name, values = numbers_of(file, rng)
    with np.errstate(over="ignore", invalid="ignore"):
        values *= rng.choice([-1.0, 0.0, 0.5, 1e-6, 1e6, 1e-30, 1e30, 1e150, 1e300])
    file.tensors[name] = (*file.tensors[name][:2], values.tobytes())


def flipped_bits(file: File, rng: random.Random) -> None:
    name = rng.choice(sorted(name for name, (_, _, raw) in file.tensors.items() if raw))
    dtype, shape, raw = file.tensors[name]
    changed = bytearray(raw)
    for _ in range(rng.choice([1, 1, 4])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    file.tensors[name] = dtype, shape, bytes(changed)


def other_shape(file: File, rng: random.Random) -> None:
    name = rng.choice(sorted(file.tensors))
    dtype, shape, raw = file.tensors[name]
    width = WIDTHS[dtype]
    options = [
        (shape[::-1], raw),
        ([*shape, 1], raw),
        ([1, *shape], raw),
        ([len(raw) // width], raw),
        ([0, *shape], b""),
        ([10**12, 0], b""),
        ([*shape[:-1], shape[-1] + 1], raw + raw[: len(raw) // max(shape[-1], 1)]) if shape else ([3], raw * 3),
        ([shape[0] - 1, *shape[1:]], raw[: len(raw) // shape[0] * (shape[0] - 1)]) if shape and shape[0] else ([], raw),
        ([2, *shape], raw * 2),
        ([200_000], raw[:width] * 200_000),
    ]
    file.tensors[name] = (dtype, *rng.choice(options))


def other_dtype(file: File, rng: random.Random) -> None:
    name = rng.choice(sorted(file.tensors))
    dtype, shape, raw = file.tensors[name]
    new = rng.choice([one for one in WIDTHS if one != dtype])
    size = len(raw) // WIDTHS[dtype] * WIDTHS[new]
    file.tensors[name] = new, shape, (raw * 8)[:size]


def missing_tensor(file: File, rng: random.Random) -> None:
    del file.tensors[rng.choice(sorted(file.tensors))]


def further_tensor(file: File, rng: random.Random) -> None:
    kind = rng.choice(["noise_variance", "scatter", "noise_everywhere", "draws.9", "strange", "model.x", "coords.7"])
    file.tensors[kind] = file.tensors[rng.choice(["values", "weights", "observed", "scaling.0.scale"])]


def renamed_tensor(file: File, rng: random.Random) -> None:
    name = rng.choice(sorted(file.tensors))
    file.tensors[rng.choice([name + "x", name[:-1] or "y", name.upper()])] = file.tensors.pop(name)


def swapped_tensors(file: File, rng: random.Random) -> None:
    one, two = rng.choice(sorted(file.tensors)), rng.choice(sorted(file.tensors))
    file.tensors[one], file.tensors[two] = file.tensors[two], file.tensors[one]


def other_version(file: File, rng: random.Random) -> None:
    name = rng.choice(["version", "version", "format"])
    file.metadata[name] = rng.choice(["1", "3", "", "two", "-1", "2.0", "LKGP"])


DAMAGES: list[Callable[[File, random.Random], None]] = [
    *(strange_value, scaled_number, missing_entry, further_entry, moved_entry, nested_kernels, many_kernels),
    *(large_kernel, deep_list, strange_number, scaled_tensor, flipped_bits, other_shape, other_dtype, missing_tensor),
    *(further_tensor, renamed_tensor, swapped_tensors, other_version),
]
# Kinds with the most variety come more often.
SHARES = [8, 6, 3, 3, 3, 2, 1, 2, 1, 8, 4, 5, 5, 3, 2, 2, 2, 2, 1]


def damaged_text(text: str, rng: random.Random) -> str:
    """A description with some characters changed."""
    position = rng.randrange(len(text))
    options = [
        text[:position],
        text[:position] + rng.choice('{}[]",:0e-9\\N') + text[position + 1 :],
        text[:position] + rng.choice(["[" * 20_000, '{"a":' * 3000, "1" * 5000, '"\\ud800"']) + text[position:],
        text[:-1] + ',"model": 1}',
        "[" + ",".join(["[]"] * 300_000) + "]",
        "",
        "null",
    ]
    return rng.choice(options)


def damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    """A file whose checksum is the old one."""
    position = rng.randrange(len(content))
    changed = bytearray(content)
    changed[position] ^= 1 << rng.randrange(8)
    length = struct.pack("<Q", rng.choice([0, 1, 7, 10**6, 2**63, 2**64 - 1]))
    options = [bytes(changed), content[:position], content + b"more", length + content[8:], content[position:], b""]
    return rng.choice(options)


def mutations(source: str | Path | bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` damaged copies of a model file, each with the names of its damage; the same for the same seed."""
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.08:
            yield "bytes", damaged_bytes(content, rng)
            continue
        file = File.parse(content)
        if kind < 0.15:
            yield "text", file.pack(damaged_text(json.dumps(file.header), rng))
            continue
        names = []
        for damage in rng.choices(DAMAGES, SHARES, k=rng.choice([1, 1, 1, 2, 3])):
            try:
                damage(file, rng)
                names.append(damage.__name__)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                continue  # an earlier change left nothing for this one
        yield " + ".join(names) or "nothing", file.pack()


@dataclass(frozen=True)
class Outcome:
    """What became of a file.

    verdict: "refused", "sound", "not tried" for a file that loads but asks for very many samples, or what was wrong
    seconds, memory: of loading it: processor time, whatever else the machine does, and bytes, 0 if they are not known
    """

    verdict: str
    seconds: float
    memory: float
    message: str = ""

    @property
    def is_violation(self) -> bool:
        return self.verdict not in ("refused", "sound", "not tried")


def resident(entry: str) -> float:
    """VmRSS or VmHWM of this process in bytes; 0 on systems that do not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith(entry)), 0.0)


def forget_peak() -> None:
    """Let the peak of memory begin anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def outcome_of(content: bytes) -> Outcome:
    """Load a file as its users would, and predict with it."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.lkgp"
        path.write_bytes(content)
        forget_peak()
        before, began = resident("VmRSS"), time.process_time()
        model, verdict, message = None, "refused", ""
        try:
            model = (FieldModel if b'\\"field\\":' in content else LKGP).load(path)
        except FileError as error:
            message = str(error)
            if str(path) not in message or "\n" in message:
                verdict = "a message that does not name the file in one line"
        except Exception as error:
            verdict, message = f"{type(error).__name__} while loading", str(error)
        seconds, memory = time.process_time() - began, max(resident("VmHWM") - before, 0.0)
        if model is not None:
            verdict, message = judge(model.gp if isinstance(model, FieldModel) else model, model)
    return Outcome(verdict, seconds, memory, message)


def elsewhere(gp: LKGP) -> list[np.ndarray | None]:
    """Points beside those of the grid; None for factors of categories."""
    return [
        None if is_discrete(kernel) else (x[:2] + 0.01 * (x.amax(dim=0) - x.amin(dim=0))).numpy()
        for kernel, x in zip(gp.model_.kernels, gp.grid_.coords, strict=True)
    ]


def judge(gp: LKGP, model: LKGP | FieldModel) -> tuple[str, str]:
    """Whether a model that was loaded predicts finite numbers."""
    if gp.posterior_.plan.method.num_samples * gp.grid_.num_cells > MOST_SAMPLED:
        return "not tried", ""
    try:
        numbers = [*gp.predict(), *gp.predict(elsewhere(gp)), gp.sample(2)]
        if isinstance(model, FieldModel):
            numbers += [array.values for array in model.predict(observation_noise=False).data_vars.values()]
            numbers[-2:] = [values[np.isfinite(model.observed.values)] for values in numbers[-2:]]
    except Exception as error:
        return f"{type(error).__name__} while predicting", str(error)
    finite = all(bool(np.isfinite(np.asarray(values)).all()) for values in numbers)
    return ("sound", "") if finite else ("predictions that are not finite", "")
