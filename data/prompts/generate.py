# ruff: noqa: E501  (sentences of the texts are kept whole)
"""The generated texts, from fixed seeds: ``python generate.py`` writes the same bytes everywhere.

Names, firms, addresses and figures are invented. Standard library only; ``random.Random`` with an int seed and
the methods used here (random, choice, randrange, shuffle, sample) give the same sequence on every Python 3.9+.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.util import module_from_spec, spec_from_file_location
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

HOSTS = (
    "gate-01",
    "gate-02",
    "shop-11",
    "shop-12",
    "ledger-03",
    "queue-05",
    "search-07",
    "mail-02",
    "img-09",
    "db-primary",
)
LEVELS = ("INFO", "INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN", "INFO")
PAGES = (
    "/cart",
    "/search?q=teapot",
    "/account/orders",
    "/api/v2/stock",
    "/img/lamp-4410.webp",
    "/login",
    "/returns/new",
    "/api/v2/price?sku=KX-90",
    "/help/delivery",
    "/checkout/address",
    "/feeds/news.xml",
    "/wishlist/shared",
)
STORY = (
    (0.06, "db-primary WARN [replica] lag 4.2 s on standby-b, above the limit of 2 s"),
    (0.09, "ledger-03 INFO [deploy] release 2024.18.1 rolled out to 1 of 3 workers"),
    (0.13, "ledger-03 ERROR [migrate] column refund_reason is absent, migration 0187 was not applied"),
    (0.15, "queue-05 WARN [broker] refund.requested has 1,940 unread messages; no consumer is attached"),
    (
        0.19,
        "gate-02 ERROR [proxy] upstream ledger-03 answered 502 for the fifth time in a minute, circuit opened",
    ),
    (0.24, "shop-12 WARN [checkout] refunds are queued, not booked; showing the amber banner"),
    (0.31, "ledger-03 INFO [oncall] page acknowledged by a.laine, looks at migration 0187"),
    (0.37, "db-primary ERROR [lock] migration 0187 waits for a lock held by backup job 5521 since 02:10"),
    (0.44, "db-primary INFO [oncall] backup job 5521 cancelled by a.laine; lock released after 2,611 s"),
    (0.49, "ledger-03 INFO [migrate] 0187 applied in 48.3 s, schema is at revision 187"),
    (0.55, "gate-02 INFO [proxy] circuit for ledger-03 half open, 1 of 10 probes failed"),
    (0.62, "queue-05 INFO [broker] refund.requested drained: 2,305 messages in 12 min"),
    (0.70, "ledger-03 WARN [audit] 17 refunds were booked twice, ids written to duplicates.csv"),
    (0.83, "mail-02 INFO [campaign] apology to 17 customers queued, template 'double refund'"),
    (0.95, "db-primary WARN [backup] last complete backup is 31 h old"),
)


def cluster(random: Random, size: int) -> str:
    """A shop's servers over one night: an incident told by a few lines among the ordinary ones."""
    address = lambda: ".".join(str(random.randrange(1, 255)) for _ in range(4))  # noqa: E731
    ordinary: tuple[Callable[[], str], ...] = (
        lambda: (
            f"[http] {address()} GET {random.choice(PAGES)} 200 {random.randrange(300, 90000)} B {random.randrange(3, 900)} ms"
        ),
        lambda: (
            f"[http] {address()} POST {random.choice(PAGES)} {random.choice((201, 302, 400, 409, 422))} {random.randrange(9, 700)} ms"
        ),
        lambda: (
            f"[cache] evicted {random.randrange(10, 4000)} keys, hit ratio {random.randrange(610, 990) / 10} %"
        ),
        lambda: f"[gc] pause {random.randrange(2, 190)} ms, heap {random.randrange(300, 3900)} of 4096 MiB",
        lambda: (
            f"[auth] session {random.getrandbits(32):08x} opened for customer {random.randrange(10000, 99999)}"
        ),
        lambda: (
            f"[auth] wrong password for customer {random.randrange(10000, 99999)}, attempt {random.randrange(1, 5)}"
        ),
        lambda: (
            f"[sql] slow statement {random.getrandbits(24):06x}: {random.randrange(800, 9000)} ms, {random.randrange(1, 80000)} rows"
        ),
        lambda: (
            f"[index] merged {random.randrange(3, 40)} segments into {random.randrange(1, 4)}, {random.randrange(20, 900)} MiB"
        ),
        lambda: (
            f"[smtp] delivered to {random.choice(('mx1', 'mx2', 'relay'))}.{random.choice(PLACES).split()[0].lower()}.example in {random.randrange(1, 30)} s"
        ),
        lambda: f"[smtp] deferred: mailbox of customer {random.randrange(10000, 99999)} is full",
        lambda: (
            f"[resize] lamp-{random.randrange(1000, 9999)}.png to {random.choice((320, 640, 1280))} px in {random.randrange(12, 480)} ms"
        ),
        lambda: f"[disk] /var/{random.choice(('log', 'lib', 'spool'))} at {random.randrange(41, 93)} %",
        lambda: f"[ntp] offset {random.randrange(-900, 900) / 100} ms, stratum {random.randrange(2, 5)}",
        lambda: (
            f"[cron] {random.choice(('rotate-keys', 'prune-carts', 'send-digest', 'rebuild-sitemap', 'export-vat'))} took {random.randrange(1, 240)} s"
        ),
        lambda: (
            f"[stock] KX-{random.randrange(10, 99)} reserved {random.randrange(1, 9)}, {random.randrange(0, 300)} left in {random.choice(PLACES)}"
        ),
        lambda: f"[tls] certificate of {random.choice(HOSTS)} expires in {random.randrange(6, 88)} days",
        lambda: f"[rate] client {address()} limited to {random.randrange(1, 20)} requests a second",
        lambda: (
            f"[payment] authorised {random.randrange(4, 900)}.{random.randrange(10, 99)} for order {random.randrange(10**6, 10**7)}"
        ),
        lambda: (
            f"[payment] card declined, order {random.randrange(10**6, 10**7)}, reason {random.choice(('expired', 'limit', 'issuer away'))}"
        ),
        lambda: (
            f"[pool] {random.randrange(2, 64)} of 64 connections in use, {random.randrange(0, 12)} waiting"
        ),
        lambda: f"[kernel] eth0: link {random.choice(('up', 'down'))}, {random.choice((1, 10, 25))} Gbit/s",
        lambda: f"[health] probe {random.randrange(1000, 9999)} answered in {random.randrange(1, 60)} ms",
    )
    lines: list[str] = []
    story, written, now = list(STORY), 0, datetime(2024, 5, 2, 2, 3, 11)
    # The incident starts with the log and ends within its first quarter; what follows is an ordinary night.
    while written < size:
        now += timedelta(milliseconds=random.randrange(40, 16_000))
        if story and written >= story[0][0] * size * 0.22:
            text = story.pop(0)[1]
        else:
            text = f"{random.choice(HOSTS)} {random.choice(LEVELS)} {random.choice(ordinary)()}"
        lines.append(f"{now:%H:%M:%S}.{now.microsecond // 1000:03d} {text}")
        written += len(lines[-1]) + 1
    return "\n".join(lines)


