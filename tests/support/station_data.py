"""A table of measurements at stations."""

import numpy as np
import pandas as pd


def station_table():
    """A long table: six stations, of which one starts late, with rows that repeat and rows without a value."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2021-01-01", periods=30)
    rows = []
    for k in range(6):
        where = {"station": f"S{k}", "lat": 50 + 0.3 * k, "lon": 359.5 + 0.2 * k, "elevation": 10.0 * k}
        for i, day in enumerate(days):
            if (k == 3 and i < 12) or rng.random() < 0.15:
                continue
            value = 5 + np.sin(i / 4) + 0.1 * k + 0.05 * rng.standard_normal()
            rows.append({"date": day.strftime("%Y-%m-%d"), **where, "temp": value, "remark": "ok"})
    rows[7]["temp"] = np.nan
    rows += [{**rows[4], "temp": rows[4]["temp"] + 0.02}, {**rows[20], "temp": rows[20]["temp"] - 0.02}]
    return pd.DataFrame(rows)
