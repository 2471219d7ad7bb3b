"""How variables are encoded in a file: packing, compression, chunks, fill values."""

from collections.abc import Mapping
from dataclasses import dataclass

import xarray as xr

# Entries that say where a variable came from, and codecs of Zarr, which depend on its version.
ORIGIN = ("source", "original_shape", "preferred_chunks", "compressor", "compressors", "filters", "serializer")


@dataclass(frozen=True)
class EncodingRules:
    """What a file format accepts.

    unknown: entries of an encoding that the format does not know
    text_dtype: whether the data type of text is part of its encoding
    """

    unknown: tuple[str, ...]
    text_dtype: bool


def known_encoding(dataset: xr.Dataset, rules: EncodingRules) -> xr.Dataset:
    """The dataset without entries of its encodings that describe their origin, or that a file format does not know."""
    result = dataset.copy()
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    for name, variable in result.variables.items():
        encoding = {key: value for key, value in variable.encoding.items() if key not in ORIGIN + rules.unknown}
        sizes = encoding.get("chunksizes")
        if sizes is not None and (
            len(sizes) != variable.ndim or any(size > n for size, n in zip(sizes, variable.shape, strict=True))
        ):
            del encoding["chunksizes"]
        if not rules.text_dtype and variable.dtype.kind not in "fiubMm":
            encoding.pop("dtype", None)
        fill, missing = encoding.get("_FillValue"), encoding.get("missing_value")
        if fill is not None and missing is not None and not xr.DataArray(fill).equals(xr.DataArray(missing)):
            del encoding["missing_value"]  # both were read as missing, but xarray writes only one
        if variable.dtype.kind == "f" and (name in dataset.coords or name in bounds):
            encoding.setdefault("_FillValue", None)  # or xarray would add one
        variable.encoding = encoding
    return result


def without_default_fill_values(groups: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Datasets as they are stored, to which xarray adds no fill values when it writes them again."""
    for dataset in groups.values():
        for variable in dataset.variables.values():
            if variable.dtype.kind == "f" and "_FillValue" not in variable.attrs:
                variable.encoding["_FillValue"] = None
    return dict(groups)