def emails(random: Random, size: int) -> str:
    """The thread of emails.py with headers, oldest first, each answer quoting a line of the message before."""
    spec = spec_from_file_location("prompt_emails", HERE / "emails.py")
    if spec is None or spec.loader is None:
        raise SystemExit("emails.py is missing")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    now, parts, quoted = datetime(2024, 3, 4, 7, 12, 40), [], ""
    for number, (writer, hours, body) in enumerate(module.MESSAGES):
        now += timedelta(hours=hours, minutes=random.randrange(3, 56), seconds=random.randrange(60))
        name, address = module.PEOPLE[writer]
        others = ", ".join(
            module.PEOPLE[key][1] for key in random.sample(sorted(set(module.PEOPLE) - {writer}), 2)
        )
        head = [
            f"From: {name} <{address}>",
            f"Date: {now:%a}, {now.day} {now:%b %Y %H:%M:%S} +0000",
            f"To: {others}",
            f"Subject: {'Re: ' if number else ''}Water on the stage",
            f"Message-ID: <{random.getrandbits(40):010x}@{address.split('@')[1]}>",
        ]
        quote = f"> {quoted}\n\n" if quoted and random.random() < 0.6 else ""
        parts.append("\n".join(head) + f"\n\n{quote}{body}\n\n{name.split()[0]}")
        quoted = random.choice(
            [sentence for sentence in body.replace("\n", " ").split(". ") if len(sentence) < 130] or [""]
        )
    return "\n\n".join(parts)


