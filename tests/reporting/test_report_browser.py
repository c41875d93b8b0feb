"""Reports in a real browser: they draw, the legend works, and nothing leaves the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from freshband._sealed import save_sealed
from freshband.reporting.report import write_report
from tests.reporting.browser import Page, browsing, find_browser
from tests.reporting.results import NASTY, fill, make_comparison

BROWSER = find_browser()
if BROWSER is None:
    pytest.skip(
        "no Chromium, Chrome or Edge on this machine (BROWSER_PATH may name one): reports are not "
        "looked at in a browser",
        allow_module_level=True,
    )
ALL_DRAWN = "[...document.querySelectorAll('figure.chart')].every((one) => one.dataset.drawn)"
FIRST_DRAWN = "document.querySelector('figure.chart').dataset.drawn === 'yes'"
CURVES = "document.querySelectorAll('#r1-regret .scatterlayer .trace').length"  # with their bands
OUTSIDE = ("http:", "https:", "ws:", "wss:", "ftp:")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with one result of each kind: r0 a simulation, r1 a comparison, r2 a training."""
    return write_report(fill(tmp_path_factory.mktemp("results"))).path


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    assert BROWSER is not None
    with browsing(BROWSER) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """A page on which, whatever a test did, nothing may have gone wrong or out."""
    yield browser
    browser.read("0")
    assert browser.complaints == []
    assert [url for url in browser.requests if url.startswith(OUTSIDE)] == []
    assert browser.requests[0].startswith("file:")
    assert all(url.startswith(("data:", "blob:")) for url in browser.requests[1:])


def draw_all(page: Page) -> None:
    page.read("dispatchEvent(new Event('beforeprint'))")
    page.until(ALL_DRAWN)


def bring(page: Page, figure: str) -> None:
    page.read(f"document.getElementById('{figure}').scrollIntoView()")
    page.until(f"document.getElementById('{figure}').dataset.drawn === 'yes'")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [(390, 844), (1600, 1000)])
def test_everything_is_drawn_and_fits(
    page: Page, report: Path, size: tuple[int, int], dark: bool
) -> None:
    page.open(report, width=size[0], height=size[1], dark=dark)
    page.until(FIRST_DRAWN)
    draw_all(page)
    sizes = page.read(
        "[...document.querySelectorAll('figure.chart')].map((one) => {"
        " const drawn = one.querySelector('.main-svg').getBoundingClientRect();"
        " return [drawn.width, drawn.height, one.clientWidth]; })"
    )
    assert all(250 < width <= room and height >= 250 for width, height, room in sizes)
    assert page.read("document.documentElement.scrollWidth") == size[0]
    paper = page.read("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(18, 23, 28)" if dark else "rgb(255, 255, 255)")


