"""What the replays of learning curves say about pruners, as a section of the page with a chart."""

import statistics
from pathlib import Path
from typing import Any

Replays = list[dict[str, Any]]


def replays_of(results: dict[str, Any]) -> Replays:
    return next((run["replays"] for run in results["runs"] if run["case"] == "pruning"), [])


def by_setting(replays: Replays) -> dict[tuple[str, str], Replays]:
    found: dict[tuple[str, str], Replays] = {}
    for replay in replays:
        found.setdefault((replay["family"], replay["setting"]), []).append(replay)
    return found


def mean(replays: Replays, name: str) -> float:
    return statistics.fmean(replay[name] for replay in replays)


def section(results: dict[str, Any]) -> list[str]:
    replays = replays_of(results)
    if not replays:
        return []
    sets, runs = len({replay["dataset"] for replay in replays}), replays[0]["runs"]
    lines = [
        "## Stopping training runs early",
        "",
        f"{sets} LCBench sets replayed as tuning: {runs} runs arrive one after the other, in several orders, report their validation loss "
        "after each of 52 epochs, and may be stopped. Regret is by how much the best run that was trained to its end is worse than "
        "the best of all, in units of how much a median run is worse.",
        "",
        "| pruner | setting | replays | epochs spent | best kept | mean regret | median wait | longest wait |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (family, setting), found in by_setting(replays).items():
        waits = f"{1e3 * statistics.median(r['median_seconds'] for r in found):.1f} ms | {max(r['worst_seconds'] for r in found):.2f} s"
        shares = f"{mean(found, 'spent'):.1%} | {mean(found, 'best_kept'):.0%} | {mean(found, 'regret'):.4f}"
        lines.append(f"| {family} | {setting} | {len(found)} | {shares} | {waits} |")
    many = next(run["many"] for run in results["runs"] if run["case"] == "pruning")
    waits = f"{1e3 * many['median_seconds']:.1f} ms, {many['worst_seconds']:.2f} s at the worst"
    kept = "was kept" if many["best_kept"] else "was lost"
    return [*lines, "", f"With {many['runs']} runs of {many['dataset']}, a verdict of lkgp takes {waits}; the best {kept}.", ""]


def chart(results: dict[str, Any], folder: Path) -> tuple[str, str] | None:
    """Regret against what was spent, a point a setting."""
    replays = replays_of(results)
    if not replays:
        return None
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional package)

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharex=True)
    points: dict[str, list[tuple[float, float, float]]] = {}
    for (family, _), found in by_setting(replays).items():
        points.setdefault(family, []).append((mean(found, "spent"), mean(found, "regret"), mean(found, "best_kept")))
    for family, places in points.items():
        spent, regret, kept = zip(*sorted(places), strict=True)
        style = {"linewidth": 2.5, "color": "tab:blue"} if family == "lkgp" else {"linewidth": 1.0}
        left.plot([100 * x for x in spent], regret, "o-", label=family, **style)
        right.plot([100 * x for x in spent], [100 * x for x in kept], "o-", label=family, **style)
    left.set(xlabel="epochs spent, %", ylabel="mean regret")
    right.set(xlabel="epochs spent, %", ylabel="replays in which the best was kept, %")
    right.legend()
    figure.savefig(folder / "performance-pruning.png", dpi=110)
    plt.close(figure)
    return "performance-pruning.png", "Regret and kept runs against epochs spent, by pruner"
