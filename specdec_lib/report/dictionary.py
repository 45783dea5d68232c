"""The data dictionary as one table per schema."""

from __future__ import annotations

import pandas as pd

from specdec_lib.records import data_dictionary, schema
from specdec_lib.report import style, text


def show() -> None:
    """Every column of every table, from the schemas."""
    for name, part in data_dictionary().groupby("table", sort=False):
        text.say(f"**{name}.** {schema(str(name)).description}")
        empty = ["yes" if null else "" for null in part["may be empty"]]
        frame = part[["column", "meaning", "type", "unit", "allowed"]].assign(**{"may be empty": empty})
        style.table(pd.DataFrame(frame))
