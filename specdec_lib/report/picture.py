"""``python -m specdec_lib.report.picture``: draws the README's picture from committed data again."""

from __future__ import annotations

import io
from pathlib import Path

from specdec_lib.files import atomic_write
from specdec_lib.paths import project_root
from specdec_lib.report import compare, figures, style

PICTURE = "book/_static/headline.svg"


def draw(root: Path | None = None) -> bytes:
    """The headline figure of the article and the committed profiles, as SVG: same data, same bytes."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    style.use_style()
    fig = figures.headline(compare.sources(root, committed_only=True))
    buffer = io.BytesIO()
    fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(fig)
    return buffer.getvalue()


def main() -> None:
    """Write the picture."""
    root = project_root()
    atomic_write(root / PICTURE, draw(root))
    print(f"{PICTURE} written.")


if __name__ == "__main__":
    main()
