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

from lkgp.errors import FileError
from lkgp.persistence.atomic import write_atomically
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
    metadata = {"format": FORMAT, "version": str(VERSION), "model": model, "checksum": checksum(model, tensors)}

    def save(temporary: Path) -> None:
        try:
            save_file({name: value.cpu().contiguous() for name, value in tensors.items()}, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from None

    write_atomically(Path(path), save)


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the header and the tensors of a model file."""
    if not Path(path).is_file():
        raise FileError(f"{path} does not exist or is not a file; give the path of a model saved by lkgp.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(
            f"{path} is not a model saved by lkgp, or it is damaged ({error}); save the model again."
        ) from None
    if metadata.get("format") != FORMAT:
        raise FileError(f"{path} is a safetensors file, but not a model saved by lkgp.")
    if metadata.get("version") not in ("1", str(VERSION)):
        raise FileError(
            f"{path} has format version {metadata.get('version')}, but this lkgp reads versions up to {VERSION} only; "
            "install a newer lkgp."
        )
    try:
        if metadata["checksum"] != checksum(metadata["model"], tensors):
            raise FileError(
                f"{path} is damaged: its checksum does not match its contents; copy the file or save the model again."
            )
        header = json.loads(metadata["model"])
        return (header, tensors) if metadata["version"] == str(VERSION) else migrate(header, tensors)
    except (KeyError, json.JSONDecodeError):
        raise FileError(
            f"{path} is damaged: the description of its model cannot be read; save the model again."
        ) from None
