"""Damaged model files, with a checksum that is right again, are refused in a sentence or still predict numbers."""

import json
import re
import struct
from copy import deepcopy
from pathlib import Path

import gpytorch
import numpy as np
import pytest
from command_line import run
from curves_data import curves
from file_mutations import MOST_BYTES, File, mutations, outcome_of
from gpytorch.kernels import RBFKernel, ScaleKernel
from model_files import KINDS

from lkgp import LKGP, FileError, InputError
from lkgp.persistence import kernel_checks
from lkgp.xarray import FieldModel

OLD = Path(__file__).parent / "version1"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """The undamaged content of a file of every kind, by name."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name, write in KINDS.items():
        write(folder / name)
        found[name] = (folder / name).read_bytes()
    return found | {path.stem: path.read_bytes() for path in sorted(OLD.glob("*.lkgp"))}


def refusal(content):
    """The sentence with which a file is refused."""
    outcome = outcome_of(content)
    assert outcome.verdict == "refused", outcome
    assert outcome.memory < MOST_BYTES
    return outcome.message


@pytest.mark.parametrize("name", [*KINDS, *(path.stem for path in sorted(OLD.glob("*.lkgp")))])
def test_damaged_files_are_refused_or_sound(name, originals):
    """A sample; tests/torture/fuzz_model_files.py tries thousands."""
    assert outcome_of(originals[name]).verdict == "sound"
    for damage, content in mutations(originals[name], seed=len(name), count=12):
        outcome = outcome_of(content)
        assert not outcome.is_violation, (damage, outcome)


@pytest.mark.parametrize("name", KINDS)
def test_every_tensor_is_checked(name, originals):
    """A tensor that is missing, of another shape, or not finite, is named."""
    whole = File.parse(originals[name])
    for tensor, (dtype, shape, raw) in whole.tensors.items():
        changes = {"is missing": None, "shape": (dtype, [1, *shape], raw)}
        if tensor == "noise_everywhere":
            changes = {"does not match": changes["shape"]}
        if dtype in ("F64", "F32") and tensor != "noise_everywhere":
            nan = struct.pack("<d" if dtype == "F64" else "<f", float("nan"))
            changes["NaN or infinite"] = (dtype, shape, nan + raw[len(nan) :])
        if tensor in ("noise_variance", "scatter"):
            del changes["is missing"]  # they are optional
        for message, changed in changes.items():
            file = deepcopy(whole)
            del file.tensors[tensor]
            file.tensors |= {} if changed is None else {tensor: changed}
            said = refusal(file.pack())
            assert message in said, said
            assert tensor.rpartition(".")[0] in said


def nested(kernel, depth):
    for _ in range(depth):
        kernel = {"class": "AdditiveKernel", "arguments": {}, "parameters": {}, "parts": [kernel]}
    return kernel


def test_large_kernels_in_small_files_are_refused(originals):
    whole = File.parse(originals["learned_and_drawn"])
    leaf = {"class": "RBFKernel", "arguments": {}, "parameters": {}, "ard_num_dims": None, "active_dims": None}
    for kernel, message in (
        (nested(leaf, 25), "nested too deeply"),
        (nested(leaf, 150), "more than 64 levels deep"),
        (leaf | {"ard_num_dims": 10**9}, "length scales"),
        (leaf | {"active_dims": [5]}, "reads columns"),
        (leaf | {"class": "IndexKernel", "num_tasks": 30_000, "rank": 30_000}, "more categories"),
        (leaf | {"arguments": {"batch_shape": [10**9]}}, "settings that do not belong to it"),
        (leaf | {"parameters": {"outputscale_prior": {}}}, "settings that do not belong to it"),
    ):
        file = deepcopy(whole)
        file.header["model"]["terms"][0][0] = kernel
        assert message in refusal(file.pack())


def test_large_descriptions_are_refused(originals):
    whole = File.parse(originals["learned_and_drawn"])
    for text, message in (
        ("[" * 100_000, "too large for a model"),
        ("[" * 20_000, "64 levels deep"),
        ("[" * 100 + "]" * 100, "not a set of entries"),
        ('{"a":' * 100 + "0" + "}" * 100, "64 levels deep"),
        ("[" + "[]," * 200_000 + "[]]", "too large for a model"),
        ('"' + "x" * 3_000_000 + '"', "too large for a model"),
        ("9" * 5000, "cannot be read"),
        ("null", "not a set of entries"),
    ):
        assert message in refusal(whole.pack(text))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("settings", "seed"), 2**64, "settings.seed is a number beyond 64 bits"),
        (("settings", "seed"), "0", "settings.seed is '0', which is not a whole number"),
        (("settings", "noise"), -1.0, "not positive"),
        (("settings", "max_memory"), float("nan"), "not positive"),
        (("settings", "dtype"), "float16", "not 'float32' or 'float64'"),
        (("settings", "solver", "num_samples"), 0, "positive"),
        (("settings", "solver", "num_samples"), "4", "does not belong there"),
        (("settings", "solver", "strange"), 4, "unknown entry 'strange'"),
        (("plan", "method"), {"class": "Cost", "multiplications": 1.0, "memory": 1.0}, "does not belong there"),
        (("plan",), {"class": "BFGS"}, "does not name the inference method"),
        (("plan", "method"), {"class": "Direct", "axis": 7}, "axis=7 is not one of the factors"),
        (("solution", "reason"), "TIRED", "unknown reason"),
        (("solution", "residuals"), [], "0 residuals of 1 solves"),
        (("draws", 0, "num"), 10**9, "draws.0 has the shape"),
        (("draws", 1, "asked"), 10**9, "draws.1.1.0 is missing"),
        (("draws", 0, "seed"), 2**64 - 1, "too large"),
        (("draws",), [], "nothing refers to 'draws."),
        (("array", "library"), "jax", "not 'numpy' or 'torch'"),
        (("model", "terms"), [], "one kernel for each factor"),
        (("model", "frozen"), [1], "model.frozen is 1"),
        (("model", "noise", "likelihood", "noise_constraint", "lower"), -9.0, "noise"),
        (("report", "observed"), "many", "the entry 'observed' of the report"),
        (("report",), [], "report is a list"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_every_entry_is_checked(path, value, message, originals):
    file = File.parse(originals["learned_and_drawn"])
    target = file.header
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    assert message in refusal(file.pack())


def test_weights_that_do_not_belong_to_the_model_are_refused(originals):
    """Even where every number is plausible by itself."""
    whole = File.parse(originals["composed_kernels"])
    for tensor in ("weights", "values", "model.terms.0.kernels.2.kernels.0.raw_lengthscale", "coords.1"):
        file = deepcopy(whole)
        dtype, shape, raw = file.tensors[tensor]
        file.tensors[tensor] = dtype, shape, (np.frombuffer(raw, "<f8") * 1.5 + 0.25).tobytes()
        assert "do not solve the equations" in refusal(file.pack())


def test_labels_that_do_not_belong_to_the_model_are_refused(originals):
    whole = File.parse(originals["labelled_field"])
    for path, value, message in (
        (("scalings", 0, "shift"), [0.0, 0.0, 0.0], "do not give the points that the model was fitted to"),
        (("scalings", 1, "scale"), [0.0], "not finite and positive"),
        (("scalings", 1, "origin"), "yesterday", "do not make a model"),
        (("scalings", 0, "factor", "kind"), "cube", "is 'cube'"),
        (("dims",), ["time", "latitude"], "do not have the dimensions"),
        (("attrs",), 5, "field.attrs"),
        (("scalings",), [], "labels for 0 factors"),
    ):
        file = deepcopy(whole)
        target = file.header["field"]
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
        assert message in refusal(file.pack())
    for raw in (b"", b"\x89HDF\r\n\x1a\n" + bytes(100), whole.tensors["field.labels"][2][:3000]):
        file = deepcopy(whole)
        file.tensors["field.labels"] = "U8", [len(raw)], raw
        refusal(file.pack())


def test_the_command_line_says_what_is_wrong_with_a_model(originals, tmp_path):
    file = File.parse(originals["labelled_field"])
    del file.header["field"]["scalings"][0]["factor"]
    path = tmp_path / "m.lkgp"
    path.write_bytes(file.pack())
    for command in (("predict", path, tmp_path / "o.nc"), ("sample", path, tmp_path / "o.nc"), ("validate", path)):
        output = run(*command, code=2).output
        assert "m.lkgp is damaged: field.scalings has no entry 'factor'" in output.replace("\n", "")
    assert not (tmp_path / "o.nc").exists()


def test_a_model_without_labels_is_named(originals, tmp_path):
    (tmp_path / "m.lkgp").write_bytes(originals["direct"])
    with pytest.raises(FileError, match=r"m\.lkgp is a model of arrays without labels"):
        FieldModel.load(tmp_path / "m.lkgp")


def test_what_could_not_be_read_again_is_not_saved(tmp_path):
    X, T, Y, _ = curves()
    kernel = RBFKernel()
    for _ in range(9):
        kernel = ScaleKernel(kernel)
    LKGP([kernel, RBFKernel()]).fit([X, T], Y, optimize=False).save(tmp_path / "deep.lkgp")
    loaded = LKGP.load(tmp_path / "deep.lkgp")
    assert isinstance(loaded.model_.kernels[0], gpytorch.kernels.ScaleKernel)
    gp = LKGP([ScaleKernel(kernel), ScaleKernel(kernel)]).fit([X, T], Y, optimize=False)
    with pytest.raises(InputError, match="nested too deeply, for a file"):
        gp.save(tmp_path / "deeper.lkgp")


def test_the_work_of_nested_kernels_doubles_with_every_level():
    """The reason for the limit: GPyTorch asks each kernel for the shapes of all kernels inside it."""
    asked = []

    class Counted(RBFKernel):
        @property
        def batch_shape(self):
            asked.append(1)
            return super().batch_shape

    def times_asked(depth):
        kernel = Counted()
        for _ in range(depth):
            kernel = ScaleKernel(kernel)
        asked.clear()
        _ = kernel.batch_shape
        return len(asked)

    assert [times_asked(depth) for depth in (3, 4, 5)] == [4, 8, 16]
    spec = nested({"class": "RBFKernel"}, 5)
    assert kernel_checks.count_steps(spec) == 2**6 - 1


def test_damage_is_the_same_for_the_same_seed(originals):
    content = originals["direct"]
    first, second = (list(mutations(content, seed=3, count=20)) for _ in range(2))
    assert first == second
    assert first != list(mutations(content, seed=4, count=20))
    assert json.loads(File.parse(content).metadata["model"]) == File.parse(content).header
    assert re.fullmatch("[0-9a-f]{64}", File.parse(File.parse(content).pack()).metadata["checksum"])
