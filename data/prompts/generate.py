"""The generated texts, from fixed seeds: ``python generate.py`` writes the same bytes everywhere.

Names, firms, addresses and figures are invented. Standard library only; ``random.Random`` with an int seed and
the methods used here (random, choice, randrange, shuffle, sample) give the same sequence on every Python 3.9+.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent

MAKERS = (
    "Ines Halvorsen",
    "Tobias Wrenfield",
    "Okan Demirel",
    "Marguerite Pell",
    "Sipho Ndaba",
    "Lotte Brandsma",
    "Aurelio Conti",
    "Hanako Mori",
    "Bridget Oakes",
    "Pavel Rusnak",
    "Yara Haddad",
    "Edmund Tregear",
    "Kirsti Laine",
    "Joao Barreto",
    "Mina Abadi",
    "Cormac Devlin",
    "Anneke Vos",
    "Rashid Karimov",
    "Delphine Roche",
    "Walter Quill",
    "Noor Siddiqui",
    "Beatriz Lemos",
    "Stellan Frisk",
    "Agnes Thorne",
)
OBJECTS = (
    ("brass ship's sextant", "brass"),
    ("silk embroidered shawl", "silk"),
    ("walnut writing box", "walnut"),
    ("salt-glazed jug", "stoneware"),
    ("woodblock print of a harbour", "paper"),
    ("lead toy omnibus", "lead"),
    ("pewter communion flagon", "pewter"),
    ("hand-drawn parish map", "vellum"),
    ("ivory-handled magnifier", "glass"),
    ("carved oak misericord", "oak"),
    ("enamelled mourning ring", "gold"),
    ("linen sampler", "linen"),
    ("cast-iron kettle", "iron"),
    ("bound volume of tide tables", "paper"),
    ("cut-glass decanter", "glass"),
    ("straw marquetry tray", "straw"),
    ("wool coverlet", "wool"),
    ("tin lantern", "tin"),
    ("bone needle case", "bone"),
    ("painted shop sign", "pine"),
    ("marionette of a miller", "limewood"),
    ("copper weather vane", "copper"),
    ("album of pressed seaweeds", "paper"),
    ("delft tile panel", "earthenware"),
    ("horsehair sieve", "ash"),
    ("leather fire bucket", "leather"),
    ("silver snuff spoon", "silver"),
    ("plaster cast of a fossil", "plaster"),
    ("ebony flute", "ebony"),
    ("ferryman's bell", "bronze"),
    ("folding pocket sundial", "boxwood"),
    ("glove stretchers", "beech"),
    ("clockwork spit jack", "steel"),
    ("quilted petticoat", "cotton"),
)
GIVERS = (
    "bequest of the late {m}",
    "gift of the Harbour Trustees",
    "bought at a farm sale in {p}",
    "exchanged with the museum at {p}",
    "found during roof repairs at {p} and claimed by nobody",
    "transferred from the town archive",
    "given by the maker's granddaughter, who asked not to be named",
    "purchased with a grant of {v} crowns",
    "lent since the war and made over to us this spring",
    "left on the front steps in a tea chest with a note signed {m}",
)
PLACES = (
    "Castle Ash",
    "Norrhamn",
    "Velmont",
    "Pendry",
    "Osterwick",
    "Lune Bridge",
    "Saint Aldric",
    "Marrow Fen",
    "Tolbeck",
    "Carrick Mains",
    "Ebbing",
    "Quernmore",
    "Halgate",
    "Rosthwaite",
    "Dunmarra",
    "Vessby",
)
FLAWS = (
    "a hairline crack runs from the rim to the base",
    "one corner was gnawed by mice and has been lined",
    "the lid no longer closes",
    "there are traces of old red paint under the varnish",
    "the surface is bloomed and should not be wiped",
    "two screws are modern replacements",
    "it is complete except for the chain",
    "light has faded the left half",
    "the hinge was soldered badly",
    "an ink stain covers the signature",
    "it smells strongly of camphor",
    "the backing board is acidic",
    "no damage was seen",
    "the glass is original and has three bubbles",
    "worm holes, inactive, on the underside",
    "the handle was mended with wire, probably by its owner",
)
NOTES = (
    "The donor remembers it standing on a kitchen dresser.",
    "Compare the smaller one in the east case.",
    "A label in pencil reads 'not for the children'.",
    "It may be the piece described in the 1911 inventory.",
    "The maker's mark is partly rubbed away.",
    "Shown once, in the winter exhibition on fishing.",
    "A photograph of its first owner is kept with it.",
    "The scale was checked against a modern one and is true.",
    "Experts disagree about the date.",
    "It was thought lost until the cellar was cleared.",
    "Children's height marks are scratched on the reverse.",
    "The pattern is known from only one other example.",
    "Its case was made later, in another workshop.",
    "The bill of sale survives and is filed under letters.",
    "Insects are no longer a danger after freezing.",
    "Handle with cotton gloves; the gilding comes off.",
)
OPENINGS = (
    "{Obj} by {m}, {y}",
    "Accepted on {d}: {aobj}, made about {y} by {m}",
    "{m} of {p} made this {obj} in {y}",
    "Entry for {aobj}. Maker {m}; date {y}",
    "On {d} the committee took in {aobj} ({m}, {y})",
    "{Obj}, {y}. The workshop was that of {m} in {p}",
)


def article(noun: str) -> str:
    """The noun with a or an; plural nouns as they are."""
    return noun if noun.endswith("stretchers") else f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def museum(random: Random, size: int) -> str:
    """Entries of a small museum's day book: free text that holds a record each."""
    entries: list[str] = []
    number, day = 4107, datetime(2019, 1, 14)
    last_note = ""
    while sum(map(len, entries)) < size:
        number += random.randrange(1, 9)
        day += timedelta(days=random.randrange(1, 6))
        noun, material = random.choice(OBJECTS)
        maker, place, year = random.choice(MAKERS), random.choice(PLACES), random.randrange(1698, 1934)
        shape = random.choice(
            [
                f"{random.randrange(4, 90)} by {random.randrange(4, 70)} cm",
                f"height {random.randrange(5, 120)} cm",
                f"{random.randrange(30, 4200)} g",
            ]
        )
        giver = random.choice(GIVERS).format(
            m=random.choice(MAKERS), p=random.choice(PLACES), v=random.randrange(12, 950)
        )
        opening = random.choice(OPENINGS).format(
            obj=noun,
            Obj=noun[0].upper() + noun[1:],
            aobj=article(noun),
            m=maker,
            p=place,
            y=year,
            d=f"{day.day} {day:%B %Y}",
        )
        flaw = random.choice(FLAWS)
        parts = [
            f"{opening}.",
            f"{material.capitalize()}, {shape}; {giver}.",
            flaw[0].upper() + flaw[1:] + ".",
        ]
        if random.random() < 0.6:
            last_note = random.choice([note for note in NOTES if note != last_note])
            parts.append(last_note)
        if random.random() < 0.45:
            parts.append(f"Insured for {random.randrange(2, 180) * 25} crowns.")
        if random.random() < 0.35:
            parts.append(
                f"Now in {random.choice(['store', 'case', 'drawer', 'gallery'])} {random.randrange(1, 28)}."
            )
        if random.random() < 0.5:
            parts[1:] = random.sample(parts[1:], len(parts) - 1)
        entries.append(f"[{number}] " + " ".join(parts))
    return "\n\n".join(entries)


