import pytest
from fields import small_field
from station_data import station_table


@pytest.fixture
def small(tmp_path):
    """A small file with gaps."""
    field = small_field(places=(2, 3), times=16).rename("t2m")
    path = tmp_path / "in.nc"
    field.to_dataset().to_netcdf(path)
    return path


@pytest.fixture(scope="session")
def stations():
    return station_table()
