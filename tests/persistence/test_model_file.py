"""Saved models come back bit for bit; anything else is refused with a sentence."""

import json
import pickle

import numpy as np
import pytest
import torch
from curves_data import curves
from gpytorch.kernels import PolynomialKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import GammaPrior
from safetensors import safe_open
from safetensors.torch import save_file

from lkgp import (
    LKGP,
    ConjugateGradients,
    Direct,
    FileError,
    InputError,
    Iterative,
    KroneckerEigenbasis,
    LatentKroneckerGP,
    NotFittedError,
    Spectral,
)
from lkgp.persistence.model_file import checksum


@pytest.fixture(
    params=["auto", Iterative(num_samples=8, preconditioner=KroneckerEigenbasis())], ids=["direct", "iterative"]
)
def gp(request):
    X, T, Y, _ = curves()
    return LKGP(noise=0.02, solver=request.param, seed=5).fit([X, T], Y, optimize=False)


@pytest.fixture
def path(tmp_path):
    X, T, Y, _ = curves()
    LKGP().fit([X, T], Y, optimize=False).save(tmp_path / "model.lkgp")
    return tmp_path / "model.lkgp"


def rewrite(path, change_header=lambda header: None, change_tensors=lambda tensors: None, **metadata):
    with safe_open(path, framework="pt") as file:
        known, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(known["model"])
    change_header(header)
    change_tensors(tensors)
    model = json.dumps(header)
    save_file(tensors, path, metadata={**known, "model": model, "checksum": checksum(model, tensors), **metadata})


def test_predictions_are_the_same_bit_for_bit(gp, tmp_path):
    X, T, Y, _ = curves()
    new = [X[:4] + 0.05, T]
    draws = gp.sample(3, new, seed=9)  # off the grid, before saving
    gp.save(tmp_path / "model.lkgp")
    loaded = LKGP.load(tmp_path / "model.lkgp")
    for coords in (None, new):
        for a, b in zip(gp.predict(coords), loaded.predict(coords), strict=True):
            assert np.array_equal(a, b)
    assert np.array_equal(loaded.sample(3, new, seed=9), draws)
    assert np.array_equal(loaded.sample(3, None, seed=10), gp.sample(3, None, seed=10))
    assert loaded.log_marginal_likelihood() == gp.log_marginal_likelihood()
    assert str(loaded.report_).splitlines()[0] == str(gp.report_).splitlines()[0]
    loaded.update(np.where(np.isnan(Y), 10.0, Y))
    assert loaded.grid_.num_observed == Y.size
    loaded.fit([X, T], Y, optimize=False)


def test_known_noise_and_torch_come_back(tmp_path):
    X, T, Y, _ = curves()
    tensor = torch.tensor(Y, dtype=torch.float32)
    gp = LKGP().fit([X, T], tensor, noise_variance=0.04 * torch.ones_like(tensor), optimize=False)
    gp.save(tmp_path / "m.lkgp")
    loaded = LKGP.load(tmp_path / "m.lkgp")
    mean, std = loaded.predict(observation_noise=True)
    assert mean.dtype == torch.float32
    assert torch.equal(std, gp.predict(observation_noise=True)[1])


def test_a_noise_model_without_kernels_and_numpy_numbers_come_back(tmp_path):
    X, T, Y, _ = curves()
    likelihood = GaussianLikelihood(noise_prior=GammaPrior(2.0, 20.0))
    likelihood.noise = 0.3
    likelihood.raw_noise.requires_grad_(False)
    gp = LKGP(
        noise=likelihood,
        mean=np.float32(0.5),
        seed=np.int64(3),
        max_memory=np.float64(1e9),
        solver=Direct(tolerance=np.float64(1e-9)),
    )
    gp.fit([X, T], Y, optimize=False).save(tmp_path / "m.lkgp")
    loaded = LKGP.load(tmp_path / "m.lkgp")
    assert loaded.noise.noise.item() == pytest.approx(0.3)
    assert not loaded.noise.raw_noise.requires_grad
    assert isinstance(loaded.noise.noise_covar.noise_prior, GammaPrior)
    assert (loaded.mean, loaded.seed, loaded.max_memory, loaded.solver) == (0.5, 3, 1e9, Direct(tolerance=1e-9))
    np.testing.assert_array_equal(loaded.predict()[0], gp.predict()[0])
    # It can be fitted again, and then behaves as the one that was saved.
    np.testing.assert_array_equal(loaded.fit([X, T], Y, optimize=False).predict()[0], gp.predict()[0])


def test_draws_with_numpys_seeds_are_saved(tmp_path):
    X, T, Y, _ = curves()
    gp = LKGP(seed=np.int64(3), solver=Spectral(num_samples=4)).fit([X, T], Y, optimize=False)
    std, draws = gp.predict()[1], gp.sample(2, seed=np.int64(4))
    gp.save(tmp_path / "m.lkgp")
    loaded = LKGP.load(tmp_path / "m.lkgp")
    assert np.array_equal(loaded.predict()[1], std)
    assert np.array_equal(loaded.sample(2, seed=4), draws)


