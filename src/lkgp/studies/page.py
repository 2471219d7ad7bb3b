"""A page about the results of the benchmarks, with charts; every number on it is read from them."""

import math
from pathlib import Path
from typing import Any

from lkgp.inference.costs import break_even
from lkgp.studies import pruning_page
from lkgp.studies.tables import paper_results

TITLES = {
    "learning-curves": "LCBench Fashion-MNIST, {} learning curves x 52 epochs, squared exponentials",
    "era5": "ERA5 temperature, 1617 places x 744 hours, {} % missing",
    "sarcos": "SARCOS robot arm, 4449 states x 7 joints, {} % missing",
    "climate": "simulated climate, 5000 places x 1000 days, {} % missing",
}

Run = dict[str, Any]


def title(case: str) -> str:
    kind, _, number = case.rpartition("-")
    return TITLES[kind].format(number)


def by_case(results: dict[str, Any], kind: str) -> dict[str, list[Run]]:
    """The runs of the cases of one kind, by case, lkgp first."""
    found: dict[str, list[Run]] = {}
    for run in results["runs"]:
        if run["case"].rpartition("-")[0] == kind:
            found.setdefault(run["case"], []).append(run)
    for runs in found.values():
        runs.sort(key=lambda run: run["contestant"] != "lkgp")
    return dict(sorted(found.items(), key=lambda item: int(item[0].rpartition("-")[2])))


