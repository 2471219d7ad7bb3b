"""Random points along a factor, with a random kernel over them."""

import gpytorch.kernels as gk
import numpy as np
import torch

NUMERICAL = ("rbf", "matern12", "matern32", "matern52", "rq", "periodic", "cosine", "polynomial", "linear")
LAYOUTS = ("regular", "random", "clusters", "logarithmic", "near-duplicates")

# GPyTorch computes distances as |x|^2 + |z|^2 - 2 x z, which has no digits left for points 1e-8 apart: a kernel with a
# kink at zero, such as Matern-1/2, is then off by 1e-8.
CLOSEST = 1e-6


def log_uniform(rng, low, high):
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def random_points(rng, count, columns, layout):
    """(count, columns), of order one; near-duplicates are CLOSEST to 1e-3 apart."""
    if layout == "regular":
        return np.stack([np.linspace(-1.5, 1.5, count) for _ in range(columns)], axis=1)
    if layout == "logarithmic":
        return np.stack([np.sort(np.geomspace(0.01, 3, count)) for _ in range(columns)], axis=1)
    points = rng.uniform(-1.7, 1.7, (count, columns))
    if layout == "clusters":
        return np.where(rng.random((count, 1)) < 0.5, -1, 1) + 0.05 * points
    if layout == "near-duplicates" and count > 1:
        copies = rng.integers(1, max(2, count // 2 + 1))
        apart = log_uniform(rng, CLOSEST, 1e-3)
        points[-copies:] = points[:copies] + apart * rng.uniform(0.5, 1, (copies, columns))
    return points


def simple_kernel(rng, kind, columns):
    """A kernel over numbers with random parameters, in float64."""
    wide = rng.random() < 0.15
    lengths = torch.tensor([log_uniform(rng, *((0.05, 30) if wide else (0.3, 4))) for _ in range(columns)])
    ard = columns if columns > 1 and rng.random() < 0.7 else None
    if kind == "rbf":
        kernel = gk.RBFKernel(ard_num_dims=ard)
    elif kind.startswith("matern"):
        kernel = gk.MaternKernel(nu={"12": 0.5, "32": 1.5, "52": 2.5}[kind[6:]], ard_num_dims=ard)
    elif kind == "rq":
        kernel = gk.RQKernel(ard_num_dims=ard)
    elif kind == "periodic":
        kernel = gk.PeriodicKernel(ard_num_dims=ard) if ard else gk.PeriodicKernel()
    elif kind == "polynomial":
        kernel = gk.PiecewisePolynomialKernel(q=int(rng.choice([0, 1, 3])), ard_num_dims=ard)
    elif kind == "cosine":
        # In several columns a cosine of the distance is not a covariance function.
        kernel = gk.CosineKernel(active_dims=(0,))
    else:
        kernel = gk.LinearKernel()
    kernel.double()
    if kernel.has_lengthscale:
        kernel.lengthscale = (lengths if ard else lengths[:1]).double()
    if kind == "rq":
        kernel.alpha = torch.tensor(log_uniform(rng, 0.3, 5), dtype=torch.float64)
    if kind in ("periodic", "cosine"):
        kernel.period_length = torch.full_like(kernel.period_length, log_uniform(rng, 0.5, 3))
    if kind == "linear":
        kernel.variance = torch.tensor([[log_uniform(rng, 0.2, 3)]], dtype=torch.float64)
    return kernel


def numerical_kernel(rng, columns):
    """A kernel over numbers and its name: one of all kinds, or a sum or a product of two."""
    kind, other = rng.choice(NUMERICAL, 2)
    first = simple_kernel(rng, kind, columns)
    chance = rng.random()
    if chance < 0.15:
        second = gk.ScaleKernel(simple_kernel(rng, other, columns)).double()
        second.outputscale = torch.tensor(log_uniform(rng, 0.01, 2), dtype=torch.float64)
        return first + second, f"({kind} + {other})"
    if chance < 0.3:
        return first * simple_kernel(rng, other, columns), f"({kind} * {other})"
    return first, kind


def category_kernel(rng, count):
    """Codes (count, 1) of tasks, and an IndexKernel over them."""
    tasks = count + int(rng.integers(0, 2))
    rank = min(int(rng.integers(1, 3)), tasks)
    kernel = gk.IndexKernel(num_tasks=tasks, rank=rank).double()
    kernel.covar_factor.data = torch.as_tensor(rng.normal(size=(tasks, rank)))
    kernel.var = torch.as_tensor(rng.uniform(0.05, 1, tasks))
    return rng.permutation(tasks)[:count, None].astype(float), kernel, f"index of {tasks}"


def sequence_kernel(rng, count):
    """One-hot sequences (count, 3 * 4) and a HammingIMQKernel over them."""
    kernel = gk.HammingIMQKernel(vocab_size=4).double()
    kernel.alpha, kernel.beta = (torch.tensor([log_uniform(rng, 0.3, 3)], dtype=torch.float64) for _ in range(2))
    words = rng.permutation(64)[:count]
    letters = np.stack([words // 16, words // 4 % 4, words % 4], axis=1)
    return np.eye(4)[letters].reshape(count, -1), kernel, "hamming"


def random_factor(rng, count):
    """Points (count, d), a kernel over them, and words for both."""
    chance = rng.random()
    if chance < 0.08:
        return category_kernel(rng, count)
    if chance < 0.1 and count <= 64:
        return sequence_kernel(rng, count)
    columns = int(rng.choice([1, 1, 1, 2, 3]))
    layout = str(rng.choice(LAYOUTS, p=[0.4, 0.3, 0.1, 0.1, 0.1]))
    kernel, name = numerical_kernel(rng, columns)
    points = random_points(rng, count, columns, layout)
    return points, kernel, f"{name} at {count} {layout}" + (f" in {columns} columns" if columns > 1 else "")
