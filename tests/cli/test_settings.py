"""How options are read."""

from __future__ import annotations

from typing import Any

import pytest

from freshband.cli._settings import read_number, read_settings
from freshband.errors import ParameterError
from tests.simulation.refusing import refused


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-0.5", -0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("null", None),
        ("[0.1, 0.9]", [0.1, 0.9]),
        ("[[1,0],[0,1]]", [[1, 0], [0, 1]]),
        ("paper", "paper"),
        ("trace.csv", "trace.csv"),
        ('"5"', "5"),
        ("a=b", "a=b"),
        ("", ""),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("None", None),
        ("none", "none"),  # a setting of m-exp3
        (".6", 0.6),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("+3", 3),
        ("1_000", 1000),
        (" .5 ", 0.5),
        ("[.1,.9]", [0.1, 0.9]),
        ("[+1, 2.,]", [1, 2.0]),
        ("inf", "inf"),
        ("-inf", "-inf"),
        ("nan", "nan"),
        ("007", "007"),  # the name of a column, not a number
        ("1,2", "1,2"),
        ("2024-05.csv", "2024-05.csv"),
        ("3+4j", "3+4j"),
        ("'5'", "'5'"),
        ("9" * 5000, "9" * 5000),  # more digits than Python reads
        ("." + "9" * 5000, 1.0),
    ],
)
def test_values_are_what_json_or_python_makes_of_them(text: str, value: Any) -> None:
    channels, policies = read_settings([f"key={text}"])
    assert channels == {"key": value}
    assert type(channels["key"]) is type(value)
    assert policies == {}


def test_a_dot_names_the_policy() -> None:
    channels, policies = read_settings(
        ["n_channels=5", "glr-cucb:paper+aa.delta=0.1", " m-exp3.gamma = auto", "m-exp3.share=0"]
    )
    assert channels == {"n_channels": 5}
    assert policies == {
        "glr-cucb:paper+aa": {"delta": 0.1},
        "m-exp3": {"gamma": " auto", "share": 0},
    }


@pytest.mark.parametrize("setting", ["", "key", "=5", "cucb.=5", "cucb."])
def test_a_setting_is_key_equals_value(setting: str) -> None:
    with refused(ParameterError, "--set must be key=value or POLICY.key=value, got "):
        read_settings([setting])


@pytest.mark.parametrize("settings", [["a=1", "a=2"], ["cucb.a=1", "b=1", "cucb.a=1"]])
def test_a_setting_is_given_once(settings: list[str]) -> None:
    with refused(ParameterError, f"--set gives '{settings[-1].partition('=')[0]}' twice"):
        read_settings(settings)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("-1", -1), ("20_000", 20_000), ("1e6", 1e6), ("2.5", 2.5), ("many", "many")],
)
def test_numbers_and_what_is_none(text: str, value: Any) -> None:
    assert read_number(text) == value
    assert type(read_number(text)) is type(value)
