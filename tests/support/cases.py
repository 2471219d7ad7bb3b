"""Named small grids with gaps, and models over them whose dense twin is known. Every numerical test goes over them."""

from dataclasses import dataclass, field

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from oracle import Oracle, matern52, periodic, squared_exponential

from lkgp import LatentKroneckerGP, Observations, from_array


@dataclass
class Case:
    name: str
    shape: tuple
    gaps: str
    cell_noise: bool = False
    columns: tuple = ()
    kinds: tuple = ()
    regular: bool = False
    noise: float = 0.1
    mean: float = 0.3
    seed: int = 0
    coords: list = field(init=False)
    y: np.ndarray = field(init=False)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed + sum(map(ord, self.name)))
        columns = self.columns or (1,) * len(self.shape)
        self.coords = []
        for size, width in zip(self.shape, columns, strict=True):
            if self.regular:
                self.coords.append(np.linspace(0, 2, size)[:, None])
            else:
                self.coords.append(rng.uniform(0, 2, (size, width)))
        self.lengthscales = [rng.uniform(0.4, 1.2, width) for width in columns]
        self.kinds = self.kinds or ("rbf", "matern", "rbf", "matern")[: len(self.shape)]
        self.scale = 1.7
        y = rng.normal(size=self.shape)
        y[~self._observed(rng)] = np.nan
        self.y = y
        self.cell_variance = rng.uniform(0.05, 0.4, self.shape) if self.cell_noise else None

    def _observed(self, rng):
        observed = np.ones(self.shape, dtype=bool)
        if self.gaps == "random":
            observed = rng.random(self.shape) < 0.6
            observed.ravel()[0] = True
        elif self.gaps == "row":
            observed[1] = False
        elif self.gaps == "curves":
            for i in range(self.shape[0]):
                observed[i, rng.integers(1, self.shape[1] + 1) :] = False
        elif self.gaps == "few curves":
            for i in range(0, self.shape[0], 6):
                observed[i, rng.integers(1, self.shape[1]) :] = False
        elif self.gaps == "one observed":
            observed[:] = False
            observed.ravel()[len(observed.ravel()) // 2] = True
        elif self.gaps == "one missing":
            observed.ravel()[-2] = False
        elif self.gaps == "block":
            observed[(slice(1, 3),) * len(self.shape)] = False
        else:
            assert self.gaps == "none"
        return observed

    def kernels(self):
        """GPyTorch kernels with parameters in float64; the output scale is on the first."""
        made = []
        for kind, lengthscale in zip(self.kinds, self.lengthscales, strict=True):
            width = len(lengthscale)
            if kind == "rbf":
                kernel = RBFKernel(ard_num_dims=width)
            elif kind == "matern":
                kernel = MaternKernel(nu=2.5, ard_num_dims=width)
            else:
                kernel = PeriodicKernel(ard_num_dims=width)
            kernel.double()
            if kind == "periodic":
                kernel.period_length = torch.tensor(0.9, dtype=torch.float64)
            kernel.lengthscale = torch.as_tensor(lengthscale)
            made.append(kernel)
        made[0] = ScaleKernel(made[0]).double()
        made[0].outputscale = torch.tensor(self.scale, dtype=torch.float64)
        return made

    def build(self) -> LatentKroneckerGP:
        model = LatentKroneckerGP(self.kernels(), noise=self.noise).double()
        model.mean.constant.data.fill_(self.mean)
        return model

    def data(self) -> Observations:
        return from_array(self.coords, self.y, self.cell_variance)

    def oracle(self, **changed) -> Oracle:
        functions = []
        for k, (kind, lengthscale) in enumerate(zip(self.kinds, self.lengthscales, strict=True)):
            scale = self.scale if k == 0 else 1.0

            def kernel(x, z, kind=kind, lengthscale=lengthscale, scale=scale):
                if kind == "rbf":
                    return scale * squared_exponential(x, z, lengthscale)
                if kind == "matern":
                    return scale * matern52(x, z, lengthscale)
                return scale * periodic(x, z, lengthscale, 0.9)

            functions.append(kernel)
        noise = self.noise if self.cell_variance is None else self.cell_variance
        return Oracle(functions, self.coords, self.y, noise, **{"mean": self.mean, **changed})

    def new_coords(self, which=None):
        """Points off the grid, in the factors `which` (all by default); the others keep their own."""
        rng = np.random.default_rng(self.seed + 99)
        which = range(len(self.shape)) if which is None else which
        return [rng.uniform(-0.5, 2.5, (3, x.shape[1])) if k in which else x for k, x in enumerate(self.coords)]


CASES = [
    Case("one factor", (12,), "random"),
    Case("one factor, known noise", (12,), "random", cell_noise=True),
    Case("two factors", (7, 6), "random"),
    Case("two factors, known noise", (7, 6), "random", cell_noise=True),
    Case("learning curves", (8, 7), "curves"),
    Case("learning curves of low rank", (6, 10), "curves", kinds=("matern", "rbf"), regular=True),
    Case("a row missing", (5, 6), "row"),
    Case("one cell observed", (4, 5), "one observed"),
    Case("one cell missing", (6, 5), "one missing"),
    Case("nothing missing", (6, 5), "none"),
    Case("nothing missing, known noise", (5, 6), "none", cell_noise=True),
    Case("a block missing", (6, 6), "block", kinds=("rbf", "periodic")),
    Case("several columns", (7, 6), "random", columns=(3, 2)),
    Case("one-point axis", (1, 8), "random"),
    Case("three factors", (4, 3, 5), "random"),
    Case("three factors, known noise", (4, 3, 5), "block", cell_noise=True),
    Case("four factors", (3, 2, 3, 3), "random"),
    Case("four factors, a slice missing", (3, 3, 2, 2), "row"),
]
SOME = [
    case
    for case in CASES
    if case.name in ("two factors", "two factors, known noise", "learning curves", "three factors")
]


def name(case):
    return case.name