FIRST = (
    "Amina",
    "Bjorn",
    "Clara",
    "Dmitri",
    "Elif",
    "Farah",
    "Goran",
    "Hilde",
    "Ivo",
    "Jasmin",
    "Kofi",
    "Leila",
)
GOODS = (
    "candles",
    "tiles",
    "notebooks",
    "seedlings",
    "bolts",
    "postcards",
    "jars of honey",
    "bricks",
    "tickets",
)


def train(r: Random) -> tuple[str, str]:
    a, b, t = r.randrange(40, 95), r.randrange(50, 130), r.randrange(2, 7)
    d = (a + b) * t
    x, y = r.sample(PLACES, 2)
    return (
        f"{x} and {y} are {d} km apart. A goods train leaves {x} at {a} km/h and an express leaves {y} at {b} km/h "
        "at the same moment. After how many hours do they meet, and how far from the first town?",
        f"Together they close {a} + {b} = {a + b} km each hour. {d} / {a + b} = {t}, so they meet after {t} hours. "
        f"The goods train has then gone {a} * {t} = {a * t} km.",
    )


def discount(r: Random) -> tuple[str, str]:
    p, first, second = r.randrange(8, 90) * 10, r.choice((10, 20, 30)), r.choice((5, 10, 50))
    q = p * (100 - first) / 100
    z = q * (100 - second) / 100
    return (
        f"A coat costs {p} crowns. It is reduced by {first} percent and, a week later, by another {second} percent. "
        "What does it cost now, and what single reduction would have the same effect?",
        f"After the first reduction: {p} * 0.{100 - first} = {q:g}. After the second: {q:g} * {(100 - second) / 100:g} "
        f"= {z:g} crowns. {z:g} / {p} = {z / p:g}, so one reduction of {100 - 100 * z / p:g} percent does the same.",
    )


def triangle(r: Random) -> tuple[str, str]:
    m, n, k = r.choice(((2, 1), (3, 2), (4, 1), (4, 3), (5, 2), (5, 4), (6, 1))) + (r.randrange(1, 6),)
    a, b, c = k * (m * m - n * n), k * 2 * m * n, k * (m * m + n * n)
    return (
        f"The legs of a right-angled triangle measure {a} cm and {b} cm. Find the hypotenuse, the area and the height "
        "above the hypotenuse.",
        f"{a}^2 + {b}^2 = {a * a} + {b * b} = {c * c}, and the root of {c * c} is {c}. The area is {a} * {b} / 2 = "
        f"{a * b / 2:g} square cm. The height is twice the area over the hypotenuse: {a * b} / {c} = {a * b / c:.2f} cm.",
    )


def mixture(r: Random) -> tuple[str, str]:
    lo, hi = r.choice((5, 10, 15)), r.choice((30, 35, 40))
    x, y = r.randrange(2, 30), r.randrange(2, 30)
    s = x * lo + y * hi
    return (
        f"{r.choice(FIRST)} pours {x} litres of {lo} percent vinegar and {y} litres of {hi} percent vinegar into one "
        "barrel. How strong is the mixture?",
        f"Pure acid: {x} * {lo / 100:g} = {x * lo / 100:g} litres and {y} * {hi / 100:g} = {y * hi / 100:g} litres, "
        f"{s / 100:g} together. The barrel holds {x + y} litres, so the strength is {s / 100:g} / {x + y} = "
        f"{s / (x + y):.1f} percent.",
    )


