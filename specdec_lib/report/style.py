"""One look for every figure, table and number of the report.

Figures are SVG, drawn for a white card; the book's style sheet turns light and dark over in the dark theme. Series
differ in colour, lightness, marker and line, so that they stay apart in grey and for colour-blind readers.
"""

from __future__ import annotations

import base64
import html
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_lib.errors import InvalidSetting

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

INK = "#1a1a1a"  # 17:1 on white
MUTED = "#595959"  # 7:1 on white, the faintest colour text may have
GRID = "#d9d9d9"
NOT_MEASURED = "not measured"
Files = str | Iterable[str] | None  # behind a figure or a table: one, one per folder shown, or none
# A stored verdict as a table or a sentence says it, where its own word needs one more beside it.
_SAID = {"does not": "does not pay", "no interval": "no verdict"}
# Characters up to which a cell stays on one line, and from which it needs more width than a column of words.
_LINE, _TEXT = 32, 120


@dataclass(frozen=True)
class Series:
    """How one series is drawn. Lightness rises from the first to the last."""

    colour: str
    marker: str
    line: str
    hatch: str


# Okabe-Ito hues, darkened where needed so that each has 3:1 on white and its own place on the grey scale.
SERIES: tuple[Series, ...] = (
    Series("#123a5e", "o", "-", ""),
    Series("#b34700", "s", "--", "//"),
    Series("#00805e", "^", "-.", ".."),
    Series("#8a5fa8", "D", ":", "xx"),
    Series("#4a90c4", "v", "-", "\\\\"),
    Series("#8c8300", "P", "--", "++"),
    Series("#d66aa0", "X", "-.", "oo"),
)
AR, SPEC = SERIES[0], SERIES[1]  # the two arms look the same in every figure