def table(runs: list[Run]) -> list[str]:
    """One case as a Markdown table."""
    ours = next((run for run in runs if run["contestant"] == "lkgp"), None)
    lines = [
        "| who | seconds | peak memory | test NLL | test RMSE | times slower than lkgp |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        if "failed" in run:
            lines.append(f"| {run['contestant']} | {run['failed']} | | | | |")
            continue
        quality = [f"{run[name]:.3f}" if name in run else "not run to its end" for name in ("nll", "rmse")]
        ratio = (
            f"{run['total'] / ours['total']:.1f}" if ours is not None and run is not ours and "total" in ours else ""
        )
        stages = " + ".join(f"{name} {seconds:.1f}" for name, seconds in run["seconds"].items())
        how = f"; {run['how']}" if "how" in run else ""
        times = run.get("totals", [])
        how += f"; the median of {len(times)} runs, {min(times):.1f} to {max(times):.1f}" if len(times) > 1 else ""
        memory = f"{run['peak memory'] / 1e9:.2f} GB"
        lines.append(
            f"| {run['contestant']} | {run['total']:.1f} ({stages}{how}) | {memory} | {' | '.join(quality)} | {ratio} |"
        )
    return lines


def write(results: dict[str, Any], path: Path) -> None:
    """Write the page, and its charts beside it."""
    machine = results["hardware"]
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    lines = [
        "# Performance",
        "",
        f"Measured on {results['date']} with `lkgp bench`: {machine['threads']} threads of {machine['processor']}, "
        f"{machine['memory'] / 2**30:.0f} GiB; {packages}.",
        "",
        "Every contestant runs alone in a process of its own, one after the other, on the same data, split and kernels, from GPyTorch's",
        "default hyperparameters. Times of lkgp are for the fit, 64 joint samples at every cell, and mean and standard deviation of every",
        "cell. Short runs are repeated, interleaved, and their median is given with the range; of the others there is one. Where a peer",
        "would take hours, single steps along a straight path to lkgp's optimum are measured and the others interpolated; where even a",
        "step takes many minutes, its iterations are counted and multiplied by what one takes. Then only its fit counts, the quality is",
        "not known, and the table says so.",
        "",
        *([results["note"], ""] if "note" in results else []),
    ]
    for kind in TITLES:
        for case, runs in by_case(results, kind).items():
            lines += [f"## {title(case)}", "", *table(runs), ""]
            ours = next((run for run in runs if run["contestant"] == "lkgp" and "failed" not in run), None)
            if ours is not None:
                lines += _remarks(kind, ours)
    lines += _robot(results) + _products(results) + _growth(results) + pruning_page.section(results)
    makers = (_ratio_chart, _robot_chart, _growth_chart, pruning_page.chart)
    charts = [chart for make in makers if (chart := make(results, path.parent)) is not None]
    lines += ["## Charts", "", *(f"![{words}]({name})" for name, words in charts), ""] if charts else []
    lines += [
        "## Again",
        "",
        "```",
        "LKGP_DATA=folder lkgp bench --output benchmarks.json --page docs/performance.md",
        "```",
        "",
    ]
    path.write_text("\n".join(lines))


def _remarks(kind: str, run: Run) -> list[str]:
    """What else there is to say of a run of lkgp."""
    report = run["report"]
    lines = [f"lkgp: {report['method']}; fit: {report['fit']} ({report['steps']} evaluations on the whole data)."]
    if report["predicted"]:
        lines.append(
            f"Memory predicted for the posterior {report['predicted']['memory'] / 1e9:.1f} GB, peak {run['peak memory'] / 1e9:.1f} GB."
        )
    if kind == "climate":
        spent, minutes = run["total"] / run["product"], paper_minutes(run)
        lines.append(
            f"That is the time of {spent:.0f} single-vector latent Kronecker products in float32 ({run['product']:.3f} s each in the same "
            f"process). The paper's LKGP took {minutes:.1f} minutes on Nordic temperatures of that size, on an A100: as long as "
            f"{60 * minutes / run['product']:.0f} such products here."
        )
        pairs = ", ".join(
            f"{name} {run['recovered'][name]:.4g} (true {value:.4g})" for name, value in run["truth"].items()
        )
        lines.append(f"Hyperparameters: {pairs}.")
    return [" ".join(lines), ""]


def paper_minutes(run: Run) -> float:
    """What the paper's LKGP took on a climate with as much missing."""
    return paper_results()[(f"temperature {run['case'].rpartition('-')[2]}%", "LKGP", "minutes_a100")][0]


def _robot_seconds(results: dict[str, Any]) -> dict[str, dict[int, float]]:
    """The seconds of everyone on the robot arm, by the percentage missing."""
    seconds: dict[str, dict[int, float]] = {}
    for case, runs in by_case(results, "sarcos").items():
        for run in runs:
            if "failed" not in run:
                seconds.setdefault(run["contestant"], {})[int(case.rpartition("-")[2])] = run["total"]
    return seconds


def _robot(results: dict[str, Any]) -> list[str]:
    seconds = _robot_seconds(results)
    if not seconds:
        return []
    ratios = sorted({ratio for found in seconds.values() for ratio in found})
    lines = [
        "## With and without the grid",
        "",
        f"| seconds on SARCOS | {' | '.join(f'{ratio} % missing' for ratio in ratios)} |",
    ]
    lines.append("|---" * (1 + len(ratios)) + "|")
    for name, found in seconds.items():
        lines.append(f"| {name} | {' | '.join(f'{found[ratio]:.0f}' if ratio in found else '' for ratio in ratios)} |")
    chosen = ", ".join(
        f"{case.rpartition('-')[2]} %: {run['report']['method'].split(',')[0].split(':')[0]}"
        for case, runs in by_case(results, "sarcos").items()
        for run in runs
        if run["contestant"] == "lkgp" and "report" in run
    )
    point = f"Products with and without the grid take as long where {100 * break_even((4449, 7)):.0f} % are missing"
    return [*lines, "", f"{point}, by their multiplications. lkgp chose: {chosen}.", ""]


def _robot_chart(results: dict[str, Any], folder: Path) -> tuple[str, str] | None:
    """Time against the percentage missing."""
    seconds = _robot_seconds(results)
    if not seconds:
        return None
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional package)

    figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
    for name, found in seconds.items():
        axes.semilogy(list(found), list(found.values()), "o-", label=name)
    axes.axvline(
        100 * break_even((4449, 7)),
        color="black",
        linestyle="--",
        linewidth=0.8,
        label="break-even of a product, predicted",
    )
    axes.set(xlabel="missing, %", ylabel="seconds")
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    figure.savefig(folder / "performance-robot.png", dpi=110)
    plt.close(figure)
    return "performance-robot.png", "Time on SARCOS with and without the grid"