def linear(r: Random) -> tuple[str, str]:
    x, y, a, b = r.randrange(-9, 10), r.randrange(-9, 10), r.randrange(2, 8), r.randrange(2, 8)
    return (
        f"Solve the system {a}x + y = {a * x + y} and x - {b}y = {x - b * y}.",
        f"From the first equation y = {a * x + y} - {a}x. Put into the second: x - {b} * ({a * x + y} - {a}x) = "
        f"{x - b * y}, that is {1 + a * b}x = {x - b * y + b * (a * x + y)}. Hence x = {x}, and y = {a * x + y} - {a * x}"
        f" = {y}.",
    )


def quadratic(r: Random) -> tuple[str, str]:
    p, q = sorted(r.sample([n for n in range(-12, 13) if n], 2))
    s, t = p + q, p * q
    return (
        f"Find both roots of x^2 {-s:+d}x {t:+d} = 0 by factoring, and check them.",
        f"We look for two numbers with sum {s} and product {t}: {p} and {q}. So the left side is (x {-p:+d})(x {-q:+d}) "
        f"and the roots are {p} and {q}. Check: {p} * {p} = {p * p}, and {p * p} {-s * p:+d} {t:+d} = 0; likewise "
        f"{q * q} {-s * q:+d} {t:+d} = 0.",
    )


def work(r: Random) -> tuple[str, str]:
    a, b = r.choice(
        ((3, 6), (4, 12), (6, 12), (5, 20), (10, 15), (12, 24), (8, 24), (20, 30), (9, 18), (6, 30))
    )
    n, m = r.sample(FIRST, 2)
    return (
        f"{n} paints a fence in {a} hours, {m} needs {b} hours for the same fence. How long do they take together, and "
        f"what share has {n} done?",
        f"In one hour they paint 1/{a} + 1/{b} = {a + b}/{a * b} of it. So they need {a * b}/{a + b} = "
        f"{a * b / (a + b):g} hours. In that time {n} paints {a * b / (a + b):g}/{a} = {b / (a + b):.3f} of the fence.",
    )


def interest(r: Random) -> tuple[str, str]:
    c, p, y = r.randrange(4, 60) * 100, r.choice((2, 3, 4, 5, 6)), r.randrange(2, 5)
    steps, v = [], float(c)
    for i in range(y):
        v *= 1 + p / 100
        steps.append(f"after year {i + 1}: {v:.2f}")
    return (
        f"{c} crowns are put away at {p} percent, interest added once a year. What is there after {y} years, and how "
        "much of it is interest?",
        f"Each year multiplies the sum by {1 + p / 100:g}: {'; '.join(steps)}. The interest is {v:.2f} - {c} = "
        f"{v - c:.2f} crowns.",
    )


def dice(r: Random) -> tuple[str, str]:
    s = r.randrange(3, 12)
    pairs = [(a, s - a) for a in range(1, 7) if 1 <= s - a <= 6]
    return (
        f"Two dice are thrown. How likely is a sum of {s}? And how likely is it if one already knows that the first die "
        f"shows {pairs[0][0]}?",
        f"Of 36 equal outcomes these give {s}: {', '.join(f'({a},{b})' for a, b in pairs)}. That is {len(pairs)}/36 = "
        f"{len(pairs) / 36:.3f}. If the first is {pairs[0][0]}, the second must be {pairs[0][1]}: probability 1/6.",
    )


def balls(r: Random) -> tuple[str, str]:
    a, b = r.randrange(3, 11), r.randrange(3, 11)
    n = a + b
    same = a * (a - 1) + b * (b - 1)
    return (
        f"A bag holds {a} red and {b} green marbles. Two are drawn without looking and not put back. What is the chance "
        "that they have the same colour?",
        f"Both red: {a}/{n} * {a - 1}/{n - 1} = {a * (a - 1)}/{n * (n - 1)}. Both green: {b}/{n} * {b - 1}/{n - 1} = "
        f"{b * (b - 1)}/{n * (n - 1)}. Added: {same}/{n * (n - 1)} = {same / (n * (n - 1)):.3f}.",
    )


