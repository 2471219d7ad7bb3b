"""`lkgp validate`."""

import json
from typing import Annotated

from lkgp.cli.console import print_line, typer
from lkgp.cli.errors import report_errors
from lkgp.cli.options import AsJson, SavedModel
from lkgp.xarray import FieldModel


def validate(
    model: SavedModel,
    share: Annotated[float, typer.Option(help="The share of observed cells to withhold.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Check the error bars of a saved model on values withheld from it.

    Values are withheld in gaps that resemble those of the data and predicted from the others; the predictions are
    scored alongside those of simpler methods.
    """
    with report_errors():
        found = FieldModel.load(model).validate(share=share, seed=seed)
        print_line(json.dumps(found.to_dict()) if as_json else str(found))