TABLES = """[...document.querySelectorAll('.scroll')].map((one) => {
  const words = document.createRange();
  words.selectNodeContents(one.querySelector('caption'));
  const inside = one.getBoundingClientRect();
  const said = getComputedStyle(one.querySelector('caption > *') ?? one, '::after').content;
  return {
    cut: one.scrollWidth > one.clientWidth + 1,
    told: said.includes('Scroll sideways'),
    caption: words.getBoundingClientRect().right <= inside.right + 1,
    row: one.querySelector('tbody th').getBoundingClientRect().left >= inside.left - 1,
  };
})"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1600])
def test_tables_that_are_cut_off_say_so(page: Page, report: Path, width: int, dark: bool) -> None:
    page.open(report, width=width, height=740, dark=dark)
    page.read("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.until(f"{TABLES}.every((one) => one.cut === one.told)")
    tables = page.read(TABLES)
    cut = [one["cut"] for one in tables]
    assert sum(cut) > 10 if width == 360 else sum(cut) < 3
    assert all(one["caption"] for one in tables)
    page.read("document.querySelectorAll('.scroll').forEach((one) => { one.scrollLeft = 9999; })")
    assert all(one["row"] for one in page.read(TABLES))  # whose numbers they are stays in view
    assert page.read("document.documentElement.scrollWidth") == width


def test_charts_far_down_wait(page: Page, report: Path) -> None:
    page.open(report)
    page.until(FIRST_DRAWN)
    assert not page.read(ALL_DRAWN)


def test_legend_toggles_by_mouse_and_by_keyboard(page: Page, report: Path) -> None:
    page.open(report)
    bring(page, "r1-regret")
    assert page.read(CURVES) == 6
    first = "document.querySelector('#r1-regret button[data-group]')"
    page.read(f"{first}.click()")
    page.until(f"{CURVES} === 4")
    assert page.read(f"{first}.getAttribute('aria-pressed')") == "false"
    page.read(f"{first}.focus()")
    page.press(" ", " ")
    page.until(f"{CURVES} === 6")
    page.press("Tab")
    assert page.read("document.activeElement.textContent") == "cucb"
    page.press("Enter", "\r")
    page.until(f"{CURVES} === 4")


def test_the_first_key_leads_to_the_results(page: Page, report: Path) -> None:
    page.open(report)
    page.press("Tab")
    assert page.read("document.activeElement.className") == "skip"
    page.press("Enter", "\r")
    page.until("location.hash === '#results'")
    assert page.read("document.activeElement.id") == "results"


def test_menu_shows_the_choices_of_another_policy(page: Page, report: Path) -> None:
    page.open(report)
    bring(page, "r1-channels")
    shown = (
        "document.querySelector('#r1-channels .plot').data"
        ".filter((one) => one.visible && one.meta.view).map((one) => one.meta.view)"
    )
    assert set(page.read(shown)) == {"0"}
    page.read(
        "{ const menu = document.querySelector('#r1-channels select');"
        " menu.value = '2'; menu.dispatchEvent(new Event('change')); }"
    )
    page.until(f"{shown}.every((one) => one === '2')")


def test_logarithmic_axis(page: Page, report: Path) -> None:
    page.open(report)
    bring(page, "r1-regret")
    page.read("document.querySelector('#r1-regret [data-log]').click()")
    page.until("document.querySelector('#r1-regret .plot')._fullLayout.yaxis.type === 'log'")


def test_zoom_stays_when_a_curve_is_hidden(page: Page, report: Path) -> None:
    page.open(report)
    bring(page, "r1-regret")
    plot = "document.querySelector('#r1-regret .plot')"
    page.read(f"Plotly.relayout({plot}, {{'xaxis.range': [1, 2]}}).then(() => 0)")
    page.read("document.querySelector('#r1-regret button[data-group]').click()")
    page.until(f"{CURVES} === 4")
    assert page.read(f"{plot}._fullLayout.xaxis.range") == [1, 2]


def test_charts_follow_the_reader_from_light_to_dark(page: Page, report: Path) -> None:
    page.open(report)
    page.until(FIRST_DRAWN)
    colour = "document.querySelector('figure.chart .plot').layout.font.color"
    light = page.read(colour)
    page.prefer("dark")
    page.until(f"{colour} !== '{light}'")
    page.read("document.getElementById('theme').click()")
    page.until(f"{colour} === '{light}'")
    assert page.read("document.getElementById('theme').textContent") == "Dark colours"


def test_charts_have_no_button_that_sends_them_away(page: Page, report: Path) -> None:
    page.open(report)
    page.until(FIRST_DRAWN)
    buttons = page.read(
        "[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)"
    )
    assert len(buttons) > 3
    assert not [name for name in buttons if "loud" in str(name) or "hare" in str(name)]


def test_names_cannot_run(page: Page, tmp_path: Path) -> None:
    save_sealed(make_comparison(NASTY), tmp_path / "nasty.nc")
    page.open(write_report(tmp_path).path)
    draw_all(page)
    assert page.read("document.querySelectorAll('img').length") == 0
    labels = page.read(
        "[...document.querySelectorAll('#r0-regret [data-group]')].map((one) => one.textContent)"
    )
    assert labels == NASTY
