"""What every structured factor must be: the matrix of its kernel, as NumPy has it, in all of its parts."""

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel

from lkgp.linalg.factors import Factor
from lkgp.model import Term

SCALE, ALPHA = 1.3, 0.4


def kernel_of(name, length=0.7, dims=None):
    """A kernel with an output scale; `length` is one number, or one for every column."""
    parts = {"rbf": RBFKernel, "rq": RQKernel}
    made = parts[name](ard_num_dims=dims) if name in parts else MaternKernel(nu=float(name), ard_num_dims=dims)
    kernel = ScaleKernel(made).double()
    kernel.base_kernel.lengthscale = torch.as_tensor(length, dtype=torch.float64)
    kernel.outputscale = torch.tensor(SCALE, dtype=torch.float64)
    if name == "rq":
        kernel.base_kernel.alpha = torch.tensor(ALPHA, dtype=torch.float64)
    return kernel


def dense_of(name, length, a, b=None):
    """Its matrix between points (a, d) and (b, d), from the formulas."""
    a, b = np.asarray(a), np.asarray(a if b is None else b)
    r = np.sqrt((((a[:, None] - b[None]) / np.asarray(length)) ** 2).sum(axis=-1))
    formulas = {
        "0.5": lambda: np.exp(-r),
        "1.5": lambda: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        "2.5": lambda: (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
        "rbf": lambda: np.exp(-(r**2) / 2),
        "rq": lambda: (1 + r**2 / (2 * ALPHA)) ** -ALPHA,
    }
    return SCALE * formulas[name]()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_is_matrix(factor: Factor, dense: np.ndarray, atol: float = 1e-10) -> None:
    """Products, transposes, rows, entries, sums and precisions of a factor without a gradient."""
    n = len(dense)
    assert tuple(factor.shape) == (n, n)
    one, block = normal(n), normal(n, 5)
    with torch.no_grad():
        for x in (one, block):
            np.testing.assert_allclose((factor @ x).numpy(), dense @ x.numpy(), atol=n * atol)
            np.testing.assert_allclose((factor.mT @ x).numpy(), dense.T @ x.numpy(), atol=n * atol)
        batch = normal(2, n, 3)
        np.testing.assert_allclose((factor @ batch).numpy(), dense @ batch.numpy(), atol=n * atol)
        out = torch.empty(5, n, dtype=torch.float64)
        np.testing.assert_allclose(factor.transposed_product(block).numpy(), (dense @ block.numpy()).T, atol=n * atol)
        np.testing.assert_allclose(
            factor.transposed_product_into(block, out).numpy(), (dense @ block.numpy()).T, atol=n * atol
        )
        some = torch.randint(n, (4, 3), generator=torch.Generator().manual_seed(1))
        others = torch.randint(n, (4, 3), generator=torch.Generator().manual_seed(2))
        np.testing.assert_allclose(factor.entries(some, others).numpy(), dense[some, others], atol=atol)
        np.testing.assert_allclose(factor.rows_at(some[0]).numpy(), dense[some[0]], atol=atol)
        np.testing.assert_allclose(factor.entries_diagonal().numpy(), dense.diagonal(), atol=atol)
        np.testing.assert_allclose(factor.dense().numpy(), dense, atol=atol)
        np.testing.assert_allclose(factor.largest_row_sum(), np.abs(dense).sum(axis=1).max(), rtol=1e-8)
        rough = factor.rounded(torch.float32)
        scale = np.abs(dense).sum(axis=1).max()
        assert rough.dtype == torch.float32
        np.testing.assert_allclose((rough @ block.float()).numpy(), dense @ block.numpy(), atol=1e-5 * scale)
        left = factor.difference(rough.rounded(torch.float64))
        if left is not None:
            np.testing.assert_allclose(
                (left @ block + rough.rounded(torch.float64) @ block).numpy(), dense @ block.numpy(), atol=n * atol
            )


def check_draws(factor: Factor, dense: np.ndarray, atol: float = 1e-10) -> None:
    """R R^T = K, from the images of the unit vectors, and in single precision."""
    with torch.no_grad():
        root = factor.noise_root()
        whole = root.times(torch.eye(root.width, dtype=torch.float64)).numpy()
        np.testing.assert_allclose(whole @ whole.T, dense, atol=atol)
        z = normal(root.width, 3)
        np.testing.assert_allclose(root.times(z).numpy(), whole @ z.numpy(), atol=1e-9)
        assert root.times(z.float()).dtype == torch.float32


def check_gradients(kernel_again, coords: torch.Tensor, kind: str) -> None:
    """Derivatives by the kernel's parameters as autograd through the dense matrix has them.

    kernel_again: makes the same kernel anew
    """
    n = len(coords)
    left, right = normal(n, 3, seed=3), normal(n, 3, seed=4)
    rows = torch.randint(n, (40,), generator=torch.Generator().manual_seed(5))
    columns = torch.randint(n, (40,), generator=torch.Generator().manual_seed(6))
    shares = normal(40, seed=7)

    def found(kind, value_of):
        kernel = kernel_again()
        value = value_of(Term([kernel]).factor(0, coords, kind))
        value.backward()
        return [float(value.detach()), *(p.grad.sum().item() for p in kernel.parameters())]

    def by_weights(factor):
        with torch.no_grad():
            weights = factor.pull_back(left, right) + factor.pull_back(2 * right, left)
            weights = weights * 0.5 + factor.pull_back(left, left)
        return factor.inner(weights)

    ways = [by_weights, lambda f: (left * (f @ right)).sum(), lambda f: (shares * f.entries(rows, columns)).sum()]
    for way in ways:
        np.testing.assert_allclose(found(kind, way), found("dense", way), rtol=1e-7, atol=1e-9)

    # The entries are differentiable by the defining numbers too, made a leaf of their own.
    factor = Term([kernel_again()]).factor(0, coords, kind).detach()
    leaf = factor.representation()[0].requires_grad_()
    (shares * factor.entries(rows, columns)).sum().backward()
    assert leaf.grad is not None
    assert bool(torch.isfinite(leaf.grad).all())
