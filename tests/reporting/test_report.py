"""Reports: what the page shows is what the files hold, and nothing in them turns into markup."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest
import xarray as xr

from freshband._sealed import save_sealed
from freshband.channels.base import build, open_air
from freshband.errors import FileError, FreshbandError, ParameterError
from freshband.reporting._air import COLUMNS, Air, cut_rounds, pool
from freshband.reporting._page.air import Play, channel_map
from freshband.reporting._page.charts import POINTS, Series, curves
from freshband.reporting._page.comparison import show_comparison
from freshband.reporting._page.parts import air_again
from freshband.reporting._page.training import show_training
from freshband.reporting.report import write_report
from tests.reporting.results import (
    NASTY,
    POLICIES,
    SETTINGS,
    fill,
    make_comparison,
    make_long_training,
    make_simulation,
    make_training,
)

VOID = {"meta", "link", "br", "img", "input"}


class Document(HTMLParser):
    """A page, parsed: every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open and self.open[-1] == "script" else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def figures(self) -> dict[str, Any]:
        """The charts' data, by the figure they belong to."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = attributes.items()
        return [own for name, own in self.elements if name == tag and wanted <= own.items()]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """The page of a folder with one result of each kind."""
    folder = fill(tmp_path_factory.mktemp("results"))
    return report(folder)


def report(source: Path) -> Document:
    return Document(write_report(source).path.read_text(encoding="utf-8"))


def report_of(result: xr.Dataset, folder: Path) -> Document:
    save_sealed(result, folder / "one.nc")
    return report(folder)


# ------------------------------------------------------------------------------------------ pages


def test_page_needs_no_other_file(document: Document) -> None:
    linked = [own[name] for _, own in document.elements for name in ("src", "href") if name in own]
    assert linked
    assert all(link is not None and link.startswith("#") for link in linked)
    policy = document.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"] or ""
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert len(re.findall(r"'sha256-[^']+'", policy)) == 2


def test_page_has_landmarks_and_headings_in_order(document: Document) -> None:
    assert document.all("html", lang="en")
    assert [len(document.all(name)) for name in ("main", "nav", "h1", "title")] == [1, 1, 1, 1]
    levels = [int(name[1]) for name, _ in document.elements if re.fullmatch("h[1-6]", name)]
    assert max(np.diff(levels)) <= 1
    names = [own["id"] for _, own in document.elements if "id" in own]
    assert len(names) == len(set(names))
    skip = document.all("a", **{"class": "skip"})[0]["href"] or ""
    assert skip.removeprefix("#") in names
    assert {(own["href"] or "")[1:] for own in document.all("a")} <= set(names)


def test_every_chart_is_explained_and_told_as_a_table(document: Document) -> None:
    figures = [own for name, own in document.elements if name == "figure"]
    assert {own["id"] for own in figures} == set(document.figures)
    plots = document.all("div", **{"class": "plot"})
    assert len(plots) == len(figures)
    assert all(len(own["aria-label"] or "") > 60 for own in plots)
    assert document.text.count("as a table") == len(figures)


def test_page_shows_what_was_asked_for(document: Document) -> None:
    shown = {name.split("-")[1] for name in document.figures}
    wanted = {"regret", "channels", "ages", "participation", "variance", "accuracy", "contribution"}
    assert wanted <= shown
    for words in (
        "A client's age of information is",
        "A policy's regret is",
        "Repeat it: freshband train --like",
        "numpy",
        "partition_options",
    ):
        assert words in document.text


def test_figures_are_what_plotly_understands(document: Document) -> None:
    for figure in document.figures.values():
        plotly.graph_objects.Figure(data=figure["traces"], layout=figure["layout"])
        assert "template" not in figure["layout"]  # the page has colours of its own


def test_colours_are_those_of_the_style_sheet(document: Document) -> None:
    style = "".join(document.words)
    named = set(re.findall(r"var\((--[a-z0-9-]+)", json.dumps(document.figures)))
    assert len(named) > 8
    for name in named:
        assert f"{name}:" in style


# ------------------------------------------------------------------------------------------ values


def test_curves_are_means_with_bands_of_one_standard_error() -> None:
    values = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 8.0]])
    chart = curves("k", "t", "s", {"mine": Series(np.array([1, 2, 3]), values)}, y_title="y")
    band, line = chart.to_json()["traces"]
    assert line["y"] == [2, 2, 6]
    assert band["y"] == [3, 2, 8, 4, 2, 1]  # there along the upper edge, back along the lower
    assert band["x"] == [1, 2, 3, 3, 2, 1]
    assert chart.table.rows == [["mine", "2.0 ± 1.0", "2", "6.0 ± 2.0"]]


def test_rounds_without_a_look_are_left_out() -> None:
    values = np.array([[0.5, np.nan, 0.7]])
    chart = curves("k", "t", "s", {"mine": Series(np.array([1, 2, 3]), values)}, y_title="y")
    assert chart.traces[0].x == (1, 3)


def test_long_curves_are_thinned_but_keep_their_ends() -> None:
    x = np.arange(100_000)
    chart = curves("k", "t", "s", {"mine": Series(x, x[None] * 1.0)}, y_title="y")
    assert len(chart.traces[0].x) == POINTS
    assert (chart.traces[0].x[0], chart.traces[0].x[-1]) == (0, 99_999)


def test_the_beginning_does_not_squeeze_the_rest() -> None:
    x = np.arange(1, 101)
    values = np.where(x < 10, 0.0, 0.9 + x / 1000)[None]
    chart = curves("k", "t", "s", {"mine": Series(x, values)}, y_title="y", late=True)
    low, high = chart.layout.yaxis.range
    assert 0.9 < low < 0.91
    assert 1.0 < high < 1.01


def test_columns_average_over_what_is_known() -> None:
    cuts = cut_rounds(10_000)
    assert len(cuts) == COLUMNS + 1
    assert (cuts[0], cuts[-1]) == (0, 10_000)
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 7.0]])
    np.testing.assert_array_equal(pool(values, np.array([0, 2, 3])), [[2.0, np.nan], [5.0, 7.0]])


def test_accuracy_of_a_comparison(tmp_path: Path) -> None:
    figure = report_of(make_comparison(), tmp_path).figures["r0-accuracy"]
    lines = [trace for trace in figure["traces"] if "name" in trace]
    assert [line["name"] for line in lines] == POLICIES
    assert lines[1]["x"] == [1, 2, 4]
    np.testing.assert_allclose(lines[1]["y"], np.array([0.4, 0.7, 0.6]) + 0.02)


def test_channel_map_shows_the_air_of_the_run(tmp_path: Path) -> None:
    traces = report_of(make_training(), tmp_path).figures["r0-channels"]["traces"]
    rates, states, beliefs, chosen, *marks = traces
    stream = open_air(SETTINGS.build_channels(), 4, SETTINGS.seed, SETTINGS.run)
    block = stream.block(4)
    np.testing.assert_allclose(rates["z"], block.means.T, rtol=1e-4)
    np.testing.assert_array_equal(states["z"], block.states.T)
    assert [row[0] for row in beliefs["z"]] == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert [row[0] for row in chosen["z"]] == [1, 0, 1, 0, 1]
    true = next(mark for mark in marks if mark["meta"]["group"] == "true")
    noticed = next(mark for mark in marks if mark["meta"]["group"] == "noticed")
    assert sorted(set(true["customdata"])) == stream.breakpoints.tolist()
    assert len(true["x"]) == stream.changed.sum()
    assert (noticed["x"], noticed["y"]) == ([2], [3])


def test_changes_noticed_are_told_against_true_ones() -> None:
    changed = np.array([[True, False], [False, True]])
    air = Air(np.arange(11), np.full((10, 2), 0.5), np.ones((10, 2)), np.array([3, 7]), changed)
    alarms = np.full(10, -1)
    alarms[4] = 0  # at the end of round 5
    play = Play(np.zeros((10, 1), int), alarms, np.full((10, 2), np.nan))
    table = channel_map(air, {"mine": play}, run=0).table
    assert table.head == ["first round", "channels that change", "noticed"]
    assert table.rows == [["3", "0", "round 5 (+2)"], ["7", "1", "not"]]


@pytest.mark.parametrize(("breakpoints", "mode"), [(100, "markers"), (250, "lines"), (400, None)])
def test_many_changes_are_marked_by_less(breakpoints: int, mode: str | None) -> None:
    changed = np.ones((breakpoints, 6), bool)
    begins = np.arange(2, breakpoints + 2)
    air = Air(np.arange(501), np.full((500, 6), 0.5), np.ones((500, 6)), begins, changed)
    traces = channel_map(air, {}, run=0).traces
    true = [one for one in traces if one.meta and one.meta.get("group") == "true"]
    assert [one.mode for one in true] == ([] if mode is None else [mode])


def test_only_detectors_can_miss_a_change(tmp_path: Path) -> None:
    quiet = {"glr-cucb": {"delta": 1e-300}}  # it looks, and notices nothing
    text = report_of(make_simulation(rounds=60, policy_options=quiet), tmp_path).text
    for name in ("random", "cucb"):
        assert f"{name} 5 no detector — — —" in text
    assert "glr-cucb 5 0 5 0 —" in text
    assert re.search(r"random [^a-z]* — cucb [^a-z]* — glr-cucb [^a-z]* 0 ", text)  # alarms


def test_only_detectors_can_miss_a_change_in_training(tmp_path: Path) -> None:
    comparison = make_comparison()
    still = comparison.assign(alarm=xr.full_like(comparison.alarm, -1))
    text = report_of(still, tmp_path).text
    for name in ("random", "cucb"):
        assert f"{name} 2 no detector — — —" in text
    assert "glr-cucb 2 0 2 0 —" in text
    assert "noticed by" not in text  # the map's table has a column for the one detector only
    blind = SETTINGS.model_copy(update={"policy": "random"})
    text = report_of(make_training(blind, alarm=-1), tmp_path).text
    assert "random+age 2 no detector — — —" in text
    assert "first round channels that change 2 " in text


def test_maps_begin_with_the_freshest_policy(tmp_path: Path) -> None:
    comparison = make_comparison()
    older = xr.where(comparison.policy == "cucb", 0, 1)
    document = report_of(comparison.assign(ages=comparison.ages + older), tmp_path)
    chosen = [own["value"] for own in document.all("option") if "selected" in own]
    assert chosen == ["1", "1", "1"]


# ----------------------------------------------------------------------------------- hostile input


@pytest.mark.parametrize("make", [make_simulation, make_comparison])
def test_names_cannot_turn_into_markup(make: Any, tmp_path: Path) -> None:
    document = report_of(make(NASTY), tmp_path)
    assert len(document.all("script")) == 3
    assert not document.all("img")
    for name in NASTY:
        assert name in document.text
    lines = [one["name"] for one in document.figures["r0-regret"]["traces"] if "name" in one]
    assert lines[0] == '&lt;script&gt;alert("ran")&lt;/script&gt;'


def test_verdicts_cannot_turn_into_markup(tmp_path: Path) -> None:
    document = report_of_claims([{"what": NASTY[0], "why": NASTY[1], "unit": NASTY[2]}], tmp_path)
    assert len(document.all("script")) == 3
    assert not document.all("img")
    for text in NASTY:
        assert text in document.text


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "<b>&amp;"
    folder.mkdir()
    assert "<b>&amp;" in report_of(make_simulation(), folder).text


# ----------------------------------------------------------------------------------- other results


def test_big_results_make_small_pages(tmp_path: Path) -> None:
    document = report_of(make_long_training(rounds=2_000, clients=60), tmp_path)
    assert len(document.scripts[0]) < 3_000_000


def test_air_that_nobody_knows_here_is_told(tmp_path: Path) -> None:
    simulation = make_simulation()
    config = {**json.loads(simulation.attrs["config"]), "channels": "my-own-air"}
    document = report_of(simulation.assign_attrs(config=json.dumps(config)), tmp_path)
    assert "r0-channels" not in document.figures
    assert "cannot be regenerated here: unknown channel model 'my-own-air'" in document.text


def test_policies_nobody_knows_here_are_shown(tmp_path: Path) -> None:
    training = make_training()
    config = {**json.loads(training.attrs["config"]), "policy": "my-own"}
    document = report_of(training.assign_attrs(config=json.dumps(config)), tmp_path)
    assert "my-own+age" in document.text


# The settings of the first version's files that are spelt otherwise today, at their defaults.
FORMER = {
    **{"aggregation": "renorm", "served": "last", "local_rounds": 1, "server_lr": 1.0},
    **{"mixing": 0.6, "staleness": "polynomial", "staleness_a": 0.5, "staleness_b": 4.0},
    **{"buffer_size": 10, "loo": "global_minus", "cold_start": "mean", "error_samples": None},
}


def spelt_before(settings: dict[str, Any], **chosen: Any) -> dict[str, Any]:
    left = {"policy", "algorithm", "algorithm_options", "valuation_options"}
    kept = {name: value for name, value in settings.items() if name not in left}
    return {**kept, **FORMER, "scheduler": settings["policy"], "algorithm": "async", **chosen}


def test_defaults_of_the_first_version_are_told_as_defaults(tmp_path: Path) -> None:
    training = make_training()
    config = json.loads(training.attrs["config"])
    today = show_training(training, tmp_path / "a.nc", "a").settings
    old = training.assign_attrs(config=json.dumps(spelt_before(config)))
    found = show_training(old, tmp_path / "a.nc", "a").settings
    assert sorted(found.rows) == sorted(today.rows)
    assert ["algorithm", "renorm", "default"] in found.rows
    chosen = spelt_before(config, aggregation="fixed", scheduler="my-own")
    part = show_training(training.assign_attrs(config=json.dumps(chosen)), tmp_path / "a.nc", "a")
    assert ["algorithm", "fixed", "chosen"] in part.settings.rows
    assert "my-own+age" in part.about


def test_policies_take_the_place_of_the_settings_policy(tmp_path: Path) -> None:
    comparison = make_comparison()
    config = json.loads(comparison.attrs["config"])
    before = {**config, "settings": spelt_before(config["settings"])}
    for each in (config, before):
        result = comparison.assign_attrs(config=json.dumps(each))
        rows = show_comparison(result, tmp_path / "a.nc", "a").settings.rows
        named = [row[0] for row in rows]
        assert "policies" in named
        assert not {"policy", "scheduler", "matching", *FORMER} & set(named)
        assert ["algorithm", "renorm", "default"] in rows


def test_runs_without_contributions_say_so(tmp_path: Path) -> None:
    document = report_of(make_training(contributions=np.full(3, np.nan)), tmp_path)
    assert "r0-contribution" not in document.figures
    assert "This run did not use contributions" in document.text


def test_air_without_means(tmp_path: Path) -> None:
    states = np.random.default_rng(0).integers(0, 2, (300, 3))
    trace = tmp_path / "air.npy"
    np.save(trace, states)
    import freshband

    result = freshband.simulate(
        "trace", "random", rounds=300, runs=2, channel_options={"path": str(trace)}, progress=False
    )
    document = report_of(result, tmp_path)
    assert len(document.figures["r0-channels"]["traces"]) == 1
    assert "the best fixed set" in document.text


def test_one_run_has_no_bands(tmp_path: Path) -> None:
    document = report_of(make_simulation(runs=1), tmp_path)
    assert all("fill" not in one for one in document.figures["r0-regret"]["traces"])


# --------------------------------------------------------------------------- verdicts and pictures

CLAIM = {
    "what": "A below B",
    "paper": "below",
    "ours": 12.5,
    "error": float("nan"),
    "unit": "regret",
    "verdict": "reproduced",
    "why": "",
}


def report_of_claims(claims: list[dict[str, Any]], folder: Path) -> Document:
    rows = [{**CLAIM, **claim} for claim in claims]
    (folder / "fig2a-quick.json").write_text(json.dumps(rows), encoding="utf-8")
    return report(folder)


def test_verdicts_are_told_with_what_was_measured(tmp_path: Path) -> None:
    doubted = {"what": "C above D", "error": 1.5, "verdict": "not reproduced", "why": "linear"}
    document = report_of_claims([{}, doubted], tmp_path)
    assert "1 experiment." in document.text
    assert "A below B reproduced 12.50 regret below" in document.text
    assert "C above D not reproduced 12.5 ± 1.5 regret below linear" in document.text
    assert "scale quick; reproduced: 1, not reproduced: 1" in document.text
    assert "freshband reproduce fig2a --scale quick --out" in document.text


def test_verdicts_stand_before_the_results_they_sum_up(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "air.nc")
    report_of_claims([{}], tmp_path)
    shown = write_report(tmp_path).shown
    assert [path.name for path in shown] == ["fig2a-quick.json", "air.nc"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[1]", '[{"verdict": "holds"}]', "[{}]"])
def test_damaged_verdicts_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "fig2a-quick.json").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=r"fig2a-quick\.json (is damaged|holds neither|is not a)"):
        write_report(tmp_path)


def test_files_of_others_are_passed_over(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    (tmp_path / "package.json").write_text("{}", encoding="utf-8")
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / ".hidden.png").write_bytes(b"being written")
    written = write_report(tmp_path)
    assert (written.shown, written.left_out) == ([tmp_path / "one.nc"], [])
    assert written.pictures == []


def test_pictures_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "air.svg").write_text("<svg onload='alert(1)'/>", encoding="utf-8")
    (tmp_path / "regret-by-policy-quick.png").write_bytes(b"first")
    document = report_of_claims([{}], tmp_path)
    pictures = [
        base64.b64decode((own["src"] or "").partition(",")[2]) for own in document.all("img")
    ]
    assert pictures == [b"first", b"<svg onload='alert(1)'/>"]
    assert [own["alt"] for own in document.all("img")] == [
        "Regret of the paper's policies and of ours",
        "air.svg",
    ]
    assert "1 experiment, 2 pictures." in document.text


def test_pictures_too_large_for_a_page_are_named(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    (tmp_path / "huge.png").write_bytes(bytes(9_000_000))
    (told,) = write_report(tmp_path).left_out
    assert told == f"{tmp_path / 'huge.png'} is too large for a page: 9 MB"


# ------------------------------------------------------------------------------------------- files


def test_where_the_page_goes(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    assert write_report(tmp_path).path == tmp_path / "report.html"
    assert write_report(tmp_path / "one.nc").path == tmp_path / "report.html"
    other = write_report(tmp_path, tmp_path / "new" / "mine.html")
    assert other.path.read_bytes() == write_report(tmp_path).path.read_bytes()
    assert other.shown == [tmp_path / "one.nc"]


def test_files_that_are_no_results_are_left_out_and_named(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    (tmp_path / "broken.nc").write_bytes(b"nothing")
    (tmp_path / ".12.half.nc").write_bytes(b"being written")
    written = write_report(tmp_path)
    assert written.left_out == [f"{tmp_path / 'broken.nc'} is damaged or not a result"]
    assert "Left out: " in Document(written.path.read_text(encoding="utf-8")).text


def test_no_result_no_page(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no result"):
        write_report(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        write_report(tmp_path / "none.nc")
    save_sealed(xr.Dataset(attrs={"format": "else"}), tmp_path / "else.nc")
    with pytest.raises(FileError, match="got 'else'"):
        write_report(tmp_path)
    save_sealed(make_training().drop_vars("ages"), tmp_path / "else.nc")
    with pytest.raises(FileError, match="not a complete result"):
        write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["else.nc"]


def test_a_page_is_called_html(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    with pytest.raises(ParameterError, match=r"must end in \.html, got 'mine\.pdf'"):
        write_report(tmp_path, tmp_path / "mine.pdf")


def test_without_plotly_the_extra_is_named(tmp_path: Path) -> None:
    """In a process of its own: in this one, plotly and what uses it are imported already."""
    program = (
        "import sys; sys.modules['plotly'] = None\n"
        "from freshband.errors import FreshbandError\n"
        "from freshband.reporting.report import write_report\n"
        "try: write_report('.')\n"
        "except FreshbandError as error: print(error)"
    )
    ask = [sys.executable, "-c", program]
    done = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, check=True)
    told = "a report needs plotly; install it with: pip install 'freshband[report]'\n"
    assert done.stdout == told


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sealed(make_training(), tmp_path / "result.nc")
    monkeypatch.setitem(sys.modules, "freshband.federated.result", None)
    with pytest.raises(FreshbandError, match=r"needs PyTorch; .*'freshband\[train\]'"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        ("stationary", {"per_client": True}, ["Links differ per client: the channel map shows"]),
        ("reactive", {}, ["The channels react to the clients: the channel map shows the free air"]),
        ("piecewise", {}, []),
    ],
)
def test_the_map_says_what_it_cannot_show(name: str, params: Any, told: list[str]) -> None:
    model, config = build(name, params), {"rounds": 60, "seed": 2, "clients": 3}
    air, notes = air_again(lambda: model, config, 1, rounds=60)
    assert air is not None
    assert len(notes) == len(told)
    assert all(note.startswith(begin) for note, begin in zip(notes, told, strict=True))
    means = open_air(model, 60, 2, 1, clients=3).block(60).means
    averages = means.mean(axis=1) if params else means
    assert air.means is not None
    np.testing.assert_allclose(air.means, averages)
    assert channel_map(air, {}, run=1).height > 0