def divisor(r: Random) -> tuple[str, str]:
    a, b = r.randrange(120, 990), r.randrange(84, 700)
    x, y, lines = max(a, b), min(a, b), []
    while y:
        lines.append(f"{x} = {x // y} * {y} + {x % y}")
        x, y = y, x % y
    return (
        f"Find the greatest common divisor of {a} and {b} with Euclid's method, and from it their least common multiple.",
        f"{'; '.join(lines)}. The last remainder before 0 is {x}. The least common multiple is {a} * {b} / {x} = "
        f"{a * b // x}.",
    )


def sequence(r: Random) -> tuple[str, str]:
    a, d, n = r.randrange(-8, 20), r.randrange(2, 13), r.randrange(12, 60)
    last = a + (n - 1) * d
    return (
        f"A row of numbers begins {a}, {a + d}, {a + 2 * d}, {a + 3 * d}. What is number {n} of the row, and what do the "
        f"first {n} add up to?",
        f"The step is {d}. Number {n} is {a} + {n - 1} * {d} = {last}. First and last add to {a + last}, and there are {n} "
        f"terms, so the sum is {n} * {a + last} / 2 = {n * (a + last) // 2}.",
    )


def cylinder(r: Random) -> tuple[str, str]:
    d, h, flow = r.randrange(2, 19) * 10, r.randrange(5, 25) * 10, r.randrange(4, 30)
    v = 3.1416 * (d / 2) ** 2 * h / 1000
    return (
        f"A round tank is {d} cm wide and {h} cm deep. How many litres does it hold, and how long does a tap that gives "
        f"{flow} litres a minute take to fill it?",
        f"The radius is {d // 2} cm, the base 3.1416 * {d // 2}^2 = {3.1416 * (d / 2) ** 2:.0f} square cm. Times {h} cm "
        f"gives {v * 1000:.0f} cubic cm, or {v:.0f} litres. At {flow} litres a minute: {v / flow:.0f} minutes.",
    )


def average(r: Random) -> tuple[str, str]:
    v = [r.randrange(31, 99) for _ in range(6)]
    goal = sum(v) // 6 + r.randrange(1, 4)
    return (
        f"{r.choice(FIRST)} scored {', '.join(map(str, v))} in six tests. Find the mean and the median. What must the "
        f"seventh test bring for a mean of {goal}?",
        f"The sum is {sum(v)}, the mean {sum(v)} / 6 = {sum(v) / 6:.2f}. In order: {', '.join(map(str, sorted(v)))}; the "
        f"median is ({sorted(v)[2]} + {sorted(v)[3]}) / 2 = {(sorted(v)[2] + sorted(v)[3]) / 2:g}. Seven tests need "
        f"7 * {goal} = {7 * goal}, so the last must bring {7 * goal - sum(v)}.",
    )


def packing(r: Random) -> tuple[str, str]:
    n, box, crate, left = r.randrange(9, 40), r.randrange(6, 25), r.randrange(4, 13), r.randrange(1, 6)
    total = n * box + left
    g = r.choice(GOODS)
    return (
        f"{total} {g} are packed in boxes of {box}, and the boxes in crates of {crate}. How many full crates are there, "
        "and what is left over?",
        f"{total} = {n} * {box} + {left}, so {n} full boxes and {left} loose {g}. {n} = {n // crate} * {crate} + "
        f"{n % crate}. Full crates: {n // crate}; boxes over: {n % crate}; loose: {left}.",
    )


def bases(r: Random) -> tuple[str, str]:
    n, base = r.randrange(70, 2000), r.choice((2, 3, 5, 7, 8))
    x, lines, digits = n, [], ""
    while x:
        lines.append(f"{x} = {base} * {x // base} + {x % base}")
        digits = str(x % base) + digits
        x //= base
    return (
        f"Write {n} in base {base}.",
        f"Divide again and again by {base} and read the remainders upwards: "
        f"{'; '.join(lines)}. So {n} is {digits} in base {base}.",
    )


