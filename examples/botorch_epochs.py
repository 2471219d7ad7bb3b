"""Choose the next configuration and how long to train it, with BoTorch's acquisition functions on partial curves.

    pip install 'lkgp[botorch]'
    python examples/botorch_epochs.py

The "training" is a formula, so that this takes only a few seconds: the accuracy rises towards a level that depends on
two settings and is best at (0.7, 0.3).
"""

import argparse

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from lkgp.botorch import LastStep, LatentKroneckerGP

EPOCHS = torch.arange(1, 21, dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def train(x: torch.Tensor, epochs: int, seed: int) -> torch.Tensor:
    """Accuracies (20,) of the first epochs; NaN after them."""
    level = 0.9 - (x - torch.tensor([0.7, 0.3])).square().sum()
    noise = 0.005 * torch.randn(20, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    curve = level * (1 - torch.exp(-0.3 * EPOCHS)) + noise
    curve[epochs:] = torch.nan
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="number of configurations to try")
    rounds = parser.parse_args().rounds
    X = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = torch.stack([train(x, 20, seed) for seed, x in enumerate(X)])
    for number in range(rounds):
        model = LatentKroneckerGP(X, EPOCHS.log()[:, None], Y)
        model.fit()
        last = LastStep(model)
        sampler = SobolQMCNormalSampler(torch.Size([64]), seed=number)
        acquisition = qLogNoisyExpectedImprovement(last, X, sampler=sampler, prune_baseline=True)
        candidate, _ = optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=4, raw_samples=64, options={"seed": number})
        # Train for five epochs first, and for the rest only if the final accuracy may still be better than the best.
        best = last.posterior(X).mean.max()
        curve = train(candidate[0], 5, len(X))
        partial = LatentKroneckerGP(torch.cat([X, candidate]), EPOCHS.log()[:, None], torch.cat([Y, curve[None]]))
        partial.models[0].load_state_dict(model.models[0].state_dict())
        forecast = LastStep(partial).posterior(candidate)
        optimistic = forecast.mean + 2 * forecast.variance.sqrt()
        epochs = 20 if optimistic.item() > best.item() else 5
        X, Y = torch.cat([X, candidate]), torch.cat([Y, train(candidate[0], epochs, len(X))[None]])
        place = ", ".join(f"{value:.2f}" for value in candidate[0].tolist())
        print(
            f"round {number}: ({place}) for {epochs} epochs; expected final accuracy {forecast.mean.item():.3f}, "
            f"best so far {best.item():.3f}"
        )
    model = LatentKroneckerGP(X, EPOCHS.log()[:, None], Y)
    model.fit()
    winner = int(LastStep(model).posterior(X).mean[:, 0].argmax())
    place = ", ".join(f"{value:.2f}" for value in X[winner].tolist())
    print(
        f"best: ({place}) after {int(torch.isfinite(Y).sum())} epochs in total; "
        f"training all {len(X)} configurations completely takes {20 * len(X)}"
    )


if __name__ == "__main__":
    main()