ZONES = ("kiln-2", "press-hall", "boiler", "dock-4", "cold-store", "paint-line", "tank-farm", "weigh-bridge")


def plant(random: Random, size: int) -> str:
    """A factory's controllers: comma-separated event records (development)."""
    kinds: tuple[Callable[[], str], ...] = (
        lambda: (
            f"temperature {random.randrange(180, 9400) / 10:.1f} C, set point {random.randrange(20, 940)} C"
        ),
        lambda: (
            f"valve V{random.randrange(1, 90)} moved to {random.randrange(0, 101)} percent in {random.randrange(1, 40)} s"
        ),
        lambda: (
            f"operator {random.choice(MAKERS).split()[1]} acknowledged alarm {random.randrange(200, 990)}"
        ),
        lambda: f"vibration on bearing {random.randrange(1, 12)}: {random.randrange(5, 90) / 10} mm/s",
        lambda: (
            f"batch {random.randrange(7000, 9999)} started, recipe {random.choice('ABCDEFGH')}{random.randrange(1, 30)}"
        ),
        lambda: f"pressure dropped by {random.randrange(2, 60)} kPa, reason unknown",
        lambda: f"door interlock open for {random.randrange(3, 200)} s; drive held",
        lambda: f"pallet {random.randrange(10**6, 10**7)} left for bay {random.randrange(1, 17)}",
        lambda: f"power factor {random.randrange(71, 99) / 100}, demand {random.randrange(40, 800)} kW",
        lambda: (
            f"sensor {random.choice('TPFL')}{random.randrange(100, 400)} silent since {random.randrange(2, 55)} min"
        ),
        lambda: f"shift note: {random.choice(NOTES_SHIFT)}",
        lambda: (
            f"firmware {random.randrange(1, 5)}.{random.randrange(0, 20)} loaded on drive {random.randrange(1, 60)}"
        ),
    )
    lines, now, last = [], datetime(2022, 3, 7, 5, 58), ""
    while sum(map(len, lines)) < size:
        now += timedelta(seconds=random.randrange(2, 420))
        kind = random.choice(("INFO", "INFO", "INFO", "NOTE", "WARN", "ALARM"))
        text = random.choice(kinds)()
        if text == last:
            continue
        lines.append(f"{now:%d/%m %H:%M:%S},{kind},{random.choice(ZONES)},{text}")
        last = text
    return "\n".join(lines)


NOTES_SHIFT = (
    "belt squeals when cold",
    "replaced the guard on the north side",
    "waiting for the forklift again",
    "label printer out of ribbon",
    "visitors at eleven, keep the aisle clear",
    "grease gun is missing",
    "filter looked clean, left it in",
    "roof leaks above the second conveyor",
    "scale drifts after lunch",
    "night crew reports a smell of hot rubber",
    "spare pump is on a lorry somewhere near Tolbeck",
    "do not use hoist 3 until Friday",
    "the new pallets are four centimetres too wide",
)

TEXTS: dict[str, tuple[Callable[[Random, int], str], int, int]] = {
    "extract-json": (museum, 20260101, 40_000),
    "dev-log": (plant, 20260102, 30_000),
}


def generate(family: str) -> str:
    """The text of one generated family, ending with a newline."""
    maker, seed, size = TEXTS[family]
    return maker(Random(seed), size).strip() + "\n"


if __name__ == "__main__":
    for name in TEXTS:
        path = HERE / name / "text.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(generate(name), encoding="utf-8")
        print(f"{name:28} {path.stat().st_size:7}")
