"""Kernels over rows of equally spaced points are their matrices: on the sphere, around it, and in the plane."""

import numpy as np
import pytest
import torch
from factor_checks import check_draws, check_gradients, check_is_matrix, dense_of, kernel_of

from lkgp import InputError
from lkgp.linalg.circles import Circles
from lkgp.linalg.factors import circles
from lkgp.model import Term


def on_sphere(latitude, longitude, share=0.8, seed=0):
    """Some points of a grid in degrees, in random order, shifted and scaled as fields are, (n, 3)."""
    lat, lon = (np.deg2rad(x).ravel() for x in np.meshgrid(latitude, longitude, indexing="ij"))
    places = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
    order = np.random.default_rng(seed).permutation(len(places))[: int(share * len(places))]
    scaled = 6371 * places[order]
    return torch.as_tensor((scaled - scaled.mean(axis=0)) / np.sqrt(scaled.var(axis=0).mean()))


def in_plane(flip=False, share=0.8, seed=0):
    across, along = np.array([0.0, 0.13, 0.5, 0.56, 1.4]), 0.2 * np.arange(14) - 1
    whole = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1).reshape(-1, 2)
    order = np.random.default_rng(seed).permutation(len(whole))[: int(share * len(whole))]
    return torch.as_tensor(whole[order][:, ::-1].copy() if flip else whole[order])


LATITUDES = np.array([-90 + 1e-6, -60.0, -31.0, 0.0, 12.5, 60.0, 89.0])
CASES = {
    "around the Earth": on_sphere(LATITUDES, np.arange(-180, 180, 20.0)),
    "an odd number of places": on_sphere(LATITUDES, np.arange(0, 360, 24.0)),
    "a part of the Earth": on_sphere(np.array([35.0, 36.1, 36.9, 41.0]), np.arange(-10, 12, 1.5)),
    "across the date line": on_sphere(np.array([-12.0, 3.0, 8.0]), np.arange(170, 195, 1.0)),
    "plane": in_plane(),
    "plane, columns exchanged": in_plane(flip=True),
}


def circles_factor(kernel, coords):
    return Term([kernel]).factor(0, coords, "circles")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kernel", ["0.5", "2.5", "rq"])
def test_products_and_parts(name, kernel):
    coords = CASES[name]
    check_is_matrix(circles_factor(kernel_of(kernel), coords).detach(), dense_of(kernel, 0.7, coords), atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    check_gradients(lambda: kernel_of("1.5"), CASES[name], "circles")


def test_a_length_scale_for_every_column_of_the_plane():
    coords = CASES["plane"]
    factor = circles_factor(kernel_of("1.5", (0.4, 0.9), dims=2), coords).detach()
    check_is_matrix(factor, dense_of("1.5", (0.4, 0.9), coords))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kernel", ["0.5", "1.5"])
def test_draws_have_the_covariance(name, kernel):
    coords = CASES[name]
    factor = circles_factor(kernel_of(kernel, 0.3), coords).detach()
    assert factor.noise_root().way.startswith("circulant embedding in")
    check_draws(factor, dense_of(kernel, 0.3, coords), atol=1e-9)


def test_an_embedding_that_stays_negative_is_named_and_replaced():
    coords = CASES["plane"]
    factor = circles_factor(kernel_of("rbf", 30.0), coords).detach()
    assert factor.noise_root().way.endswith("because the embedding in circles is not positive")
    check_draws(factor, dense_of("rbf", 30.0, coords))


def test_the_date_line_is_no_edge():
    factor = circles_factor(kernel_of("0.5"), CASES["around the Earth"])
    assert factor.closed
    assert factor.length == 18
    assert not circles_factor(kernel_of("0.5"), CASES["across the date line"]).closed


def test_products_in_many_chunks_are_the_same(monkeypatch):
    coords = CASES["around the Earth"]
    monkeypatch.setattr(circles, "WORK_ENTRIES", 50)
    check_is_matrix(circles_factor(kernel_of("0.5"), coords).detach(), dense_of("0.5", 0.7, coords), atol=1e-9)
    check_gradients(lambda: kernel_of("0.5"), coords, "circles")


def test_repeated_points():
    for name in ("around the Earth", "plane"):
        coords = torch.cat([CASES[name], CASES[name][:4]])
        factor = circles_factor(kernel_of("0.5", 0.3), coords).detach()
        check_is_matrix(factor, dense_of("0.5", 0.3, coords), atol=1e-9)
        check_draws(factor, dense_of("0.5", 0.3, coords), atol=1e-9)


def test_what_has_no_such_rows_is_rejected():
    crooked = on_sphere(LATITUDES, np.arange(-180, 180, 20.0) + 0.3 * np.sin(np.arange(18)))
    scattered = torch.rand(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bent = CASES["plane"] + 0.02 * torch.sin(9 * CASES["plane"])
    for coords in (crooked, scattered, bent, CASES["around the Earth"][:1]):
        with pytest.raises(InputError, match="rows of equally spaced points"):
            circles_factor(kernel_of("0.5"), coords)
    with pytest.raises(InputError, match="rows of equally spaced points"):
        circles_factor(kernel_of("0.5", (0.4, 0.9, 0.5), dims=3), CASES["around the Earth"])


def test_it_is_chosen_where_it_pays(monkeypatch):
    monkeypatch.setattr(circles, "CIRCLES_PAY", 40)
    for coords in CASES.values():
        assert Term([kernel_of("0.5")]).structures([coords[:41]])[0] in ("circles", "dense")
    assert Term([kernel_of("0.5")]).structures([CASES["around the Earth"]]) == ("circles",)
    assert Term([kernel_of("0.5")]).structures([CASES["plane"]]) == ("circles",)
    assert Term([kernel_of("0.5")]).structures([CASES["plane"][:30]]) == ("dense",)
    assert Term([kernel_of("0.5", (0.4, 0.9, 0.5), dims=3)]).structures([CASES["around the Earth"]]) == ("dense",)


def test_small_and_large_parts_of_the_earth_are_recognised():
    for width in (0.5, 5.0, 80.0):
        coords = on_sphere(50 + np.linspace(0, width / 3, 20), 7 + np.linspace(0, width, 30), share=0.6)
        assert Circles.on_sphere(coords, 10_000).length == 30


def test_a_regular_plane_is_a_lattice(monkeypatch):
    monkeypatch.setattr(circles, "CIRCLES_PAY", 40)
    monkeypatch.setattr("lkgp.linalg.factors.lattice.LATTICE_PAYS", 40)
    axes = torch.arange(8, dtype=torch.float64)
    coords = torch.cartesian_prod(axes, axes * 0.3)
    assert Term([kernel_of("0.5")]).structures([coords]) == ("lattice",)
