"""GPyTorch kernels as the library uses them: their values between points, and properties known from their class."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import gpytorch
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    CosineKernel,
    HammingIMQKernel,
    IndexKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from linear_operator import to_dense
from torch import Tensor
from torch.func import functional_call

from lkgp.concurrency import Lock
from lkgp.errors import InputError
from lkgp.model.distances import use_exact_distances

STATIONARY = (RBFKernel, MaternKernel, PeriodicKernel, RQKernel, CosineKernel, PiecewisePolynomialKernel)
# Those of them that are functions of a distance.
OF_DISTANCE = (RBFKernel, MaternKernel, RQKernel, CosineKernel, PiecewisePolynomialKernel)
# Kernels that read coordinates as labels of categories.
DISCRETE = (IndexKernel, HammingIMQKernel)
# Kernels made of others, whose values are computed without GPyTorch; subclasses of them may differ.
COMPOSED = (ScaleKernel, AdditiveKernel, ProductKernel)
# Settings of GPyTorch and filters of warnings are those of the whole process, so that threads must take turns.
ONE_AT_A_TIME = Lock()


def default_kernels(dims: Sequence[int]) -> list[Kernel]:
    """Matern-5/2 kernels with one length scale per column, and one output scale, on the first factor.

    dims: d_k, the number of columns of each factor
    """
    kernels: list[Kernel] = [MaternKernel(nu=2.5, ard_num_dims=dim) for dim in dims]
    return [ScaleKernel(kernels[0]), *kernels[1:]]


def evaluate(kernel: Kernel, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """Kernel values between `rows` (a, d) and `columns` (b, d), dense, (a, b); `columns` defaults to `rows`.

    They are computed in float64 and then rounded to the precision of `rows`.
    """
    with ONE_AT_A_TIME, _as_used_here(kernel):
        if rows.dtype == torch.float64:
            return _dense(kernel, rows, rows if columns is None else columns)
        precise = rows.double()
        points = (precise, precise if columns is None else columns.double())
        return functional_call(kernel, _state_in_float64(kernel), points).to_dense().to(rows.dtype)


def _dense(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """What GPyTorch computes between points (..., a, d) and (..., b, d), (..., a, b), but without lazy operators.

    For small matrices, these would take longer than the arithmetic.
    """
    if type(kernel) not in COMPOSED:
        return kernel(x1, x2).to_dense()
    if kernel.active_dims is not None:
        x1, x2 = x1.index_select(-1, kernel.active_dims), x2.index_select(-1, kernel.active_dims)
    if isinstance(kernel, ScaleKernel):
        # Its active_dims are those of the kernel inside, which are not selected a second time.
        inside = kernel.base_kernel
        if type(inside) in COMPOSED and inside.active_dims is None:
            return _dense(inside, x1, x2) * kernel.outputscale
        return to_dense(inside.forward(x1, x2)) * kernel.outputscale
    parts = [_dense(part, x1, x2) for part in kernel.kernels]
    return reduce(torch.add if isinstance(kernel, AdditiveKernel) else torch.mul, parts)


def _state_in_float64(kernel: Kernel) -> dict[str, Tensor]:
    """Parameters and constants of a kernel in float64, with their gradients."""
    state = {**dict(kernel.named_parameters()), **dict(kernel.named_buffers())}
    return {name: value.double() if value.is_floating_point() else value for name, value in state.items()}


def evaluate_diagonal(kernel: Kernel, points: Tensor) -> Tensor:
    """k(x, x) at `points` (a, d), (a,)."""
    with ONE_AT_A_TIME, _as_used_here(kernel):
        return kernel(points, diag=True)


@contextmanager
def _as_used_here(kernel: Kernel) -> Iterator[None]:
    """Evaluate a kernel at once, with exact distances, and without warnings that the caller can do nothing about."""
    use_exact_distances(kernel)
    with gpytorch.settings.lazily_evaluate_kernels(False), _quiet_sparse_matrices(kernel):
        yield


@contextmanager
def _quiet_sparse_matrices(kernel: Kernel) -> Iterator[None]:
    """Ignore what torch says about the sparse matrices inside `IndexKernel`; the caller can do nothing about it."""
    if not is_discrete(kernel):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        yield


@dataclass(frozen=True, eq=False)
class KernelFunction:
    """A kernel as a function of points, for the factors of `lkgp.linalg`."""

    kernel: Kernel

    @property
    def stationary(self) -> bool:
        return is_stationary(self.kernel)

    @property
    def isotropic(self) -> bool:
        return is_isotropic(self.kernel)

    @property
    def summands(self) -> list["KernelFunction"]:
        if not isinstance(self.kernel, AdditiveKernel):
            return [self]
        return [one for part in self.kernel.kernels for one in KernelFunction(part).summands]

    def __call__(self, rows: Tensor, columns: Tensor) -> Tensor:
        return evaluate(self.kernel, rows, None if columns is rows else columns)


def is_stationary(kernel: Kernel) -> bool:
    """Whether k(x, x') is known, from the class of the kernel, to depend on x - x' only."""
    if isinstance(kernel, ScaleKernel):
        return is_stationary(kernel.base_kernel)
    if isinstance(kernel, (AdditiveKernel, ProductKernel)):
        return all(is_stationary(part) for part in kernel.kernels)
    return isinstance(kernel, STATIONARY)


def is_isotropic(kernel: Kernel) -> bool:
    """Whether k(x, x') is known, from the kernel's class and settings, to depend on |x - x'| over all columns only."""
    if kernel.active_dims is not None:
        return False
    if isinstance(kernel, ScaleKernel):
        return is_isotropic(kernel.base_kernel)
    if isinstance(kernel, (AdditiveKernel, ProductKernel)):
        return all(is_isotropic(part) for part in kernel.kernels)
    return isinstance(kernel, OF_DISTANCE) and kernel.ard_num_dims in (None, 1)


def is_discrete(kernel: Kernel) -> bool:
    """Whether the kernel or any of its parts reads its coordinates as categories."""
    return any(isinstance(part, DISCRETE) for part in kernel.modules())


def discrete_columns(kernel: Kernel, coords: Tensor) -> Tensor:
    """Which columns of the coordinates (n_k, d_k) are read as categories, (d_k,)."""
    found = torch.zeros(coords.shape[1], dtype=torch.bool, device=coords.device)
    for part in kernel.modules():
        if isinstance(part, DISCRETE):
            found[slice(None) if part.active_dims is None else part.active_dims.to(found.device)] = True
    return found


def check_is_kernel(kernel: object, factor: int) -> None:
    """Reject anything but a single GPyTorch kernel."""
    if not isinstance(kernel, Kernel):
        raise InputError(f"the kernel of factor {factor} is a {type(kernel).__name__}; give a GPyTorch kernel.")
    if len(kernel.batch_shape):
        raise InputError(
            f"the kernel of factor {factor} has batch shape {tuple(kernel.batch_shape)}; give one without a batch "
            "shape."
        )


def check_kernel(kernel: Kernel, coords: Tensor, factor: int) -> None:
    """Reject a kernel that does not match the coordinates (n_k, d_k) of its factor."""
    check_is_kernel(kernel, factor)
    columns = coords.shape[1]
    for part in kernel.modules():
        if not isinstance(part, Kernel):
            continue
        if part.active_dims is not None and int(part.active_dims.max()) >= columns:
            raise InputError(
                f"the kernel of factor {factor} reads column {int(part.active_dims.max())}, but that factor has only "
                f"{columns} column(s); change its active_dims."
            )
        seen = columns if part.active_dims is None else len(part.active_dims)
        if part.ard_num_dims not in (None, 1, seen):
            raise InputError(
                f"the kernel of factor {factor} has ard_num_dims={part.ard_num_dims}, but that factor has {seen} "
                f"column(s); set ard_num_dims={seen}."
            )
        if isinstance(part, IndexKernel):
            _check_categories(part, coords, factor)
    try:
        with torch.no_grad():
            evaluate(kernel, coords[:1].to(next(kernel.parameters(), coords).dtype))
    except RuntimeError as error:  # some kernels refuse ard_num_dims=1 over several columns, others do not
        raise InputError(
            f"the kernel of factor {factor} cannot be evaluated at a point with {columns} column(s) ({error}); check "
            "its ard_num_dims and active_dims."
        ) from None


def _check_categories(kernel: IndexKernel, coords: Tensor, factor: int) -> None:
    tasks = kernel.covar_factor.shape[-2]
    codes = coords if kernel.active_dims is None else coords[:, kernel.active_dims]
    whole = codes.shape[1] == 1 and bool((codes == codes.round()).all())
    if not whole or bool((codes < 0).any()) or bool((codes >= tasks).any()):
        raise InputError(
            f"factor {factor} has an IndexKernel with {tasks} categories, so its coordinates must be one column of "
            f"whole numbers from 0 to {tasks - 1}."
        )