def _products(results: dict[str, Any]) -> list[str]:
    run = next((run for run in results["runs"] if run["case"] == "products"), None)
    if run is None:
        return []
    lines = [
        "## A latent Kronecker product beside plain matrix products",
        "",
        "| factors | latent | plain | ratio |",
        "|---|---|---|---|",
    ]
    for row in run["rows"]:
        lines.append(
            f"| {row['name']} | {row['latent'] / 1e9:.0f} GFLOP/s | {row['plain'] / 1e9:.0f} GFLOP/s | {row['ratio']:.2f} |"
        )
    return [*lines, ""]


def _growth(results: dict[str, Any]) -> list[str]:
    run = next((run for run in results["runs"] if run["case"] == "growth"), None)
    if run is None:
        return []
    lines = ["## Growth on balanced grids", "", "| cells | what | seconds | peak memory |", "|---|---|---|---|"]
    for kind, rows in run["rows"].items():
        lines += [
            f"| {row['cells']:.0e} | {kind} | {row['seconds']:.3g} | {row['peak memory'] / 1e9:.2f} GB |"
            for row in rows
        ]
    found = ", ".join(f"{kind} {last_exponent(rows):.2f}" for kind, rows in run["rows"].items())
    said = f"From the last size but one to the last, time grows with the cells to the power of: {found}; predicted for a product: "
    return [*lines, "", f"{said}{run['predicted']}. Small fits are mostly overhead.", ""]


def last_exponent(rows: list[dict[str, float]]) -> float:
    """How time grew between the two largest sizes."""
    before, after = rows[-2:]
    return math.log(after["seconds"] / before["seconds"]) / math.log(after["cells"] / before["cells"])


def _ratio_chart(results: dict[str, Any], folder: Path) -> tuple[str, str] | None:
    """How many times slower each peer is, by case."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional package)

    bars = []
    for kind in TITLES:
        for case, runs in by_case(results, kind).items():
            ours = next((run for run in runs if run["contestant"] == "lkgp" and "failed" not in run), None)
            if ours is not None:
                bars += [
                    (f"{case}: {run['contestant']}", run["total"] / ours["total"])
                    for run in runs
                    if run is not ours and "total" in run
                ]
    if not bars:
        return None
    figure, axes = plt.subplots(figsize=(8, 0.5 + 0.32 * len(bars)), layout="constrained")
    labels, ratios = zip(*reversed(bars), strict=True)
    axes.barh(labels, ratios, color=["tab:blue" if "lkgp" in label else "tab:orange" for label in labels])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="time / time of lkgp")
    axes.bar_label(axes.containers[0], fmt="%.1f", padding=3)  # type: ignore[arg-type]
    axes.set_xlim(right=max(ratios) * 2.5)
    figure.savefig(folder / "performance-ratios.png", dpi=110)
    plt.close(figure)
    return "performance-ratios.png", "How many times slower each contestant is than lkgp"


def _growth_chart(results: dict[str, Any], folder: Path) -> tuple[str, str] | None:
    """Time and memory against the number of cells."""
    run = next((run for run in results["runs"] if run["case"] == "growth"), None)
    if run is None:
        return None
    import matplotlib.pyplot as plt  # noqa: PLC0415  (an optional package)

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for kind, rows in run["rows"].items():
        cells = [row["cells"] for row in rows]
        left.loglog(cells, [row["seconds"] for row in rows], "o-", label=kind)
        right.loglog(cells, [row["peak memory"] / 1e9 for row in rows], "o-", label=kind)
    last = run["rows"]["product"][-1]
    ends = [run["rows"]["product"][1]["cells"], last["cells"]]
    left.loglog(
        ends,
        [last["seconds"] * (end / last["cells"]) ** run["predicted"] for end in ends],
        "k--",
        label="cells to the power of 1.5",
    )
    left.set(xlabel="cells", ylabel="seconds")
    right.set(xlabel="cells", ylabel="peak memory of the process, GB")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(folder / "performance-growth.png", dpi=110)
    plt.close(figure)
    return "performance-growth.png", "Time and memory against the number of cells"
