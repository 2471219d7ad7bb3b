"""Studies: lkgp and other methods on the same data, split and kernels.

`experiments` repeats the experiments of Lin et al. (2025); `benchmarks` measures time, memory and accuracy. Both run
the comparators of `comparators/` on the cases of `cases/`, each run in a process of its own, and `pages/` writes what
came out.
"""
