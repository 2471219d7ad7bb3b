"""The paths of `lkgp fill`, all of which are checked before the fit."""

from dataclasses import dataclass
from pathlib import Path

from lkgp.cli.outputs import check_outputs, given_paths
from lkgp.errors import InputError
from lkgp.persistence.paths import check_distinct
from lkgp.xarray.formats import is_table
from lkgp.xarray.formats.files import find_written_format


@dataclass(frozen=True)
class FillPaths:
    """What is read and written; None is a path that was not given.

    model: with several variables, the models have names of their own that follow from it
    overwrite: whether existing files may be replaced
    """

    source: Path
    output: Path
    report: Path | None
    model: Path | None
    overwrite: bool

    def check(self) -> None:
        """Refuse all paths that can be refused before the input is read."""
        if is_table(self.source) != is_table(self.output):
            raise InputError(
                f"{self.source.name} and {self.output.name} must both be tables, or both be gridded files."
            )
        # Until the names of the variables are known, --model stands for the files whose names follow from it.
        outputs = {"OUTPUT": self.output, "--report": self.report, "--model": self.model}
        check_distinct({"INPUT": self.source}, given_paths(outputs))
        self._check_with({})

    def model_files(self, variables: list[str]) -> list[Path]:
        """Where to save the model of each variable, after a check; empty if no models are to be saved."""
        named = named_models(self.model, variables)
        self._check_with(named)
        return list(named.values())

    def _check_with(self, models: dict[str, Path]) -> None:
        outputs = {"OUTPUT": self.output, "--report": self.report, **models}
        folders = ["OUTPUT"] if find_written_format(self.output).is_folder else []
        check_outputs({"INPUT": self.source}, outputs, overwrite=self.overwrite, folders=folders)


def named_models(path: Path | None, variables: list[str]) -> dict[str, Path]:
    """The files of the models by names for messages: one for each variable."""
    if path is None:
        return {}
    if len(variables) == 1:
        return {"--model": path}
    # A slash in the name of a variable does not name a folder.
    return {
        f"--model for {name}": path.with_name(f"{path.stem}-{name.replace('/', '_')}{path.suffix}")
        for name in variables
    }
