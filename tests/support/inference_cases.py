"""Every concrete way of inference with settings so tight that it must agree with the dense oracle."""

from lkgp import ConjugateGradients, Direct, Iterative, ObservationSpace, PivotedCholesky, Spectral, Vecchia

SAMPLES = 2000
ITERATIVE = {"rtol": 1e-9, "residual_rtol": 1e-10, "sample_rtol": 1e-9, "num_samples": SAMPLES}

# name -> settings; a way of inference may be here several times.
TIGHT = {
    "direct": Direct(),
    "spectral": Spectral(tolerance=1e-13, fit_tolerance=1e-13, **ITERATIVE),
    "spectral, float64": Spectral(tolerance=1e-13, fit_tolerance=1e-13, precision="float64", **ITERATIVE),
    "observation space": ObservationSpace(**ITERATIVE),
    "observation space, dense": ObservationSpace(dense=True, **ITERATIVE),
    "observation space, pivoted Cholesky": ObservationSpace(preconditioner=PivotedCholesky(5), **ITERATIVE),
    "observation space, no preconditioner": ObservationSpace(preconditioner=None, **ITERATIVE),
    "observation space, neighbours": ObservationSpace(preconditioner=Vecchia(neighbours=6), **ITERATIVE),
    "iterative": Iterative(ConjugateGradients(rtol=1e-11), num_samples=SAMPLES),
}
