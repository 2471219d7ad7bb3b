"""The benchmark suite: lkgp and its neighbours side by side, on the same data, the same split and the same kernels."""
