"""The section about stopping training runs early, with its chart."""

import statistics
from pathlib import Path

from lkgp.studies.pages.benchmark_records import measurement
from lkgp.studies.pages.figures import pyplot
from lkgp.studies.pages.performance_charts import DPI, Chart
from lkgp.studies.records import Record

Replays = list[Record]


def replays_of(results: Record, chosen_on: bool) -> Replays:
    """The replays of the sets that lkgp's defaults were chosen on, or those of the other sets."""
    measured = (
        run for run in results["runs"] if run["case"].startswith("pruning-") and run.get("chosen_on") == chosen_on
    )
    return [replay for run in measured for replay in run["replays"]]


def fresh_of(results: Record) -> Replays:
    """The replays of runs that were drawn after that choice."""
    return [replay for run in results["runs"] for replay in run.get("fresh", [])]


def by_setting(replays: Replays) -> dict[tuple[str, str], Replays]:
    """The replays of every pruner and setting."""
    found: dict[tuple[str, str], Replays] = {}
    for replay in replays:
        found.setdefault((replay["family"], replay["setting"]), []).append(replay)
    return found


def mean(replays: Replays, name: str) -> float:
    """The mean of one entry."""
    return statistics.fmean(replay[name] for replay in replays)


def write(results: Record) -> list[str]:
    """The lines of the section."""
    replays, others = replays_of(results, True), replays_of(results, False)
    if not replays and not others:
        return []
    lines = [
        "## Stopping training runs early",
        "",
        f"LCBench sets replayed as tuning: {(replays or others)[0]['runs']} runs arrive one after the other, in "
        "several orders, report their validation loss after each of 52 epochs, and may be stopped. Regret is by how "
        "much the best run that was trained to its end is worse than the best of all, divided by how much a "
        "median run is worse.",
        "",
    ]
    for found, what in (
        (
            fresh_of(results),
            "with runs that were drawn after lkgp's defaults had been chosen; every setting on every set",
        ),
        (replays, "on which lkgp's settings and prior were chosen; settings other than the default in one order only"),
        (others, "of which half of the replays were also looked at for that choice"),
    ):
        if found:
            lines += [f"{set_count(found)} {what}:", "", *table(found), ""]
    record = measurement(results, "pruning-many")
    if record is None:
        return lines
    many = record["many"]
    waits = f"{1e3 * many['median_seconds']:.1f} ms in the median and at most {many['worst_seconds']:.2f} s"
    kept = "was kept" if many["best_kept"] else "was lost"
    return [
        *lines,
        f"With {many['runs']} runs of {many['dataset']}, a decision of lkgp takes {waits}; the best run {kept}.",
        "",
    ]


def set_count(replays: Replays) -> str:
    """How many sets were replayed."""
    count = len({replay["dataset"] for replay in replays})
    return "1 set" if count == 1 else f"{count} sets"


def table(replays: Replays) -> list[str]:
    """What every pruner and setting spends and loses."""
    lines = [
        "| pruner | setting | replays | epochs spent | best kept | mean regret | median wait | longest wait |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (family, setting), found in by_setting(replays).items():
        shares = f"{mean(found, 'spent'):.1%} | {mean(found, 'best_kept'):.0%} | {mean(found, 'regret'):.5f}"
        median_wait = 1e3 * statistics.median(r["median_seconds"] for r in found)
        longest_wait = max(r["worst_seconds"] for r in found)
        waits = f"{median_wait:.1f} ms | {longest_wait:.2f} s"
        lines.append(f"| {family} | {setting} | {len(found)} | {shares} | {waits} |")
    return lines


def chart(results: Record, folder: Path) -> Chart:
    """Regret against the epochs spent, one point per setting, for the fresh replays, on which all settings were run."""
    replays = fresh_of(results)
    if not replays:
        return None
    plt = pyplot()
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
    left.set_yscale("symlog", linthresh=1e-3)  # to tell small regrets from none
    right.set(xlabel="epochs spent, %", ylabel="replays in which the best was kept, %")
    right.legend()
    figure.savefig(folder / "performance-pruning.png", dpi=DPI)
    plt.close(figure)
    return (
        "performance-pruning.png",
        "Regret, and how often the best run was kept, against the epochs spent, by pruner, with fresh runs of each set",
    )
