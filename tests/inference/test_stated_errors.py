"""Errors that are stated are at least as large as the errors that are made: of likelihoods and of draws."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import Case, name

from lkgp import ObservationSpace, PivotedCholesky, Plan, Spectral, condition, from_array
from lkgp.inference import Probes, log_likelihood
from lkgp.inference.base import SMALL_ERROR
from lkgp.linalg.quadrature import trace_of_log

WAYS = {"modes": Spectral(), "cells": ObservationSpace(), "dense": ObservationSpace(dense=True)}


def alone(lengths, **words):
    """A block is missing from a 9 x 5 x 2 grid of nearly independent points: some modes live in the gap alone."""
    case = Case("points nearly alone", (9, 5, 2), "block", kinds=("matern", "matern", "rbf"), noise=1.6e-5, **words)
    case.lengthscales = [np.array([length]) for length in lengths]
    return case


GAPS = [
    alone((0.04, 0.06, 3.0), regular=True),
    alone((0.17, 0.02, 0.03)),
    Case("curves, little noise", (9, 20), "curves", kinds=("matern", "rbf"), regular=True, noise=1e-5),
    Case("known noise over four decades", (12, 11), "random", cell_noise=True),
]
GAPS[-1].cell_variance[:] = 10.0 ** np.random.default_rng(0).uniform(-5, -1, GAPS[-1].shape)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", GAPS, ids=name)
def test_the_error_of_draws_is_small_compared_with_the_posterior_in_every_cell(case, way):
    """The weights of draws against the dense solution for the same draws: no chance is involved."""
    data, oracle = case.data(), case.oracle()
    posterior = condition(case.build(), data, Plan(WAYS[way], ""))
    right_hand_sides = []
    solve = posterior.system.solve

    def spy(rhs, *words):
        right_hand_sides.append(rhs.clone())
        return solve(rhs, *words)

    posterior.system.solve = spy
    draws = posterior.draws(64, seed=0)
    assert draws.solution.converged
    error = draws.weights.numpy() - np.linalg.solve(oracle.matrix, torch.cat(right_hand_sides, dim=1).numpy())
    cross, _ = oracle._blocks(case.coords)
    size = np.sqrt(np.square(cross @ error).mean(axis=1))
    std = np.sqrt(oracle.variance_at(case.coords)).ravel()
    # half as much again in cells that are not observed
    assert (size / std).max() <= 1.5 * SMALL_ERROR


@pytest.mark.parametrize("steps", [2, 5, 10])
@pytest.mark.parametrize("way", WAYS)
def test_the_bias_of_a_short_quadrature_is_part_of_the_stated_error(way, steps):
    for gaps in ("curves", "block", "random"):
        case = Case("hard", (9, 20), gaps, kinds=("matern", "rbf"), regular=True, noise=1e-5)
        method = replace(WAYS[way], num_probes=200)
        if way != "modes":
            method = replace(method, preconditioner=None)
        system = method.system(case.build(), case.data(), columns=8)
        value, error = system.log_determinant(0, steps=steps)
        truth = np.linalg.slogdet(case.oracle().matrix)[1]
        assert abs(float(value) - truth) <= 3 * error + 2 * system.truncation * len(system.noise)


def test_gauss_and_radau_rules_enclose_the_trace():
    """With probes of the whole space, only the bias is left, and three stated errors cover it but no more."""
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.logspace(0, 5, 40, dtype=torch.float64)
    q, _ = torch.linalg.qr(torch.randn(40, 40, generator=generator, dtype=torch.float64))
    matrix, whole = q @ torch.diag(spectrum) @ q.mT, math.sqrt(40) * torch.eye(40, dtype=torch.float64)
    truth = float(spectrum.log().sum())
    for steps in (1, 3, 8, 20):
        value, error = trace_of_log(matrix.__matmul__, whole, steps, lowest=1.0, whole=True)
        assert 0 <= float(value) - truth <= 3 * error
    value, error = trace_of_log(matrix.__matmul__, whole, 40, lowest=1.0, whole=True)
    assert float(value) == pytest.approx(truth, abs=1e-8)
    assert error < 1e-8


@pytest.mark.parametrize("rank", [None, 1, 3], ids=lambda rank: f"rank {rank}")
def test_few_observations_with_little_noise_have_an_exact_determinant(rank):
    """However poor the preconditioner is; quadrature would lose digits in proportion to the condition number."""
    case = Case("eleven cells", (3, 4), "one missing", kinds=("rbf", "matern"), regular=True, noise=1e-8)
    case.lengthscales = [np.array([1.5]), np.array([1.5])]
    preconditioner = None if rank is None else PivotedCholesky(rank)
    system = ObservationSpace(preconditioner=preconditioner).system(case.build(), case.data(), columns=8)
    value, error = system.log_determinant(0)
    assert abs(float(value) - np.linalg.slogdet(case.oracle().matrix)[1]) <= 3 * error
    assert 0 < error < 1e-5


@pytest.mark.parametrize("size", [(2, 2), (7, 6)], ids=["few cells", "more cells"])
@pytest.mark.parametrize("way", WAYS)
def test_one_probe_states_an_error_that_covers_it(way, size):
    """The scatter of one estimate is unknown; its error is not."""
    case = Case("correlated", size, "one missing", regular=True, noise=0.01)
    truth = case.oracle().log_likelihood()
    model, data, method = case.build(), case.data(), replace(WAYS[way], num_probes=1)
    posterior = condition(model, data, Plan(method, ""))
    beyond = 0
    for seed in range(25):
        posterior.seed = seed
        value, error = posterior.log_likelihood()
        beyond += abs(value - truth) > 3 * error + 1e-7
    assert beyond <= 1
    found = log_likelihood(model, data, method, Probes.draw(data, 1, 0))
    assert abs(float(found.objective.detach()) - truth) <= 4 * found.error + 1e-7


@pytest.mark.parametrize("way", WAYS)
def test_single_precision_states_its_rounding(way):
    case = Case("single", (12, 14), "block", kinds=("rbf", "rbf"), regular=True, noise=1e-3)
    method = replace(WAYS[way], num_probes=100)
    case.coords = [x.astype(np.float32).astype(float) for x in case.coords]
    case.y = case.y.astype(np.float32).astype(float)
    data = from_array([torch.tensor(x).float() for x in case.coords], torch.tensor(case.y).float())
    value, error = condition(case.build().float(), data, Plan(method, "")).log_likelihood()
    assert abs(value - case.oracle().log_likelihood()) <= 3 * error
    assert error > 1e-5
