"""Model files: safetensors files with a JSON description in the header. Nothing in them is executed."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lkgp.errors import FileError, InputError
from lkgp.persistence.atomic import first_line, write_atomically
from lkgp.persistence.damage import DamageError, naming_the_file
from lkgp.persistence.header import MAX_CHARACTERS, MAX_CONTAINERS, MAX_DEPTH, check_depth
from lkgp.persistence.version1 import migrate

FORMAT, VERSION = "lkgp", 2


@dataclass(frozen=True, eq=False)
class ModelContents:
    """The contents of a model file.

    header: plain data that JSON can represent; tensors: tensors by name; source: where it was read from, for messages
    """

    header: dict[str, Any]
    tensors: dict[str, Tensor]
    source: str = "the model"

    def write(self, path: str | Path) -> None:
        """Write a model file; an existing one is replaced only once the new one is complete."""
        write(path, self.header, self.tensors)

    @classmethod
    def read(cls, path: str | Path) -> "ModelContents":
        """Read and check a model file."""
        header, tensors = read(path)
        return cls(header, tensors, str(path))


def checksum(model: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 checksum of the description and all tensors of a file."""
    digest = hashlib.sha256(model.encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write(path: str | Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a model file; an older file of that name is replaced only once the new one is complete."""
    model = json.dumps(header)
    try:
        read_description(model, tensors)
    except DamageError as damage:
        raise InputError(f"the model cannot be saved: {damage}; simplify it.") from None
    metadata = {"format": FORMAT, "version": str(VERSION), "model": model, "checksum": checksum(model, tensors)}

    def save(temporary: Path) -> None:
        try:
            save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from None

    write_atomically(Path(path), save)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the header and the tensors of a model file."""
    try:
        if not Path(path).is_file():
            raise FileError(f"{path} does not exist or is not a file; give the path of a model saved by lkgp.")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileError:
        raise
    except Exception as error:  # for some damage, the library has errors of many classes
        raise FileError(
            f"{path} is not a model saved by lkgp, or it is damaged ({first_line(error)}); save the model again."
        ) from None
    if metadata.get("format") != FORMAT:
        raise FileError(f"{path} is a safetensors file, but not a model saved by lkgp.")
    if metadata.get("version") not in ("1", str(VERSION)):
        raise FileError(
            f"{path} has format version {metadata.get('version')}, but this lkgp reads versions up to {VERSION} only; "
            "install a newer lkgp."
        )
    if metadata.get("checksum") != checksum(metadata.get("model", ""), tensors):
        raise FileError(
            f"{path} is damaged: its checksum does not match its contents; copy the file or save the model again."
        )
    with naming_the_file(str(path)):
        header = read_description(metadata.get("model", ""), tensors)
        return (header, tensors) if metadata["version"] == str(VERSION) else migrate(header, tensors)


def read_description(text: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The description of a model, if it is no larger and no deeper than that of a model can be."""
    if len(text) > most_characters(tensors) or text.count("[") + text.count("{") > MAX_CONTAINERS:
        raise DamageError(f"its description, of {len(text)} characters, is too large for a model")
    try:
        header = json.loads(text)
    except RecursionError:
        raise DamageError(f"its description is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise DamageError(f"its description cannot be read ({first_line(error)})") from None
    if not isinstance(header, dict):
        raise DamageError("its description is not a set of entries")
    check_depth(header)
    return header


def most_characters(tensors: dict[str, Tensor]) -> int:
    """The largest length of a description for these tensors."""
    return MAX_CHARACTERS + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
