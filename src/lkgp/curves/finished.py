"""A training run that has finished."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lkgp.curves.configurations import Configuration, Space
from lkgp.curves.readers import Curve, as_curve


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run that has finished, or was stopped.

    number: its number, unique among all runs
    curve: {epoch: value}
    complete: whether it was trained to the end
    space: the parameters of its configuration, if they are known
    """

    number: int
    configuration: Configuration
    curve: Mapping[int, float]
    complete: bool
    space: Space | None = None

    @cached_property
    def seen(self) -> Curve:
        """Epochs in ascending order and the finite values there, both (epochs seen,)."""
        return as_curve(self.curve, self.number)

    @cached_property
    def digest(self) -> bytes:
        """A hash of the whole content: runs with the same number in other studies are different runs."""
        epochs, values = self.seen
        content = repr((self.number, self.complete, sorted(self.configuration.items(), key=repr), self.space))
        return hashlib.blake2b(content.encode() + epochs.tobytes() + values.tobytes(), digest_size=16).digest()
