"""Peak memory of a solve, in arrays of the grid's size a column, measured by the operating system in a process of its own.

python benchmarks/memory.py
"""

import resource
import subprocess
import sys

import torch

from lkgp import ConjugateGradients, PartialGrid, solve
from lkgp.operators import LatentKronecker


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(size: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 20, size, dtype=torch.float64)
    factor = torch.exp(-0.5 * (x[:, None] - x) ** 2)
    grid = PartialGrid((x, x), torch.rand(size, size, generator=generator) < 0.9)
    operator = LatentKronecker(factor, factor, torch.tensor(0.5, dtype=torch.float64), grid=grid)
    # A first small product brings in the libraries' own work space; the right-hand side counts as one of the arrays.
    _ = operator @ torch.ones(grid.num_observed, 1, dtype=torch.float64)
    one = size * size * columns * 8
    # What is resident now was there before the solve.
    with open("/proc/self/statm") as file:
        before = int(file.read().split()[1]) * resource.getpagesize()
    rhs = torch.randn(grid.num_observed, columns, dtype=torch.float64, generator=generator)
    solution = solve(operator, rhs, ConjugateGradients(rtol=1e-2, max_iterations=3))
    arrays = (peak_bytes() - before) / one
    print(f"{size} x {size}, {columns} columns, {solution.iterations} iterations: {arrays:.1f} arrays of the grid's size a column")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(int(sys.argv[1]), int(sys.argv[2]))
    else:
        for size, columns in ((2000, 4), (1000, 16), (4000, 1)):
            subprocess.run([sys.executable, __file__, str(size), str(columns)], check=True)