def use_style() -> None:
    """Set matplotlib's defaults for the study; call once per page, before the first figure."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(
        {
            "figure.figsize": (7.2, 4.0),
            "figure.dpi": 100,
            "figure.facecolor": "white",
            "axes.facecolor": "white",
            "savefig.facecolor": "white",
            "savefig.bbox": "tight",
            "svg.fonttype": "path",  # the same letters on every machine
            "svg.hashsalt": "specdec-study",  # the same ids in every build
            "font.size": 11,
            "axes.titlesize": 12,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": MUTED,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.8,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "lines.markersize": 6,
            "axes.prop_cycle": cycler(
                color=[s.colour for s in SERIES],
                marker=[s.marker for s in SERIES],
                linestyle=[s.line for s in SERIES],
            ),
        }
    )


def figure(fig: Figure, *, alt: str, caption: str = "", csv: Files = None) -> None:
    """Show ``fig`` with its alternative text, a caption and a link to its numbers, then close it.

    Args:
        alt: what the figure shows, for a reader who cannot see it: a sentence or more, with the main numbers.
        csv: the table behind it, relative to ``data/`` (``"cpu-full/confirmatory-2048.csv"``); of several folders, one
            of each.

    Raises:
        InvalidSetting: ``alt`` says nothing.
    """
    import matplotlib.pyplot as plt
    from IPython.display import display

    if len(alt.split()) < 4:
        raise InvalidSetting(
            f"Alternative text {alt!r} tells a reader who cannot see the figure nothing.",
            expected="a sentence that says what it shows",
            remedy="give style.figure an `alt` with the main numbers in it",
        )
    alt = _unmarked(alt)
    display(_Html(_figure_html(fig, alt, caption, csv), alt))
    plt.close(fig)


def table(frame: pd.DataFrame, *, caption: str = "", csv: Files = None, digits: int = 3) -> None:
    """Show ``frame`` with its caption and CSV link; a wide one scrolls inside its own box. The index is not
    shown.

    Floats get ``digits`` significant digits; missing values read "not measured"; verdicts as :func:`verdict` says them.
    """
    from IPython.display import display

    if "verdict" in frame:
        frame = frame.assign(verdict=[verdict(value) for value in frame["verdict"]])
    head = "".join(
        f'<th scope="col"{_align(frame.iloc[:, place])}>{html.escape(str(name))}</th>'
        for place, name in enumerate(frame.columns)
    )
    rows = []
    for values in frame.itertuples(index=False, name=None):
        cells = zip(frame.columns, values, strict=True)
        rows.append("<tr>" + "".join(_cell(value, digits, str(name)) for name, value in cells) + "</tr>")
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    display(_Html(_card("study-table", body, caption, csv), frame.to_string(index=False)))


def verdict(stored: str) -> str:
    """A verdict as a reader meets it; the data keep the short word.

    >>> verdict("does not"), verdict("no interval"), verdict("undecided")
    ('does not pay', 'no verdict', 'undecided')
    """
    return _SAID.get(stored, stored)


def number(value: Any, unit: str = "", digits: int = 3) -> str:
    """``value`` for prose: ``digits`` significant digits, thousands apart, its unit after a no-break space.

    >>> number(0.53149), number(12345.6, "ms"), number(None), number(40, "tokens/s")
    ('0.531', '12,346\\xa0ms', 'not measured', '40\\xa0tokens/s')
    """
    if _missing(value):
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
        return str(value)
    real = float(value)
    if real.is_integer() and (
        isinstance(value, int) or not hasattr(value, "is_integer") or abs(real) >= 10**digits
    ):
        text = f"{int(real):,}"
    elif real == 0:
        text = "0"
    elif abs(real) < 1e-4 or not math.isfinite(real):
        text = f"{real:.{digits - 1}e}"
    else:
        text = f"{real:,.{max(0, digits - 1 - math.floor(math.log10(abs(real))))}f}"
    return f"{text}\u00a0{unit}" if unit else text


def csv_link(csv: str) -> str:
    """The address of ``data/<csv>`` in the site, relative to the page that is being built; "" outside the
    book."""
    here = Path.cwd()
    for depth, folder in enumerate([here, *here.parents]):
        if (folder / "_toc.yml").is_file():
            return "../" * depth + f"data/{csv}"
    return ""


class _Html:
    """HTML for a page, plain text for everything else."""

    def __init__(self, markup: str, text: str) -> None:
        self._markup, self._text = markup, text

    def _repr_html_(self) -> str:
        return self._markup

    def __repr__(self) -> str:
        return self._text


def _figure_html(fig: Figure, alt: str, caption: str, csv: Files) -> str:
    buffer = io.BytesIO()
    fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    # CSS pixels at its own size, which long labels make larger than the figure's
    drawn = re.search(rb'<svg[^>]* width="([\d.]+)pt"', buffer.getvalue())
    assert drawn
    width = float(drawn.group(1)) * 96 / 72
    # outside these widths letters get lost (9 points below 10 pixels) or loud
    size = f"min-width: {0.85 * width:.0f}px; max-width: {1.3 * width:.0f}px"
    tag = f'<img alt="{html.escape(alt)}" style="{size}" src="data:image/svg+xml;base64,{image}">'
    return _card("study-figure", tag, caption, csv)


def _card(kind: str, body: str, caption: str, csv: Files) -> str:
    parts = [html.escape(caption)] if caption else []
    files: dict[str, str] = {}
    for file in [csv] if isinstance(csv, str) else csv or ():
        files.setdefault(file.partition("/")[0], file)  # one link per folder
    links = {name: address for name, file in files.items() if (address := csv_link(file))}
    if links:
        ending = next(iter(files.values())).rpartition(".")[2].upper()
        several = len(links) > 1
        each = [
            f'<a href="{html.escape(address)}" download>{html.escape(name if several else ending)}</a>'
            for name, address in links.items()
        ]
        parts.append(f"{ending}: " * several + ", ".join(each))
    below = f"<figcaption>{' '.join(parts)}</figcaption>" if parts else ""
    # tabindex lets a reader scroll the box with the keyboard
    return f'<figure class="{kind}"><div class="study-scroll" tabindex="0">{body}</div>{below}</figure>'


def _unmarked(alt: str) -> str:
    """Alternative text without Markdown's marks: a screen reader would say them."""
    return re.sub(r"\*\*|`", "", alt)


def _numeric(value: Any) -> bool:
    return not isinstance(value, (str, bool)) and not _missing(value) and hasattr(value, "__float__")


def _align(column: Any) -> str:
    """A heading stands over its numbers."""
    return ' class="number"' if len(column) and _numeric(column.iloc[0]) else ""


def _cell(value: Any, digits: int, column: str = "") -> str:
    size = len(str(value))
    wide = ' class="text"' if size > _TEXT else ' class="long"' if size > _LINE else ""
    wide = wide or (' class="name"' if column == "source" else "")  # breaks on a phone
    kind = ' class="number"' if _numeric(value) else wide
    return f"<td{kind}>{html.escape(number(value, digits=digits))}</td>"


def _missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # NaN, NaT
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True
