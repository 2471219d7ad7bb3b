"""The table of errors by way of inference, as text and as a page."""

import numpy as np
from tests.torture.problems import WAYS
from tests.torture.tolerances import STATED_ERRORS, TOLERANCES

STATUSES = ("right", "warned", "said", "refused", "undecidable", "silent")
PAGE = """# Accuracy

How far the results of lkgp are from those of a dense computation in extended precision that shares no code with it, on
{count} random problems: every way of inference; every kernel, with sums and products; one to three factors; regular,
clustered and nearly equal coordinates (down to 1e-5 of their spread); gaps at random, in rows, in blocks, as
staircases, all cells but one; noise variances from 1e-8 to 1e2 of that of the signal, and known ones over six decades;
values from 1e-6 to 1e6 with offsets of up to 10,000 times that; float32 and float64. Most have up to 150 cells, some up
to 500, because the dense computation has to follow. This page is written by

```
python -m tests.torture --count {count} --page docs/accuracy.md
```

(part of `make torture`; about ten minutes on two cores). A problem is determined by its seed, and
`python -m tests.torture --seed 1234` runs one.

## How the problems ended

*Right*: everything is within the tolerances below. *Warned*: the same, but with a warning. *Said*: something was not,
but a warning or the report said that a solve did not converge. *Refused*: an error of the library. *Undecidable*: so
ill-conditioned that the dense computation is not accurate enough. *Silent*: wrong without a word; there must be none.

{endings}

## Errors

Of each problem that is right, with a warning or without, the worst error counts: over all cells on and off the grid,
all pairs of cells, or all hyperparameters. The tables show the median over the problems, the 99th percentile and the
worst. "-" means that no problem had this check.

{units}

{errors}
"""

REMARK = f"""The first tolerance holds where results are computed directly, the second where they rest on iterative
solves, and the third for computations in float32. An estimated likelihood is wrong if it is {STATED_ERRORS:g} stated
standard errors and the tolerance away from the truth; the table has what remains after the tolerance. For `iterative`
and `linear solvers`, the effect of the residual that the caller allows is added to all tolerances."""


def number(value):
    if value == 0:
        return "0"
    return f"{value:.1e}" if value < 1e-3 or value >= 1e3 else f"{value:.2g}"


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(entry) for entry in line) + " |" for line in lines)


def endings(outcomes):
    rows = []
    for way in [*WAYS, "all"]:
        ended = [o.status for o in outcomes if way in (o.way, "all")]
        rows.append([way, len(ended), *(ended.count(status) for status in STATUSES)])
    return markdown(["way of inference", "problems", *STATUSES], rows)


def errors(outcomes, statistic):
    """statistic: from an array of errors to a number."""
    rows = []
    for way in [*WAYS, "all"]:
        counted = [o.errors for o in outcomes if way in (o.way, "all") and o.status in ("right", "warned")]
        row = [way]
        for quantity in TOLERANCES:
            found = [e[quantity] for e in counted if quantity in e]
            row.append(number(statistic(found)) if found else "-")
        rows.append(row)
    return markdown(["way of inference", *TOLERANCES], rows)


def units():
    rows = [[name, t.unit, t.exact, t.solved, t.single] for name, t in TOLERANCES.items()]
    text = markdown(["quantity", "unit", "tolerance, exact", "tolerance, solved", "tolerance, float32"], rows)
    return f"{text}\n\n{REMARK}"


def sections(outcomes):
    statistics = {
        "Median": np.median,
        "99 % of problems are below": lambda found: np.percentile(found, 99),
        "Worst": max,
    }
    return "\n\n".join(f"### {name}\n\n{errors(outcomes, statistic)}" for name, statistic in statistics.items())


def page(outcomes):
    """The page about the accuracy, in Markdown."""
    return PAGE.format(count=len(outcomes), endings=endings(outcomes), units=units(), errors=sections(outcomes))
