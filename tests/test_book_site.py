"""The real book, as a reader gets it: from ``file://``, in Chromium, with no network."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specdec_lib.pipeline import html
from specdec_lib.report import style
from tests.pipeline_project import REPOSITORY

SITE = REPOSITORY / "book" / "_build" / "html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
browser_needed = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver on this machine"
)
SEARCHED = "speculative"  # a word of the landing page


def source_pages() -> list[str]:
    return list(html._toc_pages(yaml.safe_load((REPOSITORY / "book" / "_toc.yml").read_text())))


@pytest.fixture(scope="module")
def site() -> Path:
    """The rendered book; made here unless it is up to date."""
    html.build(REPOSITORY)
    return SITE


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--allow-file-access-from-files", "--proxy-server=127.0.0.1:9",  # whatever leaves this machine fails
    ):  # fmt: skip
        options.add_argument(argument)
    assert CHROMIUM and DRIVER
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def resize(browser: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def show(browser: Any, path: Path, query: str = "") -> None:
    """Open a page and wait until scripts, fonts and formulas are done."""
    browser.get(path.as_uri() + query)
    browser.execute_async_script(
        "const done = arguments[0];"
        "const maths = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();"
        "Promise.all([maths, document.fonts.ready]).then(() => setTimeout(done, 50));"
    )


def test_every_page_of_the_contents_is_there(site: Path) -> None:
    for page in source_pages():
        assert (site / f"{page}.html").is_file(), page


def test_pages_have_titles_language_and_alternative_texts(site: Path) -> None:
    for page in source_pages():
        text = (site / f"{page}.html").read_text()
        assert '<html lang="en"' in text
        article = text[text.index("<article") : text.index("</article>")]
        assert article.count("<h1>") == 1, page
        for picture in re.findall(r"<img\b[^>]*>", text):
            found = re.search(r'alt="([^"]{15,})"', picture)
            assert found, f"{page}: {picture[:120]}"
            assert "**" not in found.group(1) and "`" not in found.group(1), (
                f"{page}: Markdown in {found.group(1)[:120]}"
            )


def test_no_remnant_of_a_notebook_run(site: Path) -> None:
    for page in source_pages():
        text = (site / f"{page}.html").read_text()
        for trace in (
            "Traceback (most recent call last)",
            "&lt;Figure size",
            "ipywidgets",
            "/site-packages/",
        ):
            assert trace not in text, f"{page}: {trace}"


@pytest.mark.browser
@browser_needed
def test_pages_work_without_a_network(site: Path, browser: Any) -> None:
    """No console error, no request that leaves the site, maths typeset, nothing wider than a phone."""
    import json

    for page in source_pages():
        path = site / f"{page}.html"
        browser.get_log("browser")
        browser.get_log("performance")
        resize(browser, 390)
        show(browser, path)
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not errors, f"{page}: {errors[:2]}"
        for entry in browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                address = message["params"]["request"]["url"]
                assert address.startswith(("file:", "data:", "blob:")), f"{page} asks for {address}"
        formulas = len(re.findall(r'class="math notranslate', path.read_text()))
        typeset = browser.execute_script("return document.querySelectorAll('mjx-container').length")
        assert typeset >= formulas, f"{page}: {typeset} of {formulas} formulas typeset"
        assert not browser.execute_script("return document.querySelectorAll('mjx-merror').length"), page
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= 390, f"{page} is {wide} px wide on a phone of 390"


@pytest.mark.browser
@browser_needed
@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_hidden_without_a_word(site: Path, browser: Any, width: int) -> None:
    """What is wider than its box says so; formulas fit; a small figure can be enlarged; rows are low."""
    resize(browser, width)
    for page in source_pages():
        show(browser, site / f"{page}.html")
        seen = browser.execute_script(_LAYOUT)
        assert not seen["silent"], (
            f"{page} at {width} px hides columns without saying so: {seen['silent'][:3]}"
        )
        assert not seen["formulas"], f"{page} at {width} px cuts formulas: {seen['formulas'][:2]}"
        for scale, whole, button in seen["figures"]:
            assert scale >= (0.8 if width > 600 else 0.55), (
                f"{page} at {width} px draws a figure at {scale:.2f}"
            )
            assert whole, f"{page} at {width} px hides a part of a figure"
            assert button == (scale < 0.8), (
                f"{page} at {width} px: a figure at {scale:.2f}, a button: {button}"
            )
        assert seen["tallest"] <= 200, f"{page} at {width} px has a table row of {seen['tallest']} px"


# The scale of a picture is its width on the page over its own.
_LAYOUT = """
const wider = e => e.scrollWidth > e.clientWidth + 1;
const boxes = [...document.querySelectorAll('article .study-scroll, article .pst-scrollable-table-container')];
const figures = [...document.querySelectorAll('figure.study-figure')].map(f => {
  const image = f.querySelector('img');
  return [image.clientWidth / image.naturalWidth, !wider(f.querySelector('.study-scroll')),
    f.querySelector('button').checkVisibility()];
});
return {
  silent: boxes.filter(b => wider(b) && !b.closest('.scrolls')).map(b => b.textContent.trim().slice(0, 60)),
  formulas: [...document.querySelectorAll('mjx-container[display]')].filter(wider).map(e => e.textContent.slice(0, 60)),
  figures: figures,
  tallest: Math.max(0, ...[...document.querySelectorAll('figure.study-table tr')].map(r => r.offsetHeight)),
};
"""


@pytest.mark.browser
@browser_needed
def test_a_figure_of_a_phone_is_enlarged_and_fits_again(site: Path, browser: Any) -> None:
    resize(browser, 390)
    show(browser, site / "synthesis.html")
    seen = [browser.execute_script(_PRESSED) for _ in range(2)]
    assert seen == [[1, True, True], [pytest.approx(0.69, abs=0.04), False, True]]


# The scale of the first figure, whether its box says that it scrolls, and whether the button stays, after a press.
_PRESSED = """
const figure = document.querySelector('figure.study-figure'), image = figure.querySelector('img');
figure.querySelector('button').click();
return [image.clientWidth / image.naturalWidth, figure.classList.contains('scrolls'),
  figure.querySelector('button').checkVisibility()];
