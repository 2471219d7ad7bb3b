"""`lkgp predict`."""

from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.coordinates import read_coordinates
from lkgp.cli.errors import report_errors
from lkgp.cli.options import At, Like, NoStd, Overwrite, PredictionOutput, SavedModel
from lkgp.cli.outputs import check_outputs
from lkgp.xarray import FieldModel
from lkgp.xarray.formats.files import find_written_format, write_dataset


def predict(
    model: SavedModel,
    output: PredictionOutput,
    at: At = None,
    like: Like = None,
    field_only: Annotated[
        bool, typer.Option("--field-only", help="Give error bars of the field itself, without measurement noise.")
    ] = False,
    no_std: NoStd = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict at other places and times with a saved model.

    Without --at and --like, predictions are for the grid of the data.
    """
    with report_errors():
        folders = ["OUTPUT"] if find_written_format(output).is_folder else []
        check_outputs({"MODEL": model, "--like": like}, {"OUTPUT": output}, overwrite=overwrite, folders=folders)
        fitted = FieldModel.load(model)
        coordinates = read_coordinates(fitted, at, like)
        write_dataset(fitted.predict(coordinates, observation_noise=not field_only, std=not no_std), output)
        print_line(f"wrote {output}")
