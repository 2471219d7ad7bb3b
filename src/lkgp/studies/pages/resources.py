"""The section about time and memory with and without latent Kronecker structure."""

from pathlib import Path

from lkgp.studies.pages import figures
from lkgp.studies.pages.sections import measured_on
from lkgp.studies.records import read


def write(results: Path, page: Path) -> list[str]:
    """The lines of the section; its figure is written beside the page."""
    records = read(results / "synthetic.jsonl")
    if not records:
        return []
    picture = page.with_name("experiment-synthetic.png")
    figures.synthetic(records, picture)
    largest = {
        way: max((r["side"] ** 2 for r in records if r["structured"] == way), default=0) for way in (True, False)
    }
    return [
        "## Resources on synthetic data (figure 2)",
        "",
        "`lkgp experiment synthetic`: balanced grids over ten-dimensional points, float32, one vector. The grids have "
        f"up to {largest[True]:.0e} cells with latent structure; the largest matrix that was tried without it has "
        f"{largest[False]:.0e} rows.",
        "",
        f"![Time and memory with and without latent structure]({picture.name})",
        "",
        measured_on(records),
        "",
    ]