"""


@pytest.mark.browser
@browser_needed
def test_both_themes_have_one_layout(site: Path, browser: Any) -> None:
    """What fits a phone in the light fits it in the dark: the theme's own rims must not decide about the hint."""
    resize(browser, 390)
    boxes = 0
    for page in source_pages():
        show(browser, site / f"{page}.html")
        light, dark = (browser.execute_script(_WIDTHS, theme) for theme in ("light", "dark"))
        differ = [pair for pair in zip(light, dark, strict=True) if pair[0] != pair[1]]
        assert not differ, f"{page}: content, box, hint in the light and in the dark: {differ[:3]}"
        boxes += len(light)
    assert boxes > 50


_WIDTHS = """
document.documentElement.dataset.theme = arguments[0];
window.dispatchEvent(new Event('resize'));
const boxes = [...document.querySelectorAll('article .study-scroll, article .pst-scrollable-table-container')];
return boxes.map(b => [b.scrollWidth, b.clientWidth, !!b.closest('.scrolls')]);
"""


@pytest.mark.browser
@browser_needed
def test_a_usual_table_shows_its_last_column_at_1400(site: Path, browser: Any) -> None:
    resize(browser, 1400)
    for page in (
        "results",
        "dial",
        "draft-free",
        "all-accept",
        "audit",
        "regimes",
        "synthesis",
        "relaxed",
        "method",
    ):
        show(browser, site / f"{page}.html")
        hidden = browser.execute_script(
            "return [...document.querySelectorAll('figure.study-table .study-scroll')]"
            ".filter(b => b.scrollWidth > b.clientWidth + 1).map(b => b.scrollWidth + ' of ' + b.clientWidth)"
        )
        assert not hidden, f"{page}: {hidden}"


