"""Reports: pages of any result, and nothing in a file turns into markup."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest
import xarray as xr

from freshband._sealed import save_sealed
from freshband.channels.base import build, open_air
from freshband.errors import FileError, FreshbandError, ParameterError
from freshband.reporting._page.air import channel_map
from freshband.reporting._page.comparison import show_comparison
from freshband.reporting._page.parts import air_again
from freshband.reporting._page.training import show_training
from freshband.reporting.report import write_report
from tests.reporting.pages import Document, report, report_of
from tests.reporting.results import (
    NASTY,
    fill,
    make_comparison,
    make_long_training,
    make_simulation,
    make_training,
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """The page of a folder with one result of each kind."""
    folder = fill(tmp_path_factory.mktemp("results"))
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
    reason = "damaged or not a result: it has no seal at its end"
    assert written.left_out == [f"{tmp_path / 'broken.nc'} is {reason}"]
    assert "Left out: " in Document(written.path.read_text(encoding="utf-8")).text


def test_numbers_that_no_chart_can_show_cost_no_other_result(tmp_path: Path) -> None:
    training = make_training()
    save_sealed(training, tmp_path / "fine.nc")
    save_sealed(training.assign(ages=training.ages * np.nan), tmp_path / "odd.nc")
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        written = write_report(tmp_path)
    assert [path.name for path in written.shown] == ["fine.nc"]
    assert len(written.left_out) == 1
    assert "odd.nc is not a complete result" in written.left_out[0]


def test_no_result_no_page(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no result"):
        write_report(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        write_report(tmp_path / "none.nc")
    save_sealed(xr.Dataset(attrs={"format": "else"}), tmp_path / "else.nc")
    with pytest.raises(FileError, match="got 'else'"):
        write_report(tmp_path)
    for result in (make_simulation().isel(run=slice(0)), make_training().drop_vars("ages")):
        save_sealed(result, tmp_path / "else.nc")
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
