"""BoTorch's model of learning curves and other grids with holes, with all of BoTorch's contract."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

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

from lkgp.errors import InputError
from lkgp.fit import FitResult, fit
from lkgp.grid import PartialGrid, as_factor_coords
from lkgp.joint import Cells, joint_moments
from lkgp.methods import plan
from lkgp.model import LatentKroneckerGP as Core
from lkgp.model import default_kernels
from lkgp.posterior import Posterior, condition
from lkgp.readers import Observations, from_array
from lkgp.scaling import Scaling


class LatentKroneckerGP(Model, FantasizeMixin):
    """An exact GP over X and one or several further factors, whose combinations are the outputs; NaN means not observed.

    train_X: (*batch, n, d)
    train_T: points of the second factor, (t, d_T), or a list with those of several
    train_Y: (*batch, n, t), or (*batch, n, t_1, t_2, ...); the gaps may differ from batch to batch
    train_Yvar: known noise variances, of the shape of train_Y; learned by default, one a batch
    train_counts: how many observations each value is the mean of, of the shape of train_Y
    kernels: one GPyTorch kernel a factor, in units of coordinates of variance one; Matern-5/2 by default
    input_transform: of X, applied before all else

    Values and coordinates are scaled to variance one inside; everything that comes out is in the units of train_Y. `fit` learns the
    hyperparameters; without it they are as given.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_T: Tensor | Sequence[Tensor],
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        train_counts: Tensor | None = None,
        kernels: Sequence[Kernel] | None = None,
        noise: float = 0.05,
        input_transform: InputTransform | None = None,
    ) -> None:
        super().__init__()
        factors = [train_T] if isinstance(train_T, Tensor) else list(train_T)
        for k, points in enumerate(factors):
            self.register_buffer(f"train_T_{k}", as_factor_coords(points.detach(), f"train_T {k}"))
        shape = train_X.shape[:-1] + torch.Size([len(points) for points in factors])
        for name, given in (("train_Y", train_Y), ("train_Yvar", train_Yvar), ("train_counts", train_counts)):
            if given is not None and given.shape != shape:
                raise InputError(f"{name} must be of shape {tuple(shape)}, as train_X and train_T have it, not {tuple(given.shape)}.")
        if bool(torch.isinf(train_Y).any()):
            raise InputError("train_Y is infinite somewhere; NaN means not observed.")
        self._num_factors = len(factors)
        self.register_buffer("train_X", train_X.detach())
        self.register_buffer("train_Y", train_Y.detach())
        self.register_buffer("train_Yvar", None if train_Yvar is None else train_Yvar.detach())
        self.register_buffer("train_counts", None if train_counts is None else train_counts.detach())
        if input_transform is not None:
            self.input_transform = input_transform.to(train_X)
        widths = [self.transform_inputs(train_X).shape[-1], *(points.shape[1] for points in self.train_T)]

        def one() -> Core:
            given = default_kernels(widths) if kernels is None else [deepcopy(kernel) for kernel in kernels]
            return Core(given, noise=noise).to(train_X.device).double()

        self.models = nn.ModuleList([one() for _ in range(max(1, train_X.shape[:-2].numel()))])
        self._posteriors: dict[int, tuple[Posterior, Scaling, list[Scaling]]] = {}
        self._added: list[tuple[Tensor, list[int], Tensor, Tensor]] = []

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
        shapes = [self.train_X.shape[:-2], *(Y.shape[:-2] for _, _, Y, _ in self._added)]
        return torch.broadcast_shapes(*shapes)

    @property
    def likelihood(self) -> Any:
        """Of the first batch; None where the noise is known."""
        return self.models[0].likelihood if self.train_Yvar is None else None

    def _data(self, batch: int) -> tuple[Observations, Scaling, list[Scaling]]:
        """The observations of one batch, scaled, and how."""
        X = self.transform_inputs(self.train_X)
        X = X.reshape(-1, *X.shape[-2:])[batch]
        factors = [X.double(), *(points.double() for points in self.train_T)]
        Y = self._of_batch(self.train_Y, batch)
        noise = None if self.train_Yvar is None else self._of_batch(self.train_Yvar, batch)
        data = from_array(factors, Y, noise)
        scaling = Scaling.standard(data.values)
        scalings = [Scaling.standard(x) for x in factors]
        grid = PartialGrid(tuple(s.apply(x) for s, x in zip(scalings, factors, strict=True)), data.grid.observed)
        counts = data.counts if self.train_counts is None else self._of_batch(self.train_counts, batch)[data.grid.observed]
        known = None if data.noise_variance is None else data.noise_variance / scaling.scale**2
        return Observations(grid, scaling.apply(data.values), counts, known), scaling, scalings

    def _of_batch(self, tensor: Tensor, batch: int) -> Tensor:
        return tensor.reshape(-1, *self.train_Y.shape[len(self.train_X.shape) - 2 :])[batch].double()

    def _core(self, batch: int) -> Core:
        return cast(Core, self.models[batch])

    # Learning

    def fit(self, **words: Any) -> list[FitResult]:
        """Learn the hyperparameters of every batch; words: as of `lkgp.fit`. Returns what was done for each."""
        results = []
        for batch in range(len(self.models)):
            result = fit(self._core(batch), self._data(batch)[0], **words)
            self.models[batch] = result.model
            results.append(result)
        self._posteriors.clear()
        return results

    def _posterior_of(self, batch: int) -> tuple[Posterior, Scaling, list[Scaling]]:
        if batch not in self._posteriors:
            data, scaling, scalings = self._data(batch)
            model = self._core(batch)
            self._posteriors[batch] = condition(model, data, plan(model, data, "auto")), scaling, scalings
        return self._posteriors[batch]

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Data are part of the state; those of this model take their shape."""
        for name, buffer in list(self.named_buffers(recurse=False)):
            if name in state_dict and state_dict[name].shape != buffer.shape:
                setattr(self, name, torch.empty_like(state_dict[name]))
        self._posteriors.clear()
        self._added = []
        return super().load_state_dict(state_dict, strict, assign)

    # Asking

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
        **_: Any,
    ) -> GPyTorchPosterior | BotorchPosterior:
        """The joint posterior of the outputs at X (*batch, q, d), in the units of train_Y, with gradients with respect to X.

        output_indices: which outputs; all by default
        observation_noise: whether to add the noise, or a variance, of shape (*batch, q, outputs) or (*batch, 1, outputs)
        """
        outputs = list(range(self.num_outputs)) if output_indices is None else [i % self.num_outputs for i in output_indices]
        mean, covariance = self._given(self.transform_inputs(X), outputs)
        if observation_noise is not False:
            wanted = self._noise(mean) if observation_noise is True else observation_noise
            covariance = covariance + torch.diag_embed(wanted.expand(mean.shape).flatten(-2))
        mean, covariance = mean.to(X), to_linear_operator(covariance.to(X))
        if len(outputs) == 1:
            distribution: MultivariateNormal = MultivariateNormal(mean[..., 0], covariance)
        else:
            distribution = MultitaskMultivariateNormal(mean, covariance)
        made = GPyTorchPosterior(distribution)
        return made if posterior_transform is None else posterior_transform(made)

    def _given(self, X: Tensor, outputs: list[int]) -> tuple[Tensor, Tensor]:
        """Mean (*batch, q, outputs) and covariance (*batch, q outputs, q outputs), given what was added, too."""
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        groups = [(X, outputs), *((points, where) for points, where, _, _ in self._added)]
        mean, covariance = self._moments([(points.expand(*shape, *points.shape[-2:]), where) for points, where in groups], shape)
        asked = X.shape[-2] * len(outputs)
        if self._added:
            # m' = m + C_*n (C_nn + S)^-1 (y_n - m_n), C' = C_** - C_*n (C_nn + S)^-1 C_n*
            values = torch.cat([Y.expand(*shape, *Y.shape[-2:]).flatten(-2) for _, _, Y, _ in self._added], dim=-1).double()
            noise = torch.cat([s.expand(*shape, *s.shape[-2:]).flatten(-2) for _, _, _, s in self._added], dim=-1).double()
            cross = covariance[..., asked:, :asked]
            root = torch.linalg.cholesky(covariance[..., asked:, asked:] + torch.diag_embed(noise))
            gain = torch.cholesky_solve(cross, root).mT
            mean, covariance = (
                mean[..., :asked] + (gain @ (values - mean[..., asked:])[..., None])[..., 0],
                covariance[..., :asked, :asked] - gain @ cross,
            )
        return mean.view(*shape, X.shape[-2], len(outputs)), covariance

    def _moments(self, groups: list[tuple[Tensor, list[int]]], shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Mean (*shape, c) and covariance (*shape, c, c) of the cells of all groups, given the training data."""
        own = self.train_X.shape[:-2]
        # The batches of the model are the last ones of what is asked; the questions to each are put side by side.
        count, batches = shape[: len(shape) - len(own)].numel(), own.numel()
        means, covariances = [], []
        for batch in range(batches):
            posterior, scaling, scalings = self._posterior_of(batch)
            cells = []
            for X, outputs in groups:
                points = X.reshape(count, batches, *X.shape[-2:])[:, batch].double()
                cells.append(Cells(scalings[0].apply(points), self._other_points(outputs, scalings[1:])))
            mean, covariance = joint_moments(posterior, cells)
            means.append(scaling.undo(mean))
            covariances.append(covariance * scaling.scale**2)
        mean, covariance = torch.stack(means, dim=1), torch.stack(covariances, dim=1)
        return mean.reshape(*shape, *mean.shape[2:]), covariance.reshape(*shape, *covariance.shape[2:])

    def _other_points(self, outputs: list[int], scalings: list[Scaling]) -> tuple[Tensor, ...]:
        """The points of the outputs along each further factor, (outputs, d_k)."""
        sizes = [len(points) for points in self.train_T]
        places = torch.unravel_index(torch.tensor(outputs, device=self.train_X.device), sizes)
        return tuple(s.apply(points.double())[i] for s, points, i in zip(scalings, self.train_T, places, strict=True))

    def _noise(self, like: Tensor) -> Tensor:
        """The noise variance of a new observation, in the units of train_Y, of the shape of `like` (*batch, q, outputs)."""
        own = self.train_X.shape[:-2]
        found = []
        for batch in range(len(self.models)):
            _, scaling, _ = self._posterior_of(batch)
            if self.train_Yvar is None:
                found.append(self._core(batch).noise_variance().detach() * scaling.scale**2)
            else:  # a new observation is taken to be as noisy as the others on average
                found.append(self._of_batch(self.train_Yvar, batch).nanmean())
        return torch.stack(found).view(*own, 1, 1).expand(like.shape)

    # Adding

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, output_indices: list[int] | None = None, **_: Any
    ) -> "LatentKroneckerGP":
        """A model that has also seen Y (*fantasies, *batch, q, outputs) at X (*batch, q, d); the hyperparameters are the same.

        noise: variances of Y, of its shape; those of the other observations by default
        output_indices: to which outputs the last dimension of Y belongs; all by default
        """
        outputs = list(range(self.num_outputs)) if output_indices is None else [i % self.num_outputs for i in output_indices]
        if Y.shape[-2:] != (X.shape[-2], len(outputs)):
            raise InputError(f"Y must end with ({X.shape[-2]}, {len(outputs)}), as X and the outputs have it, not {tuple(Y.shape[-2:])}.")
        if not bool(torch.isfinite(Y).all()):
            raise InputError("Y must be finite; leave out rows that were not observed, or name the outputs that were.")
        shape = torch.broadcast_shapes(Y.shape[:-2], self.batch_shape)
        like = Y.expand(*shape, *Y.shape[-2:])
        variance = self._noise(like.detach().double()) if noise is None else noise.expand(like.shape)
        other = self.__class__.__new__(self.__class__)
        nn.Module.__init__(other)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name not in ("_added",)})
        other._added = [*self._added, (self.transform_inputs(X), outputs, like, variance)]
        return other

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, *, step: str = "step") -> dict[str, Any]:
        """The arguments of the model from rows of features and one value, of which one feature is the `step`.

        Rows that are there several times are averaged, and count as often.
        """
        parsed = Model.construct_inputs(training_data=training_data)
        names = training_data.feature_names
        if step not in names:
            raise InputError(f"there is no feature {step!r}; there are {', '.join(names)}.")
        rows, values, variances = parsed["train_X"], parsed["train_Y"][..., 0], parsed.get("train_Yvar")
        if rows.ndim != 2:
            raise InputError("rows in batches cannot be sorted into grids; give one batch.")
        place = names.index(step)
        others = [i for i in range(len(names)) if i != place]
        X, of_x = rows[:, others].unique(sorted=True, return_inverse=True, dim=0)
        T, of_t = rows[:, [place]].unique(sorted=True, return_inverse=True, dim=0)
        cell = of_x * len(T) + of_t
        # The mean of several observations, weighted by their precisions where these are known.
        weights = torch.ones_like(values) if variances is None else 1 / variances[..., 0]
        total = values.new_zeros(len(X) * len(T)).index_add(0, cell, weights)
        Y = values.new_zeros(len(total)).index_add(0, cell, weights * values) / total  # 0 / 0 is NaN: not observed
        grid = (len(X), len(T))
        made = {"train_X": X, "train_T": T, "train_Y": Y.view(grid)}
        return made | ({"train_counts": total.view(grid)} if variances is None else {"train_Yvar": (1 / total).view(grid)})


class LastStep(Model, FantasizeMixin):
    """One output of a LatentKroneckerGP, by default the value at the last step, as a model with a single output.

    Acquisition functions that know nothing of steps take it as it is.
    """

    def __init__(self, model: LatentKroneckerGP, output: int = -1) -> None:
        super().__init__()
        self.model, self.output = model, output % model.num_outputs

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        return self.model.batch_shape

    @property
    def likelihood(self) -> Any:
        return self.model.likelihood

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
        **_: Any,
    ) -> GPyTorchPosterior | BotorchPosterior:
        """As of the model, for its one output."""
        if output_indices not in (None, [0], [-1]):
            raise InputError(f"there is one output, 0; {output_indices} were asked for.")
        return self.model.posterior(X, [self.output], observation_noise, posterior_transform)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **_: Any) -> "LastStep":
        """As of the model; Y: (*fantasies, *batch, q, 1)."""
        return LastStep(self.model.condition_on_observations(X, Y, noise, [self.output]), self.output)
