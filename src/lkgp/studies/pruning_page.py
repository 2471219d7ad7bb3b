"""What the replays of learning curves say about pruners, as a section of the page with a chart."""

import statistics
from pathlib import Path
from typing import Any

Replays = list[dict[str, Any]]


def replays_of(results: dict[str, Any], chosen_on: bool) -> Replays:
    """Those of the sets that lkgp's defaults were chosen on, or of the others."""
    measured = (
        run for run in results["runs"] if run["case"].startswith("pruning-") and run.get("chosen_on") == chosen_on
    )
    return [replay for run in measured for replay in run["replays"]]


def fresh_of(results: dict[str, Any]) -> Replays:
    """Those of runs that were drawn later."""
    return [replay for run in results["runs"] for replay in run.get("fresh", [])]


def by_setting(replays: Replays) -> dict[tuple[str, str], Replays]:
    found: dict[tuple[str, str], Replays] = {}
    for replay in replays:
        found.setdefault((replay["family"], replay["setting"]), []).append(replay)
    return found


def mean(replays: Replays, name: str) -> float:
    return statistics.fmean(replay[name] for replay in replays)


def section(results: dict[str, Any]) -> list[str]:
    replays, others = replays_of(results, True), replays_of(results, False)
    if not replays and not others:
        return []
    lines = [
        "## Stopping training runs early",
        "",
        f"LCBench sets replayed as tuning: {(replays or others)[0]['runs']} runs arrive one after the other, in several orders, report "
        "their validation loss after each of 52 epochs, and may be stopped. Regret is by how much the best run that was trained to its "
        "end is worse than the best of all, in units of how much a median run is worse.",
        "",
    ]
    for found, what in (
        (fresh_of(results), "with runs that were drawn after lkgp's defaults were chosen; every setting on every set"),
        (replays, "on which lkgp's settings and prior were chosen; other settings than the default in one order only"),
        (others, "more, of which half of the replays were looked at for that, too"),
    ):
        if found:
            lines += [f"{len({replay['dataset'] for replay in found})} sets {what}:", "", *table(found), ""]
    many = next((run["many"] for run in results["runs"] if run["case"] == "pruning-many"), None)
    if many is None:
        return lines
    waits = f"{1e3 * many['median_seconds']:.1f} ms, {many['worst_seconds']:.2f} s at the worst"
    kept = "was kept" if many["best_kept"] else "was lost"
    return [
        *lines,
        f"With {many['runs']} runs of {many['dataset']}, a verdict of lkgp takes {waits}; the best {kept}.",
        "",
    ]


def table(replays: Replays) -> list[str]:
    lines = [
        "| pruner | setting | replays | epochs spent | best kept | mean regret | median wait | longest wait |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (family, setting), found in by_setting(replays).items():
        waits = f"{1e3 * statistics.median(r['median_seconds'] for r in found):.1f} ms | {max(r['worst_seconds'] for r in found):.2f} s"
        shares = f"{mean(found, 'spent'):.1%} | {mean(found, 'best_kept'):.0%} | {mean(found, 'regret'):.5f}"
        lines.append(f"| {family} | {setting} | {len(found)} | {shares} | {waits} |")
    return lines


def chart(results: dict[str, Any], folder: Path) -> tuple[str, str] | None:
    """Regret against what was spent, a point a setting, on the fresh replays, which all settings were run on."""
    replays = fresh_of(results)
    if not replays:
        return None
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional package)

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharex=True)
    points: dict[str, list[tuple[float, float, float]]] = {}
    for (family, _), found in by_setting(replays).items():
        points.setdefault(family, []).append((mean(found, "spent"), mean(found, "regret"), mean(found, "best_kept")))
    for family, places in points.items():
        spent, regret, kept = zip(*sorted(places), strict=True)
        style = {"linewidth": 2.5, "color": "black"} if family == "lkgp" else {"linewidth": 1.0}
        left.plot([100 * x for x in spent], regret, "o-", label=family, **style)
        right.plot([100 * x for x in spent], [100 * x for x in kept], "o-", label=family, **style)
    left.set(xlabel="epochs spent, %", ylabel="mean regret")
    left.set_yscale("symlog", linthresh=1e-3)  # so that small ones can be told from none
    right.set(xlabel="epochs spent, %", ylabel="replays in which the best was kept, %")
    right.legend()
    figure.savefig(folder / "performance-pruning.png", dpi=110)
    plt.close(figure)
    return (
        "performance-pruning.png",
        "Regret and kept runs against epochs spent, by pruner, with fresh runs of each set",
    )
