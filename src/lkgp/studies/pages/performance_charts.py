"""The charts of the page about the benchmarks.

Each function draws one and returns its file name and caption, or None if there is nothing to draw.
"""

from pathlib import Path

from lkgp.inference.costs import break_even
from lkgp.studies.pages.benchmark_records import by_case, measurement, reference_run, robot_seconds
from lkgp.studies.pages.figures import pyplot
from lkgp.studies.pages.performance_sections import ROBOT_SHAPE
from lkgp.studies.records import Record

Chart = tuple[str, str] | None
# Resolution, in dots per inch.
DPI = 110


def ratio_chart(results: Record, folder: Path) -> Chart:
    """How many times slower each comparator is than lkgp, by case."""
    bars = []
    for case, runs in by_case(results).items():
        ours = reference_run(runs)
        if ours is not None:
            bars += [
                (f"{case}: {run['contestant']}", run["total"] / ours["total"])
                for run in runs
                if run is not ours and "total" in run
            ]
    if not bars:
        return None
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 0.5 + 0.32 * len(bars)), layout="constrained")
    labels, ratios = zip(*reversed(bars), strict=True)
    axes.barh(labels, ratios, color=["tab:blue" if "lkgp" in label else "tab:orange" for label in labels])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="time / time of lkgp")
    axes.bar_label(axes.containers[0], fmt="%.1f", padding=3)
    axes.set_xlim(right=max(ratios) * 2.5)
    figure.savefig(folder / "performance-ratios.png", dpi=DPI)
    plt.close(figure)
    return "performance-ratios.png", "How many times slower each method is than lkgp"


def robot_chart(results: Record, folder: Path) -> Chart:
    """Time against the percentage missing."""
    seconds = robot_seconds(results)
    if not seconds:
        return None
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
    for name, found in seconds.items():
        axes.semilogy(list(found), list(found.values()), "o-", label=name)
    label = "break-even of a product, predicted"
    axes.axvline(100 * break_even(ROBOT_SHAPE), color="black", linestyle="--", linewidth=0.8, label=label)
    axes.set(xlabel="missing, %", ylabel="seconds")
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    figure.savefig(folder / "performance-robot.png", dpi=DPI)
    plt.close(figure)
    return "performance-robot.png", "Time on SARCOS with and without the grid"


def growth_chart(results: Record, folder: Path) -> Chart:
    """Time and memory against the number of cells."""
    run = measurement(results, "growth")
    if run is None:
        return None
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for kind, rows in run["rows"].items():
        cells = [row["cells"] for row in rows]
        left.loglog(cells, [row["seconds"] for row in rows], "o-", label=kind)
        right.loglog(cells, [row["peak memory"] / 1e9 for row in rows], "o-", label=kind)
    last = run["rows"]["product"][-1]
    ends = [run["rows"]["product"][1]["cells"], last["cells"]]
    predicted = [last["seconds"] * (end / last["cells"]) ** run["predicted"] for end in ends]
    left.loglog(ends, predicted, "k--", label=f"cells to the power of {run['predicted']}")
    left.set(xlabel="cells", ylabel="seconds")
    right.set(xlabel="cells", ylabel="peak memory of the process, GB")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(folder / "performance-growth.png", dpi=DPI)
    plt.close(figure)
    return "performance-growth.png", "Time and memory against the number of cells"


MAKERS = (ratio_chart, robot_chart, growth_chart)