def test_a_kernel_that_is_given_twice_is_two(tmp_path):
    X, T, Y, _ = curves()
    kernel = RBFKernel(lengthscale_prior=GammaPrior(2.0, 1.0))
    gp = LKGP([kernel, kernel]).fit([X[:, :1], T], Y)
    lengths = [part.lengthscale.item() for part in gp.model_.kernels]
    assert lengths[0] != lengths[1]
    gp.save(tmp_path / "m.lkgp")
    loaded = LKGP.load(tmp_path / "m.lkgp")
    assert [part.lengthscale.item() for part in loaded.model_.kernels] == lengths
    assert np.array_equal(loaded.predict()[1], gp.predict()[1])
    # In a model that shares it, its prior counts once; within one factor, a file could not keep that it is shared.
    one, two = LatentKroneckerGP([kernel]), LatentKroneckerGP([kernel, kernel])
    assert float(one.log_prior().detach()) == float(two.log_prior().detach())
    shared = LKGP([kernel + kernel, RBFKernel()]).fit([X[:, :1], T], Y, optimize=False)
    with pytest.raises(InputError, match="the model contains the same kernel twice"):
        shared.save(tmp_path / "m.lkgp")


def test_a_file_has_no_pickle_in_it(path):
    assert b"__reduce__" not in path.read_bytes()
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(path.read_bytes())


def test_what_is_not_ours_is_refused(tmp_path, path):
    with pytest.raises(FileError, match="does not exist or is not a file"):
        LKGP.load(tmp_path / "nothing")
    other = tmp_path / "other"
    other.write_text("latitude,longitude\n")
    with pytest.raises(FileError, match="not a model saved by lkgp"):
        LKGP.load(other)
    other.write_bytes(pickle.dumps({"model": 1}))
    with pytest.raises(FileError, match="not a model saved by lkgp"):
        LKGP.load(other)
    save_file({"a": torch.ones(3)}, other)
    with pytest.raises(FileError, match="but not a model saved by lkgp"):
        LKGP.load(other)


def test_damaged_files_are_refused(tmp_path, path):
    whole = path.read_bytes()
    for length in (0, 7, 100, len(whole) // 2, len(whole) - 8):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(FileError):
            LKGP.load(tmp_path / "cut")
    rewrite(path, change_tensors=lambda tensors: tensors.pop("weights"))
    with pytest.raises(FileError, match="damaged"):
        LKGP.load(path)


def test_flipped_bits_are_noticed(path):
    whole = bytearray(path.read_bytes())
    whole[-11] ^= 0x10
    path.write_bytes(bytes(whole))
    with pytest.raises(FileError, match="checksum"):
        LKGP.load(path)


def test_unknown_kernels_and_versions_are_refused(path):
    whole = path.read_bytes()

    def rename(header):
        header["model"]["terms"][0][1]["class"] = "os.system"

    rewrite(path, rename)
    with pytest.raises(FileError, match=r"uses the kernel 'os\.system', which this lkgp does not know"):
        LKGP.load(path)
    path.write_bytes(whole)
    rewrite(path, version="99")
    with pytest.raises(FileError, match="format version 99"):
        LKGP.load(path)


def test_what_cannot_be_saved_is_said_and_nothing_is_lost(tmp_path, path):
    X, T, Y, _ = curves()
    before = path.read_bytes()
    strange = LKGP([PolynomialKernel(power=2), RBFKernel()]).fit([X, T], Y, optimize=False)
    with pytest.raises(InputError, match="PolynomialKernel cannot be saved; use one of"):
        strange.save(path)
    assert path.read_bytes() == before

    class OwnSolver:
        rtol = 1e-6

        def solve(self, operator, rhs, **rest):
            return ConjugateGradients().solve(operator, rhs, **rest)

        def __repr__(self):
            return "OwnSolver()"

    likelihood = GaussianLikelihood()
    likelihood.register_prior("noise_prior", GammaPrior(2.0, 20.0), "noise")
    with pytest.raises(InputError, match="the prior 'noise_prior' cannot be saved"):
        LKGP(noise=likelihood).fit([X, T], Y, optimize=False).save(path)
    own = LKGP().fit([X, T], Y, optimize=False)
    own.solver = OwnSolver()
    with pytest.raises(InputError, match=r"the setting OwnSolver\(\) cannot be saved"):
        own.save(path)
    assert path.read_bytes() == before
    with pytest.raises(NotFittedError):
        LKGP().save(path)
    with pytest.raises(FileError, match="cannot be written"):
        LKGP().fit([X, T], Y, optimize=False).save(tmp_path / "no" / "such" / "folder.lkgp")
    assert [p.name for p in tmp_path.iterdir()] == ["model.lkgp"]


def test_a_folder_is_not_replaced_by_a_model(tmp_path):
    X, T, Y, _ = curves()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "keep.txt").write_text("keep me")
    with pytest.raises(FileError, match="models is a folder"):
        LKGP().fit([X, T], Y, optimize=False).save(tmp_path / "models")
    assert (tmp_path / "models" / "keep.txt").read_text() == "keep me"
