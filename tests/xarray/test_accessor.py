"""The methods of `.lkgp` are the functions of lkgp.xarray, argument by argument."""

from inspect import Parameter, signature

import pytest

import lkgp.xarray
from lkgp.xarray.accessor import DatasetAccessor, FieldAccessor
from lkgp.xarray.model import FieldModel

PAIRS = {
    "fill": (FieldAccessor.fill, lkgp.xarray.fill),
    "fit": (FieldAccessor.fit, lkgp.xarray.fit),
    "inspect": (FieldAccessor.inspect, lkgp.xarray.inspect),
    "fill_dataset": (DatasetAccessor.fill, lkgp.xarray.fill_dataset),
}


def arguments(function):
    """All parameters but the first, which is the object itself."""
    return list(signature(function).parameters.values())[1:]


@pytest.mark.parametrize("name", PAIRS)
def test_methods_and_functions_have_the_same_signature(name):
    method, function = PAIRS[name]
    assert arguments(method) == arguments(function)
    assert signature(method).return_annotation == signature(function).return_annotation
    for parameter in arguments(function):
        assert parameter.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        assert parameter.annotation is not Parameter.empty


def test_fill_takes_all_that_fit_and_the_filling_of_a_model_take():
    parts = {parameter.name: parameter for parameter in arguments(lkgp.xarray.fit)}
    parts |= {parameter.name: parameter for parameter in arguments(FieldModel.fill) if parameter.name != "field"}
    whole = {parameter.name: parameter for parameter in arguments(lkgp.xarray.fill)}
    assert whole.pop("return_model").default is False
    assert whole == parts
    assert whole == {p.name: p for p in arguments(lkgp.xarray.fill_dataset) if p.name != "variables"}


def test_the_former_name_of_a_preview_stays():
    assert lkgp.xarray.Outlook is lkgp.xarray.Preview


def test_every_argument_arrives(field):
    """Passed through the accessors, each argument does what it does in the functions."""
    small = field.isel(time=slice(0, 10), latitude=[0, 1], longitude=[0, 1])
    previews = []
    filled, model = small.lkgp.fill(
        space=("latitude", "longitude"),
        time="time",
        seed=3,
        max_memory=2e9,
        on_preview=previews.append,
        smooth=True,
        never_observed=True,
        max_gap="1D",
        where=small.latitude > 0,
        calibrate=True,
        keep_attrs=False,
        return_model=True,
    )
    assert (model.gp.seed, model.gp.max_memory) == (3, 2e9)
    assert previews[0].factors == ["latitude x longitude (places on the sphere)", "time (time)"]
    assert "smoothed" in filled.attrs["history"]
    assert "comment" in filled.t2m_std.attrs
    assert "long_name" not in filled.t2m.attrs
    dataset = small.to_dataset().lkgp.fill(
        ["t2m"], factors=["latitude", "longitude", "time"], on_preview=previews.append
    )
    assert len(previews[1].factors) == 3
    assert "filled t2m" in dataset.attrs["history"]
