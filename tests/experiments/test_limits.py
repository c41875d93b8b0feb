"""An experiment can be limited to a data set or an air, in its files and on the page too."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from freshband.errors import ParameterError
from freshband.experiments.base import _find_verdicts, _with_verdicts, registry


def test_an_experiment_can_be_limited_to_a_data_set() -> None:
    limited = registry["fig3"].at("full").on("cifar10")
    assert len(limited.pieces()) == len(registry["fig3"].at("full").pieces()) / 2
    assert all("-cifar10-" in piece.key for piece in limited.pieces())
    assert limited.verdicts == "fig3-full-cifar10.json"
    assert _find_verdicts(limited.verdicts) == limited
    assert _find_verdicts("fig3-full-digits.json") is None
    only = registry["parts"].at("full")
    assert only.on("cifar10") is only  # it has no other
    told = "experiment 'fig3' does not train on 'digits' at the scale full; its data sets are: cif"
    with pytest.raises(ParameterError, match=told):
        registry["fig3"].at("full").on("digits")
    with pytest.raises(ParameterError, match="; its data sets are: none"):
        registry["fig2a"].at("full").on("cifar10")


def test_an_experiment_can_be_limited_to_an_air() -> None:
    whole = registry["fig3"].at("full")
    panel = whole.on("cifar100", "piecewise")
    assert panel == whole.on(air="piecewise").on("cifar100")
    assert {piece.key.split("-")[2:4][1] for piece in panel.pieces()} == {"piecewise"}
    assert panel.verdicts == "fig3-full-cifar100-piecewise.json"
    assert panel.command == "reproduce fig3 --scale full --dataset cifar100 --air piecewise"
    files = [form.verdicts.removesuffix(".json") for form in whole.forms()]
    assert files == ["fig3-full", "fig3-full-cifar10", "fig3-full-cifar100", "fig3-full-piecewise",
                     "fig3-full-extreme", "fig3-full-cifar10-piecewise",
                     "fig3-full-cifar100-piecewise", "fig3-full-cifar10-extreme",
                     "fig3-full-cifar100-extreme"]  # fmt: skip
    assert [_find_verdicts(f"{file}.json") for file in files] == list(whole.forms())
    assert _find_verdicts("fig3-full-extreme-cifar10.json") is None
    alone = registry["rules"].at("full").on("cifar10", "extreme")  # it has no other data set
    assert alone.verdicts == "rules-full-extreme.json"
    told = "'fig3' does not have the air 'wide' at the scale full; its airs are: piecewise, extreme"
    with pytest.raises(ParameterError, match=told):
        whole.on(air="wide")
    places = (("cifar10", "piecewise"), ("cifar100", "extreme"))
    odd = dataclasses.replace(whole, places=places)
    assert [form.verdicts.count("-") for form in odd.forms()] == [1, 2, 2, 2, 2, 3, 3]
    with pytest.raises(ParameterError, match="'fig3' does not train on cifar10, extreme"):
        odd.on("cifar10", "extreme")


def test_what_a_shown_part_contains_is_not_shown_again(tmp_path: Path) -> None:
    whole = registry["fig3"].at("full")
    panel, half = whole.on("cifar100", "piecewise"), whole.on("cifar10")
    for form in (panel, half, whole.on("cifar10", "extreme")):
        (tmp_path / form.verdicts).touch()
    assert _with_verdicts("fig3", tmp_path) == [half, panel]
    (tmp_path / whole.verdicts).touch()
    assert _with_verdicts("fig3", tmp_path) == [whole]
