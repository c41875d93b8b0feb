"""Validation: messages that name the parameter, what is allowed and what was given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field, field_validator

from freshband.errors import ParameterError, UnknownNameError, nearest, reason, shown
from freshband.parameters import Parameters, file_path, whole_number
from tests.simulation.refusing import refused


class Sample(Parameters):
    """A field of every kind."""

    needed: int
    whole: int = 1
    count: int = Field(3, ge=1)
    share: float = Field(0.5, gt=0, lt=1)
    chance: Annotated[float, Field(ge=0, le=1)] = 0.5
    least: float = Field(0.0, ge=-2)
    most: float = Field(0.0, le=2.5)
    below: float = Field(0.0, lt=2)
    window: int | None = Field(None, ge=1)
    rate: float | Literal["auto", "anytime"] = "auto"
    kind: Literal["a", "b"] = "a"
    flag: bool = False
    text: str = "x"
    means: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field()] = ()
    even: int = 2

    @field_validator("even")
    @classmethod
    def _is_even(cls, even: int) -> int:
        if even % 2:
            raise ParameterError(f"even must be an even number, got {even}")
        return even


NUMBERS = ["whole", "count", "share", "chance", "least", "most", "below", "window", "rate", "even"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("whole", 1.5, "whole must be a whole number, got 1.5"),
        ("count", 0, "count must be a whole number >= 1, got 0"),
        ("count", -3, "count must be a whole number >= 1, got -3"),
        ("count", "3", "count must be a whole number >= 1, got '3'"),
        ("count", None, "count must be a whole number >= 1, got None"),
        ("share", 0, "share must be a number in (0, 1), got 0"),
        ("share", 1.0, "share must be a number in (0, 1), got 1.0"),
        ("share", math.nan, "share must be a number in (0, 1), got nan"),
        ("chance", -0.1, "chance must be a number in [0, 1], got -0.1"),
        ("chance", math.inf, "chance must be a number in [0, 1], got inf"),
        ("least", -3, "least must be a number >= -2, got -3"),
        ("most", 3, "most must be a number <= 2.5, got 3"),
        ("below", 2, "below must be a number < 2, got 2"),
        ("window", 0, "window must be a whole number >= 1 or None, got 0"),
        ("rate", "atuo", "rate must be a number or one of 'auto', 'anytime', got 'atuo'"),
        ("rate", "0.5", "rate must be a number or one of 'auto', 'anytime', got '0.5'"),
        ("kind", "c", "kind must be one of 'a', 'b', got 'c'"),
        ("kind", 1, "kind must be one of 'a', 'b', got 1"),
        ("flag", "perhaps", "flag must be true or false, got 'perhaps'"),
        ("text", 5, "text must be text, got 5"),
        ("means", [0.5, 2], "means must be a list of numbers in [0, 1], got 2"),
        ("means", "no", "means must be a list of numbers in [0, 1], got 'no'"),
        ("even", 3, "even must be an even number, got 3"),
        ("whole", 10**13, "whole must be at most 1000000000000, got 10000000000000"),
        ("needed", "x", "needed must be a whole number, got 'x'"),
    ],
)
def test_messages_name_parameter_range_and_value(name: str, value: Any, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Sample(**{"needed": 1, name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_numbers(name: str) -> None:
    wrong: list[Any] = [math.nan, math.inf, True, False, np.True_, "1", b"1", [1], {}, object(), 1j]
    for value in [*wrong, np.zeros((40, 40)), np.array([0.5])]:
        with refused(ParameterError, f"^{name} must be .*, got "):
            Sample(**{"needed": 1, name: value})


def test_good_values_are_taken_as_they_are() -> None:
    given = {"needed": 7, "count": 1, "share": 0.25, "chance": 1, "window": None, "rate": 0.5,
             "kind": "b", "flag": True, "text": "0.5", "means": [0, 1, 0.5]}  # fmt: skip
    made = Sample(**given)
    for name, value in given.items():
        assert getattr(made, name) == (tuple(value) if name == "means" else value)
    assert Sample(needed=1, rate="anytime").rate == "anytime"


@pytest.mark.parametrize("number", [np.int64(4), np.float64(4), np.uint8(4), 4.0])
def test_numbers_may_be_numpys(number: Any) -> None:
    made = Sample(needed=number, count=number, least=number)
    assert (made.needed, made.count, made.least) == (4, 4, 4.0)
    assert type(made.count) is int
    assert type(made.least) is float


def test_missing_and_unknown_names() -> None:
    with refused(ParameterError, "^Sample needs a value for 'needed'$"):
        Sample()
    with refused(UnknownNameError, "^Sample has no parameter 'cuont'; did you mean 'count'"):
        Sample(needed=1, cuont=3)
    with refused(UnknownNameError, "^Sample has no parameter 'zzz'; known: below, chance, "):
        Sample(needed=1, zzz=3)


def test_parameters_are_frozen_and_comparable() -> None:
    made = Sample(needed=1)
    with pytest.raises(ValueError, match="frozen"):
        made.count = 4  # type: ignore[misc]
    assert made == Sample(needed=1)
    assert made != Sample(needed=2)
    assert Sample(**made.model_dump()) == made


# ---------------------------------------------------------------------------------- whole numbers


@pytest.mark.parametrize(
    "value", [3, 3.0, np.int8(3), np.uint64(3), np.float32(3), np.float64(3.0)]
)
def test_whole_numbers(value: Any) -> None:
    number = whole_number("rounds", value, at_least=1)
    assert number == 3
    assert type(number) is int


def test_what_is_no_whole_number() -> None:
    wrong: list[Any] = [0, -1, 0.5, 2.5, math.nan, math.inf, -math.inf, True, False, np.True_, "3"]
    wrong += [b"3", None, [3], (3,), {3}, {}, np.array(3), np.array([3]), 3j, object(), -(10**5000)]
    for value in wrong:
        with refused(ParameterError, "^rounds must be a whole number >= 1, got "):
            whole_number("rounds", value, at_least=1)


def test_whole_numbers_have_limits() -> None:
    assert whole_number("run", 0, at_least=0) == 0
    assert whole_number("run", 10**12, at_least=0) == 10**12
    for value in (10**12 + 1, 1e30, 10**5000):
        with refused(ParameterError, r"^run must be a whole number in \[0, 1000000000000\], got "):
            whole_number("run", value, at_least=0)


# ------------------------------------------------------------------------------------------ paths


def test_paths() -> None:
    assert file_path("out", "a/b.nc") == file_path("out", Path("a/b.nc")) == Path("a/b.nc")


@pytest.mark.parametrize("value", [None, 3, "", b"a", ["a"], "a\0b", 1.5, True])
def test_what_is_no_path(value: Any) -> None:
    with refused(ParameterError, "^out must be the path of a file, got "):
        file_path("out", value)


# --------------------------------------------------------------------------------------- messages


def test_values_are_shown_in_one_short_line() -> None:
    assert shown("x") == "'x'"
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    for value in (np.zeros((99, 99)), "x" * 999, list(range(999)), 10**5000, 10**500):
        assert len(shown(value)) <= 80
        assert "\n" not in shown(value)


class Sulky:
    def __repr__(self) -> str:
        raise RuntimeError("not today")


def test_a_message_never_fails_over_its_value() -> None:
    assert shown(Sulky()) == "an unprintable Sulky"
    with refused(ParameterError, "count must be a whole number >= 1, got an unprintable Sulky"):
        Sample(needed=1, count=Sulky())


def test_reasons_take_one_line() -> None:
    assert reason(FileNotFoundError(2, "No such file or directory", "x")) == (
        "No such file or directory"
    )
    assert reason(ValueError("two\nlines")) == "two lines"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("glr-cubc", "did you mean 'glr-cucb'?"), ("q", "known: cucb, glr-cucb, random")],
)
def test_the_nearest_name(name: str, hint: str) -> None:
    assert nearest(name, ["random", "glr-cucb", "cucb"]) == hint
