"""BoTorch's model of learning curves and other grids with holes, with all of BoTorch's contract."""

from collections.abc import Sequence
from copy import copy, deepcopy
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
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor, nn

from lkgp.data.grid import PartialGrid, as_factor_coords
from lkgp.data.readers import Observations, from_array
from lkgp.data.scaling import Scaling
from lkgp.errors import InputError
from lkgp.fitting.search import FitResult, fit
from lkgp.inference.methods import plan
from lkgp.model.model import LatentKroneckerGP as Core
from lkgp.model.model import default_kernels
from lkgp.posterior.moments import Cells, joint_moments
from lkgp.posterior.posterior import Posterior, condition

# Of a variance, what is lost in rounding.
JITTER = 1e-9


class LatentKroneckerGP(Model, FantasizeMixin):
    """An exact GP over X and one or several further factors, whose combinations are the outputs; NaN means not observed.

    train_X: (*batch, n, d)
    train_T: points of the second factor, (t, d_T), or a list with those of several
    train_Y: (*batch, n, t), or (*batch, n, t_1, t_2, ...); the gaps may differ from batch to batch
    train_Yvar: known noise variances, of the shape of train_Y; learned by default, one a batch
    train_counts: how many observations each value is the mean of, of the shape of train_Y
    train_scatter: the sum of their squares about that mean, of the shape of train_Y: where it is known, the noise is learned from it, too
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
        train_scatter: Tensor | None = None,
        kernels: Sequence[Kernel] | None = None,
        noise: float = 0.05,
        input_transform: InputTransform | None = None,
    ) -> None:
        super().__init__()
        factors = [train_T] if isinstance(train_T, Tensor) else list(train_T)
        for k, points in enumerate(factors):
            self.register_buffer(f"train_T_{k}", as_factor_coords(points.detach(), f"train_T {k}"))
        shape = train_X.shape[:-1] + torch.Size([len(points) for points in factors])
        data = {
            "train_Y": train_Y,
            "train_Yvar": train_Yvar,
            "train_counts": train_counts,
            "train_scatter": train_scatter,
        }
        for name, given in data.items():
            if given is not None and given.shape != shape:
                raise InputError(
                    f"{name} must be of shape {tuple(shape)}, as train_X and train_T have it, not {tuple(given.shape)}."
                )
        if bool(torch.isinf(train_Y).any()):
            raise InputError("train_Y is infinite somewhere; NaN means not observed.")
        self._num_factors = len(factors)
        self.register_buffer("train_X", train_X.detach())
        for name, given in data.items():
            self.register_buffer(name, None if given is None else given.detach())
        if input_transform is not None:
            # What it learns, it learns from the training data, once.
            self.input_transform = input_transform.to(train_X).train()
            self.input_transform(train_X)
            self.input_transform.eval()
        widths = [self._inputs().shape[-1], *(points.shape[1] for points in self.train_T)]

        def one() -> Core:
            given = default_kernels(widths) if kernels is None else [deepcopy(kernel) for kernel in kernels]
            return Core(given, noise=noise).to(train_X.device).double()

        for rows in self._inputs().reshape(-1, *train_X.shape[-2:-1], widths[0]):
            if len(torch.unique(rows, dim=0)) < len(rows):
                raise InputError(
                    "rows of train_X repeat; average them, and say how often in train_counts, as construct_inputs does."
                )
        self.models = nn.ModuleList([one() for _ in range(max(1, train_X.shape[:-2].numel()))])
        self._posteriors: dict[int, tuple[Any, tuple[Posterior, Scaling, list[Scaling]]]] = {}
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
        shapes = [self.train_X.shape[:-2], *(tensor.shape[:-2] for X, _, Y, _ in self._added for tensor in (X, Y))]
        return torch.broadcast_shapes(*shapes)

    @property
    def likelihood(self) -> Any:
        """Of the first batch; None where the noise is known."""
        return self.models[0].likelihood if self.train_Yvar is None else None

    def _inputs(self) -> Tensor:
        """train_X as the input transform has it for training."""
        return (
            self.input_transform.preprocess_transform(self.train_X)
            if hasattr(self, "input_transform")
            else self.train_X
        )

    def _data(self, batch: int) -> tuple[Observations, Scaling, list[Scaling]]:
        """The observations of one batch, scaled, and how."""
        X = self._inputs()
        X = X.reshape(-1, *X.shape[-2:])[batch]
        factors = [X.double(), *(points.double() for points in self.train_T)]
        Y = self._of_batch(self.train_Y, batch)
        noise = None if self.train_Yvar is None else self._of_batch(self.train_Yvar, batch)
        data = from_array(factors, Y, noise)
        scaling = Scaling.standard(data.values)
        scalings = [Scaling.standard(x) for x in factors]
        grid = PartialGrid(tuple(s.apply(x) for s, x in zip(scalings, factors, strict=True)), data.grid.observed)
        counts = (
            data.counts if self.train_counts is None else self._of_batch(self.train_counts, batch)[data.grid.observed]
        )
        known = None if data.noise_variance is None else data.noise_variance / scaling.scale**2
        scatter = (
            None
            if self.train_scatter is None
            else self._of_batch(self.train_scatter, batch)[data.grid.observed] / scaling.scale**2
        )
        return Observations(grid, scaling.apply(data.values), counts, known, scatter), scaling, scalings

    def _of_batch(self, tensor: Tensor, batch: int) -> Tensor:
        return tensor.reshape(-1, *self.train_Y.shape[len(self.train_X.shape) - 2 :])[batch].double()

    def _core(self, batch: int) -> Core:
        return cast(Core, self.models[batch])

    # Learning

    def fit(self, **words: Any) -> list[FitResult]:
        """Learn the hyperparameters of every batch; words: as of `lkgp.fit`. Returns what was done for each."""
        if self._added:
            raise InputError(
                "this model was conditioned on more observations; make one of all data to learn from them."
            )
        results = []
        for batch in range(len(self.models)):
            result = fit(self._core(batch), self._data(batch)[0], **words)
            self.models[batch] = result.model
            results.append(result)
        return results

    def _posterior_of(self, batch: int) -> tuple[Posterior, Scaling, list[Scaling]]:
        """Conditioned anew when a hyperparameter or the data have changed."""
        model = self._core(batch)
        # Hyperparameters by value: GPyTorch changes them behind torch's back, which counts the versions of a tensor.
        learned = [
            *model.parameters(),
            *(self.input_transform.state_dict().values() if hasattr(self, "input_transform") else ()),
        ]
        values = [tensor.detach().cpu().numpy().tobytes() for tensor in learned]
        state = values, [(tensor.data_ptr(), tensor._version) for tensor in self.buffers(recurse=False)]
        if batch not in self._posteriors or self._posteriors[batch][0] != state:
            data, scaling, scalings = self._data(batch)
            fixed = deepcopy(model)
            self._posteriors[batch] = state, (condition(fixed, data, plan(fixed, data, "auto")), scaling, scalings)
        return self._posteriors[batch][1]

    def get_extra_state(self) -> list[tuple[Tensor, list[int], Tensor, Tensor]]:
        """What the model was conditioned on, for `state_dict`."""
        return [(X.detach(), outputs, Y.detach(), noise.detach()) for X, outputs, Y, noise in self._added]

    def set_extra_state(self, state: list[tuple[Tensor, list[int], Tensor, Tensor]]) -> None:
        self._added = list(state)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *words: Any) -> None:
        """Data are part of the state; those of this model take their shape, also where it is a part of another module."""
        for name, buffer in list(self.named_buffers(recurse=False)):
            new = state_dict.get(prefix + name)
            if new is not None and new.shape != buffer.shape:
                setattr(self, name, torch.empty_like(new))
        super()._load_from_state_dict(state_dict, prefix, *words)

    def train(self, mode: bool = True) -> "LatentKroneckerGP":
        """There is nothing to do but what torch does; an input transform has learned all that it will."""
        nn.Module.train(self, mode)
        if hasattr(self, "input_transform"):
            self.input_transform.eval()
        return self

    def eval(self) -> "LatentKroneckerGP":
        return self.train(False)

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
        self._check_points(X)
        outputs = self._outputs(output_indices)
        mean, covariance = self._given(self.transform_inputs(X), outputs)
        if observation_noise is not False:
            wanted = self._noise(mean) if observation_noise is True else observation_noise
            covariance = covariance + torch.diag_embed(wanted.expand(mean.shape).flatten(-2))
        # Variances are not negative, whatever rounding makes of them.
        spread = torch.diagonal(covariance, dim1=-2, dim2=-1)
        covariance = covariance + torch.diag_embed(spread.clamp(min=self._least_variance()) - spread)
        mean, covariance = mean.to(X), to_linear_operator(covariance.to(X))
        if len(outputs) == 1:
            distribution: MultivariateNormal = MultivariateNormal(mean[..., 0], covariance)
        else:
            distribution = MultitaskMultivariateNormal(mean, covariance)
        made = GPyTorchPosterior(distribution)
        return made if posterior_transform is None else posterior_transform(posterior=made, X=X)

    def subset_output(self, idcs: list[int]) -> "SomeOutputs":
        """Some outputs as a model of their own."""
        return SomeOutputs(self, self._outputs(idcs))

    def _check_points(self, X: Tensor) -> None:
        if X.ndim < 2 or X.shape[-1] != self.train_X.shape[-1]:
            raise InputError(f"X must be (*batch, q, {self.train_X.shape[-1]}), not {tuple(X.shape)}.")

    def _outputs(self, indices: list[int] | None) -> list[int]:
        if indices is None:
            return list(range(self.num_outputs))
        if not indices or any(not -self.num_outputs <= i < self.num_outputs for i in indices):
            raise InputError(f"output_indices must be among the {self.num_outputs} outputs, from 0 on, not {indices}.")
        return [i % self.num_outputs for i in indices]

    def _given(self, X: Tensor, outputs: list[int]) -> tuple[Tensor, Tensor]:
        """Mean (*batch, q, outputs) and covariance (*batch, q outputs, q outputs), given what was added, too."""
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        groups = [(X, outputs), *((points, where) for points, where, _, _ in self._added)]
        mean, covariance = self._moments(
            [(points.expand(*shape, *points.shape[-2:]), where) for points, where in groups], shape
        )
        asked = X.shape[-2] * len(outputs)
        if self._added:
            # m' = m + C_*n (C_nn + S)^-1 (y_n - m_n), C' = C_** - C_*n (C_nn + S)^-1 C_n*
            values = torch.cat(
                [Y.expand(*shape, *Y.shape[-2:]).flatten(-2) for _, _, Y, _ in self._added], dim=-1
            ).double()
            noise = torch.cat(
                [s.expand(*shape, *s.shape[-2:]).flatten(-2) for _, _, _, s in self._added], dim=-1
            ).double()
            cross = covariance[..., asked:, :asked]
            known = covariance[..., asked:, asked:] + torch.diag_embed(noise)
            # Where observations repeat, nearly without noise, rounding is all that tells them apart.
            root = psd_safe_cholesky(known + JITTER * torch.diag_embed(torch.diagonal(known, dim1=-2, dim2=-1)))
            gain = torch.cholesky_solve(cross, root).mT
            mean, covariance = (
                mean[..., :asked] + (gain @ (values - mean[..., asked:])[..., None])[..., 0],
                covariance[..., :asked, :asked] - gain @ cross,
            )
        return mean.view(*shape, X.shape[-2], len(outputs)), covariance

    def _moments(self, groups: list[tuple[Tensor, list[int]]], shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Mean (*shape, c) and covariance (*shape, c, c) of the cells of all groups, given the training data."""
        own = self.train_X.shape[:-2]
        # To which batch of the model each question goes, and from where its answer comes back.
        asked = torch.arange(own.numel(), device=self.train_X.device).view(own).expand(shape).flatten()
        back = torch.argsort(torch.argsort(asked, stable=True))
        means, covariances = [], []
        for batch in range(own.numel()):
            posterior, scaling, scalings = self._posterior_of(batch)
            cells = []
            for X, outputs in groups:
                points = X.reshape(len(asked), *X.shape[-2:])[asked == batch].double()
                cells.append(Cells(scalings[0].apply(points), self._other_points(outputs, scalings[1:])))
            mean, covariance = joint_moments(posterior, cells)
            means.append(scaling.undo(mean))
            covariances.append(covariance * scaling.scale**2)
        mean, covariance = torch.cat(means)[back], torch.cat(covariances)[back]
        return mean.reshape(*shape, *mean.shape[1:]), covariance.reshape(*shape, *covariance.shape[1:])

    def _other_points(self, outputs: list[int], scalings: list[Scaling]) -> tuple[Tensor, ...]:
        """The points of the outputs along each further factor, (outputs, d_k)."""
        sizes = [len(points) for points in self.train_T]
        places = torch.unravel_index(torch.tensor(outputs, device=self.train_X.device), sizes)
        return tuple(s.apply(points.double())[i] for s, points, i in zip(scalings, self.train_T, places, strict=True))

    def _least_variance(self) -> float:
        """Below what rounding leaves of a variance."""
        return JITTER * min(float(self._posterior_of(batch)[1].scale) ** 2 for batch in range(len(self.models)))

    def _noise(self, like: Tensor) -> Tensor:
        """The noise variance of a new observation, in the units of train_Y, of the shape of `like` (*batch, q, outputs)."""
        own = self.train_X.shape[:-2]
        found = []
        for batch in range(len(self.models)):
            _, scaling, _ = self._posterior_of(batch)
            if self.train_Yvar is None:
                found.append(self._core(batch).noise_variance().detach() * scaling.scale**2)
            else:  # a new observation is taken to be as noisy as the others on average
                there = torch.isfinite(self._of_batch(self.train_Y, batch))
                found.append(self._of_batch(self.train_Yvar, batch)[there].mean())
        return torch.stack(found).view(*own, 1, 1).expand(like.shape)

    # Adding

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, output_indices: list[int] | None = None, **_: Any
    ) -> "LatentKroneckerGP":
        """A model that has also seen Y (*fantasies, *batch, q, outputs) at X (*batch, q, d); the hyperparameters are the same.

        noise: variances of Y, of its shape; those of the other observations by default
        output_indices: to which outputs the last dimension of Y belongs; all by default
        """
        self._check_points(X)
        outputs = self._outputs(output_indices)
        if Y.shape[-2:] != (X.shape[-2], len(outputs)):
            raise InputError(
                f"Y must end with ({X.shape[-2]}, {len(outputs)}), as X and the outputs have it, not {tuple(Y.shape[-2:])}."
            )
        if not bool(torch.isfinite(Y).all()):
            raise InputError("Y must be finite; leave out rows that were not observed, or name the outputs that were.")
        shape = torch.broadcast_shapes(Y.shape[:-2], self.batch_shape)
        like = Y.expand(*shape, *Y.shape[-2:])
        variance = self._noise(like.detach().double()) if noise is None else noise.expand(like.shape)
        other = copy(self)  # with the same data and hyperparameters, but its own list of them
        other._modules = {**self._modules, "models": nn.ModuleList(list(self.models))}
        other._buffers = dict(self._buffers)
        other._posteriors = dict(self._posteriors)
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
        if parsed["train_Y"].shape[-1] != 1:
            raise InputError(f"rows must have one value, not {parsed['train_Y'].shape[-1]}; make a model for each.")
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
        if variances is not None:
            return made | {"train_Yvar": torch.where(total > 0, 1 / total, torch.nan).view(grid)}
        scatter = values.new_zeros(len(total)).index_add(0, cell, (values - Y[cell]).square())
        return made | {"train_counts": total.view(grid), "train_scatter": scatter.view(grid)}


class SomeOutputs(Model, FantasizeMixin):
    """Some outputs of a LatentKroneckerGP as a model of their own."""

    def __init__(self, model: LatentKroneckerGP, outputs: list[int]) -> None:
        super().__init__()
        self.model, self.outputs = model, model._outputs(outputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

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
        """As of the model, for these outputs."""
        chosen = range(len(self.outputs)) if output_indices is None else output_indices
        if any(not -len(self.outputs) <= i < len(self.outputs) for i in chosen):
            raise InputError(
                f"output_indices must be among the {len(self.outputs)} outputs, from 0 on, not {output_indices}."
            )
        return self.model.posterior(X, [self.outputs[i] for i in chosen], observation_noise, posterior_transform)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **_: Any) -> "SomeOutputs":
        """As of the model; Y: (*fantasies, *batch, q, outputs)."""
        return SomeOutputs(self.model.condition_on_observations(X, Y, noise, self.outputs), self.outputs)


class LastStep(SomeOutputs):
    """One output of a LatentKroneckerGP, by default the value at the last step, as a model with a single output.

    Acquisition functions that know nothing of steps take it as it is.
    """

    def __init__(self, model: LatentKroneckerGP, output: int = -1) -> None:
        super().__init__(model, [output])
