"""The BoTorch model: an exact GP over inputs and one or several further factors, with gaps."""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Any, Literal, NamedTuple, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.models.transforms.input import InputTransform
from botorch.posteriors import Posterior as BotorchPosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.datasets import SupervisedDataset
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel
from linear_operator import to_linear_operator
from torch import Tensor, nn

from lkgp import BFGS, LBFGS, Adam, FitResult, InputError, Observations, Posterior, condition, fit, from_array, plan
from lkgp import LatentKroneckerGP as Core
from lkgp.botorch.conditioning import RELATIVE_JITTER, AddedObservations, add_observations
from lkgp.botorch.outputs import SomeOutputs, check_outputs
from lkgp.botorch.training_data import check_no_repeats, check_shapes, grid_from_rows
from lkgp.concurrency import Lock
from lkgp.data.grid import as_factor_coords
from lkgp.data.standardization import Standardization
from lkgp.model import default_kernels
from lkgp.posterior.moments import Cells, joint_moments


class FittedBatch(NamedTuple):
    """The posterior of one batch, in standard units, and how to get there and back."""

    posterior: Posterior
    standardization: Standardization


class LatentKroneckerGP(Model, FantasizeMixin):
    """An exact GP over X and one or several further factors, whose combinations are the outputs; NaN means unobserved.

    train_X: (*batch, n, d)
    train_T: points of the second factor, (t, d_T), or a list with the points of several factors
    train_Y: (*batch, n, t), or (*batch, n, t_1, t_2, ...); the gaps may differ between batches
    train_Yvar: known noise variances, of the shape of train_Y; by default one per batch is learned
    train_counts: how many observations each value is the mean of, of the shape of train_Y
    train_scatter: sum of squares of these observations about their mean, of the shape of train_Y; if it is given, the
        noise is learned from it, too
    kernels: one GPyTorch kernel per factor, for coordinates of variance one; Matern-5/2 by default
    noise: initial value of the learned noise variance, for values of variance one
    input_transform: applied to X before anything else

    Values and coordinates are scaled to variance one inside; everything that is returned is in the units of train_Y.
    `fit` learns the hyperparameters; without it they stay as given.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_T: Tensor | Sequence[Tensor],
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        train_counts: Tensor | None = None,
        train_scatter: Tensor | None = None,
        kernels: Sequence[Kernel] | None = None,
        noise: float = 0.05,
        input_transform: InputTransform | None = None,
    ) -> None:
        super().__init__()
        factors = [train_T] if isinstance(train_T, Tensor) else list(train_T)
        for k, points in enumerate(factors):
            self.register_buffer(f"train_T_{k}", as_factor_coords(points.detach(), f"train_T {k}"))
        data = {
            "train_Y": train_Y,
            "train_Yvar": train_Yvar,
            "train_counts": train_counts,
            "train_scatter": train_scatter,
        }
        check_shapes(train_X.shape[:-1] + torch.Size([len(points) for points in factors]), data)
        if bool(torch.isinf(train_Y).any()):
            raise InputError("train_Y contains an infinite value; mark values that were not observed as NaN.")
        self._num_factors = len(factors)
        self.register_buffer("train_X", train_X.detach())
        for name, given in data.items():
            self.register_buffer(name, None if given is None else given.detach())
        if input_transform is not None:
            # A transform that learns, learns once, from the training data.
            self.input_transform = input_transform.to(train_X).train()
            self.input_transform(train_X)
            self.input_transform.eval()
        check_no_repeats(self._inputs())
        widths = [self._inputs().shape[-1], *(points.shape[1] for points in self.train_T)]

        def new_core() -> Core:
            given = default_kernels(widths) if kernels is None else [deepcopy(kernel) for kernel in kernels]
            return Core(given, noise=noise).to(train_X.device).double()

        self.models = nn.ModuleList([new_core() for _ in range(max(1, train_X.shape[:-2].numel()))])
        self._fitted: dict[int, tuple[Any, FittedBatch]] = {}
        self._lock = Lock()
        self._added: list[AddedObservations] = []

    # Data

    @property
    def train_T(self) -> list[Tensor]:  # noqa: N802  (as BoTorch calls it)
        """The points of every further factor, (t_k, d_k)."""
        return [getattr(self, f"train_T_{k}") for k in range(self._num_factors)]

    @property
    def num_outputs(self) -> int:
        return int(torch.Size([len(points) for points in self.train_T]).numel())

    @property
    def batch_shape(self) -> torch.Size:
        shapes = [tensor.shape[:-2] for added in self._added for tensor in (added.X, added.Y)]
        return torch.broadcast_shapes(self.train_X.shape[:-2], *shapes)

    @property
    def likelihood(self) -> Any:
        """The likelihood of the first batch; None if the noise is known."""
        return self.models[0].likelihood if self.train_Yvar is None else None

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, *, step: str = "step") -> dict[str, Any]:
        """The arguments of the model, from rows of features and one value.

        step: the name of the feature that becomes train_T

        Rows that occur several times are averaged, and their number is taken into account.
        """
        parsed = Model.construct_inputs(training_data=training_data)
        rows, values, variances = parsed["train_X"], parsed["train_Y"], parsed.get("train_Yvar")
        if values.shape[-1] != 1:
            raise InputError(f"rows must have one value, but they have {values.shape[-1]}; make one model per value.")
        if rows.ndim != 2:
            raise InputError(f"rows must not be in batches, but X has shape {tuple(rows.shape)}; give one batch.")
        known = None if variances is None else variances[..., 0]
        return grid_from_rows(rows, values[..., 0], known, training_data.feature_names, step)

    def _inputs(self) -> Tensor:
        """train_X after the input transform for training, (*batch, n, d)."""
        if hasattr(self, "input_transform"):
            return self.input_transform.preprocess_transform(self.train_X)
        return self.train_X

    def _observations(self, batch: int) -> Observations:
        """The training data of one batch, in the units of the caller."""
        X = self._inputs()
        X = X.reshape(-1, *X.shape[-2:])[batch]
        factors = [X.double(), *(points.double() for points in self.train_T)]
        noise = None if self.train_Yvar is None else self._of_batch(self.train_Yvar, batch)
        data = from_array(factors, self._of_batch(self.train_Y, batch), noise)
        observed = data.grid.observed
        if self.train_counts is not None:
            data = data._replace(counts=self._of_batch(self.train_counts, batch)[observed])
        if self.train_scatter is not None:
            data = data._replace(scatter=self._of_batch(self.train_scatter, batch)[observed])
        return data

    def _of_batch(self, tensor: Tensor, batch: int) -> Tensor:
        """One batch of a tensor of the shape of train_Y, (n, t_1, t_2, ...)."""
        return tensor.reshape(-1, *self.train_Y.shape[len(self.train_X.shape) - 2 :])[batch].double()

    def _core(self, batch: int) -> Core:
        return cast(Core, self.models[batch])

    # Learning

    def fit(
        self,
        *,
        method: Any = "auto",
        optimizer: BFGS | LBFGS | Adam | Literal["auto"] = "auto",
        seed: int = 0,
        progress: Callable[[int, float], None] | None = None,
        max_memory: float | None = None,
    ) -> list[FitResult]:
        """Learn the hyperparameters of every batch; arguments as in `lkgp.fit`. Returns one result per batch."""
        if self._added:
            raise InputError(
                "this model was conditioned on further observations; to learn from them, make a new model of all data."
            )
        results = []
        for batch in range(len(self.models)):
            observations = self._observations(batch)
            result = fit(
                self._core(batch),
                Standardization.of(observations).apply(observations),
                method=method,
                optimizer=optimizer,
                seed=seed,
                progress=progress,
                max_memory=max_memory,
            )
            self.models[batch] = result.model
            results.append(result)
        return results

    def _fitted_batch(self, batch: int) -> FittedBatch:
        """The posterior of one batch, computed again if a hyperparameter or the data have changed.

        Threads that ask at the same time wait for one of them to compute it.
        """
        with self._lock:
            return self._current_batch(batch)

    def _current_batch(self, batch: int) -> FittedBatch:
        model = self._core(batch)
        # Hyperparameters are compared by value: GPyTorch changes them without increasing torch's version counters.
        learned = [
            *model.parameters(),
            *(self.input_transform.state_dict().values() if hasattr(self, "input_transform") else ()),
        ]
        values = [tensor.detach().cpu().numpy().tobytes() for tensor in learned]
        state = values, [(tensor.data_ptr(), tensor._version) for tensor in self.buffers(recurse=False)]
        if batch not in self._fitted or self._fitted[batch][0] != state:
            observations, fixed = self._observations(batch), deepcopy(model)
            standardization = Standardization.of(observations)
            data = standardization.apply(observations)
            posterior = condition(fixed, data, plan(fixed, data, "auto"))
            self._fitted[batch] = state, FittedBatch(posterior, standardization)
        return self._fitted[batch][1]

    def get_extra_state(self) -> list[tuple[Tensor, list[int], Tensor, Tensor]]:
        """What the model was conditioned on, for `state_dict`."""
        return [(a.X.detach(), a.outputs, a.Y.detach(), a.noise.detach()) for a in self._added]

    def set_extra_state(self, state: list[tuple[Tensor, list[int], Tensor, Tensor]]) -> None:
        self._added = [AddedObservations(*added) for added in state]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load data of any shape: they are part of the state, also if this model is part of another module."""
        for name, buffer in list(self.named_buffers(recurse=False)):
            new = state_dict.get(prefix + name)
            if new is not None and new.shape != buffer.shape:
                setattr(self, name, torch.empty_like(new))
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def train(self, mode: bool = True) -> "LatentKroneckerGP":
        """Set torch's mode; the input transform stays in evaluation mode, because it has learned already."""
        nn.Module.train(self, mode)
        if hasattr(self, "input_transform"):
            self.input_transform.eval()
        return self

    def eval(self) -> "LatentKroneckerGP":
        return self.train(False)

    # Prediction

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | BotorchPosterior:
        """The joint posterior of the outputs at X (*batch, q, d), in the units of train_Y, differentiable in X.

        output_indices: which outputs; all by default
        observation_noise: whether to add the noise; or the variance to add, (*batch, q, outputs) or (*batch, 1,
            outputs)
        """
        self._check_inputs(X)
        outputs = check_outputs(output_indices, self.num_outputs)
        mean, covariance = self._moments(self.transform_inputs(X), outputs)
        if observation_noise is not False:
            wanted = self._noise(mean) if observation_noise is True else observation_noise
            covariance = covariance + torch.diag_embed(wanted.expand(mean.shape).flatten(-2))
        # Rounding must not make variances negative.
        variance = torch.diagonal(covariance, dim1=-2, dim2=-1)
        covariance = covariance + torch.diag_embed(variance.clamp(min=self._smallest_variance()) - variance)
        mean, covariance = mean.to(X), to_linear_operator(covariance.to(X))
        if len(outputs) == 1:
            distribution: MultivariateNormal = MultivariateNormal(mean[..., 0], covariance)
        else:
            distribution = MultitaskMultivariateNormal(mean, covariance)
        made = GPyTorchPosterior(distribution)
        return made if posterior_transform is None else posterior_transform(posterior=made, X=X)

    def subset_output(self, idcs: list[int]) -> SomeOutputs:
        """Some outputs as a model of their own."""
        return SomeOutputs(self, idcs)

    def _check_inputs(self, X: Tensor) -> None:
        if X.ndim < 2 or X.shape[-1] != self.train_X.shape[-1]:
            raise InputError(f"X must have shape (*batch, q, {self.train_X.shape[-1]}), not {tuple(X.shape)}.")

    def _moments(self, X: Tensor, outputs: list[int]) -> tuple[Tensor, Tensor]:
        """Mean (*batch, q, outputs) and covariance (*batch, q outputs, q outputs), given all observations."""
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        groups = [(X, outputs), *((added.X, added.outputs) for added in self._added)]
        mean, covariance = self._training_moments(
            [(points.expand(*shape, *points.shape[-2:]), where) for points, where in groups], shape
        )
        if self._added:
            mean, covariance = add_observations(mean, covariance, X.shape[-2] * len(outputs), self._added)
        return mean.view(*shape, X.shape[-2], len(outputs)), covariance

    def _training_moments(self, groups: list[tuple[Tensor, list[int]]], shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Mean (*shape, c) and covariance (*shape, c, c) of the cells of all groups, given the training data.

        groups: inputs (*shape, q, d) and indices of outputs
        """
        own = self.train_X.shape[:-2]
        # Which batch of the model each batch of the inputs belongs to, and the order in which the results come back.
        batch_of = torch.arange(own.numel(), device=self.train_X.device).view(own).expand(shape).flatten()
        back = torch.argsort(torch.argsort(batch_of, stable=True))
        others = [points.double() for points in self.train_T]
        means, covariances = [], []
        for batch in range(own.numel()):
            posterior, standardization = self._fitted_batch(batch)
            cells = []
            for X, outputs in groups:
                points = X.reshape(len(batch_of), *X.shape[-2:])[batch_of == batch].double()
                first, *rest = standardization.points([points, *others])
                places = torch.unravel_index(
                    torch.tensor(outputs, device=points.device), [len(points) for points in others]
                )
                cells.append(Cells(first, tuple(x[i] for x, i in zip(rest, places, strict=True))))
            mean, covariance = joint_moments(posterior, cells)
            means.append(standardization.values.undo(mean))
            covariances.append(standardization.undo_variance(covariance))
        mean, covariance = torch.cat(means)[back], torch.cat(covariances)[back]
        return mean.reshape(*shape, *mean.shape[1:]), covariance.reshape(*shape, *covariance.shape[1:])

    def _smallest_variance(self) -> float:
        """What rounding may leave of a variance, in squared units of train_Y."""
        jitter = torch.tensor(RELATIVE_JITTER, dtype=torch.float64)
        batches = range(len(self.models))
        return min(float(self._fitted_batch(batch).standardization.undo_variance(jitter)) for batch in batches)

    def _noise(self, like: Tensor) -> Tensor:
        """The noise variance of new observations in squared units of train_Y, (*batch, q, outputs) like `like`."""
        own = self.train_X.shape[:-2]
        found = []
        for batch in range(len(self.models)):
            if self.train_Yvar is None:
                noise = self._core(batch).noise_variance().detach()
                found.append(self._fitted_batch(batch).standardization.undo_variance(noise))
            else:  # a new observation is taken to be as noisy as the others are on average
                observed = torch.isfinite(self._of_batch(self.train_Y, batch))
                found.append(self._of_batch(self.train_Yvar, batch)[observed].mean())
        return torch.stack(found).view(*own, 1, 1).expand(like.shape)

    # More observations

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, output_indices: list[int] | None = None
    ) -> "LatentKroneckerGP":
        """A model with the same hyperparameters that has also seen Y at X.

        X: (*batch, q, d)
        Y: (*fantasies, *batch, q, outputs)
        noise: noise variances of Y, of its shape; by default as noisy as the other observations
        output_indices: which outputs the last dimension of Y holds; all by default
        """
        self._check_inputs(X)
        outputs = check_outputs(output_indices, self.num_outputs)
        if Y.shape[-2:] != (X.shape[-2], len(outputs)):
            raise InputError(
                f"the last two dimensions of Y must be ({X.shape[-2]}, {len(outputs)}), one row per row of X and one "
                f"column per output, not {tuple(Y.shape[-2:])}."
            )
        if not bool(torch.isfinite(Y).all()):
            raise InputError("Y must be finite; leave out rows without observations, or give output_indices.")
        shape = torch.broadcast_shapes(Y.shape[:-2], self.batch_shape)
        expanded = Y.expand(*shape, *Y.shape[-2:])
        variance = self._noise(expanded.detach().double()) if noise is None else noise.expand(expanded.shape)
        other = copy(self)  # shares data and hyperparameters, but has its own containers of them
        other._modules = {**self._modules, "models": nn.ModuleList(list(self.models))}
        other._buffers = dict(self._buffers)
        other._fitted = dict(self._fitted)
        other._added = [*self._added, AddedObservations(self.transform_inputs(X), outputs, expanded, variance)]
        return other