def slope(r: Random) -> tuple[str, str]:
    x, y, run, m = r.randrange(-7, 8), r.randrange(-9, 10), r.randrange(1, 7), r.choice((-4, -3, -2, 2, 3, 5))
    return (
        f"A straight line passes through ({x}, {y}) and ({x + run}, {y + m * run}). Give its equation and the points where "
        "it cuts the axes.",
        f"Slope: ({y + m * run} - ({y})) / ({x + run} - ({x})) = {m * run}/{run} = {m}. With y = {m}x + c at ({x}, {y}): "
        f"c = {y} - ({m * x}) = {y - m * x}. It cuts the y-axis at (0, {y - m * x}) and the x-axis at "
        f"({-(y - m * x) / m:.3g}, 0).",
    )


def modular(r: Random) -> tuple[str, str]:
    a, e, m = r.randrange(2, 10), r.choice((8, 16, 32)), r.randrange(11, 60)
    lines, v, k = [], a % m, 1
    while k < e:
        lines.append(f"{a}^{2 * k} is {v}^2 = {v * v}, which leaves {v * v % m}")
        v, k = v * v % m, 2 * k
    return (
        f"What remains when {a}^{e} is divided by {m}?",
        f"Square repeatedly, keeping remainders: {'; '.join(lines)}. The remainder is {v}.",
    )


def recipe(r: Random) -> tuple[str, str]:
    p, q = r.choice(((4, 6), (6, 15), (8, 12), (4, 14), (6, 10), (3, 8)))
    f, m, e = r.randrange(6, 20) * 25, r.randrange(4, 24) * 25, r.randrange(2, 7)
    return (
        f"A cake for {p} takes {f} g of flour, {m} ml of milk and {e} eggs. What does a cake for {q} take?",
        f"The factor is {q}/{p} = {q / p:.3g}. Flour: {f} * {q}/{p} = {f * q / p:.0f} g. Milk: {m} * {q}/{p} = "
        f"{m * q / p:.0f} ml. Eggs: {e} * {q}/{p} = {e * q / p:.2f}, in practice {-(-e * q // p)}.",
    )


def ages(r: Random) -> tuple[str, str]:
    y, k, t = r.randrange(4, 15), r.choice((3, 4, 5)), r.randrange(2, 9)
    n, m = r.sample(FIRST, 2)
    return (
        f"{n} is {k} times as old as {m}. In {t} years their ages will add up to {(k + 1) * y + 2 * t}. How old are they?",
        f"Let {m} be x years old; then {n} is {k}x. In {t} years: x + {t} + {k}x + {t} = {(k + 1) * y + 2 * t}, so "
        f"{k + 1}x = {(k + 1) * y} and x = {y}. {m} is {y} and {n} is {k * y}.",
    )


KINDS = (
    train,
    discount,
    triangle,
    mixture,
    linear,
    quadratic,
    work,
    interest,
    dice,
    balls,
    divisor,
    sequence,
    cylinder,
    average,
    packing,
    bases,
    slope,
    modular,
    recipe,
    ages,
)


def exercises(random: Random, size: int) -> str:
    """Numbered exercises with worked solutions: each kind once, in new order, before any comes again."""
    parts: list[str] = []
    seen: set[str] = set()
    deck: list[Callable[[Random], tuple[str, str]]] = []
    while sum(map(len, parts)) < size:
        if not deck:
            deck = list(KINDS)
            random.shuffle(deck)
        question, solution = deck.pop()(random)
        if question not in seen:
            seen.add(question)
            parts.append(f"Exercise {len(parts) + 1}. {question}\nSolution. {solution}")
    return "\n\n".join(parts)


TEXTS: dict[str, tuple[Callable[[Random, int], str], int, int]] = {
    "extract-json": (museum, 20260101, 40_000),
    "log-analysis": (cluster, 20260103, 32_000),
    "email-thread": (emails, 20260104, 0),
    "worked-maths": (exercises, 20260105, 40_000),
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
