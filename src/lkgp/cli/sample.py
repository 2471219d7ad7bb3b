"""`lkgp sample`."""

from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.coordinates import read_coordinates
from lkgp.cli.errors import report_errors
from lkgp.cli.options import At, Like, Overwrite, PredictionOutput, SavedModel
from lkgp.cli.outputs import check_outputs
from lkgp.xarray import FieldModel
from lkgp.xarray.formats.files import find_written_format, write_dataset


def sample(
    model: SavedModel,
    output: PredictionOutput,
    samples: Annotated[int, typer.Option(help="The number of fields to draw.")] = 16,
    at: At = None,
    like: Like = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; by default, that of the model.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw random fields that agree with the data of a saved model.

    Without --at and --like, the fields are drawn on the grid of the data.
    """
    with report_errors():
        folders = ["OUTPUT"] if find_written_format(output).is_folder else []
        check_outputs({"MODEL": model, "--like": like}, {"OUTPUT": output}, overwrite=overwrite, folders=folders)
        fitted = FieldModel.load(model)
        coordinates = read_coordinates(fitted, at, like)
        write_dataset(fitted.sample(samples, coordinates, seed=seed).to_dataset(), output)
        print_line(f"wrote {output}")