@pytest.mark.browser
@browser_needed
@pytest.mark.parametrize("width", [390, 1000, 1200, 1400, 1900])
def test_the_text_stands_clear_of_the_line_beside_it(site: Path, browser: Any, width: int) -> None:
    """Of the sidebar's, or of the window's edge where the sidebar is folded away."""
    resize(browser, width)
    for page in ("index", "regimes"):
        show(browser, site / f"{page}.html")
        gap = browser.execute_script(
            "const side = document.querySelector('.bd-sidebar-primary').getBoundingClientRect();"
            "return document.querySelector('article h1').getBoundingClientRect().left - Math.max(0, side.right)"
        )
        assert 14 <= gap <= 40, f"{page} at {width} px: {gap} px"


@pytest.mark.browser
@browser_needed
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast_in_both_themes(site: Path, browser: Any, theme: str) -> None:
    """Every visible text of the article has 4.5:1 against the nearest opaque background."""
    resize(browser, 1200)
    for page in source_pages():
        show(browser, site / f"{page}.html")
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        poor = browser.execute_async_script(_CONTRAST)
        assert not poor, f"{page} ({theme}): {poor[:3]}"


_CONTRAST = """
const done = arguments[0];
const parse = c => (c.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92
  : Math.pow((v + 0.055) / 1.055, 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
  if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
setTimeout(() => {
  const poor = [];
  const walk = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest('script, style, .headerlink, .sr-only, mjx-assistive-mml')) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(ratio.toFixed(2) + ' ' + e.tagName + '.' + e.className + ': ' + walk.currentNode.data.trim().slice(0, 40));
  }
  done(poor);
}, 400);
"""  # noqa: E501


@pytest.mark.browser
@browser_needed
def test_figures_are_dark_in_the_dark_and_keep_their_colours(site: Path, browser: Any) -> None:
    """Every colour as the theme's filter shows it: 4.5:1 on the card for text, 3:1 for a series, and its hue."""
    import colorsys

    resize(browser, 1200)
    show(browser, site / "time.html")
    colours = ["#ffffff", style.INK, style.MUTED, *(series.colour for series in style.SERIES)]
    card, *drawn = browser.execute_script(_FILTERED, colours)
    assert _luminance(card) < 0.02, f"the card is {card}"
    for given, shown in zip(colours[1:], drawn, strict=True):
        contrast = (_luminance(shown) + 0.05) / (_luminance(card) + 0.05)
        assert contrast >= (4.5 if given in (style.INK, style.MUTED) else 3), f"{given}: {contrast:.1f}:1"
        before = [int(given[i : i + 2], 16) for i in (1, 3, 5)]
        if max(before) - min(before) > 10:  # grey has no hue
            turn = abs(colorsys.rgb_to_hsv(*before)[0] - colorsys.rgb_to_hsv(*shown)[0])
            assert min(turn, 1 - turn) <= 15 / 360, f"{given} becomes {shown}"


def _luminance(rgb: list[int]) -> float:
    linear = [v / 12.92 if (v := part / 255) <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


_FILTERED = """
document.documentElement.dataset.theme = 'dark';
const context = document.createElement('canvas').getContext('2d');
context.filter = getComputedStyle(document.querySelector('figure.study-figure img')).filter;
return arguments[0].map(colour => {
  context.fillStyle = colour;
  context.fillRect(0, 0, 9, 9);
  return [...context.getImageData(4, 4, 1, 1).data].slice(0, 3);
});
"""


@pytest.mark.browser
@browser_needed
def test_search_finds_a_word(site: Path, browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    resize(browser, 1200)
    show(browser, site / "search.html", f"?q={SEARCHED}")
    WebDriverWait(browser, 15).until(
        lambda b: b.execute_script("return document.querySelectorAll('#search-results li a').length") > 0
    )
    found = browser.execute_script("return document.querySelector('#search-results').textContent")
    assert "speculative decoding" in found.lower()
