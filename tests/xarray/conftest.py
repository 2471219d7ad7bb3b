"""A small field with gaps and the model of it, fitted once."""

import pytest
from fields import small_field

import lkgp.xarray


@pytest.fixture(scope="session")
def field():
    return small_field()


@pytest.fixture(scope="session")
def model(field):
    return lkgp.xarray.fit(field)
