"""``freshband simulate`` beyond the paper's problem: settings of the fleet, and where they go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import freshband
from freshband._policy import parse_policy
from freshband.channels.base import register, registry
from freshband.cli._settings import split_fleet
from freshband.cli.simulate import _LEARN_LATE
from freshband.errors import ParameterError
from freshband.fleet.conditions import SimulatedFleet
from freshband.parameters import Parameters
from freshband.schedulers.base import update_late
from tests.cli.running import Shell

SMALL = ["--policies", "random", "--rounds", 60, "--runs", 2, "--points", 6, "--quiet"]
MODES: dict[str, dict[str, Any]] = {
    "ack_delay=5": {"ack_delay": 5},
    "ack_loss=0.5": {"ack_loss": 0.5},
    "churn=20": {"churn": 20.0},
    "dead=[2]": {"dead": [2]},
    "outages=20": {"outages": 20.0},
    "churn=20 tells=true": {"churn": 20.0, "tells": True},
    "weights=[1,1,4]": {"weights": [1.0, 1.0, 4.0]},
    "max_transmissions=2": {"max_transmissions": 2},
    "ack_loss=0.5 silence=loss max_delay=4": {"ack_loss": 0.5, "silence": "loss", "max_delay": 4},
    "dead=[0] proof_of_life=delivery": {"dead": [0], "proof_of_life": "delivery"},
    "per_client=true": {},
    "per_client=true churn=20 outages=20": {"churn": 20.0, "outages": 20.0},
}


def sets(settings: str) -> list[str]:
    return [word for setting in settings.split() for word in ("--set", setting)]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_simulated_repeated_and_reported(shell: Shell, mode: str) -> None:
    ask = ["simulate", "--clients", 3, *SMALL, *sets(mode), "--out", "first.nc"]
    found = shell.answer(*ask, "--plot", "first.png")
    assert found.get("fleet", {}) == MODES[mode]
    assert found["channel_options"] == ({"per_client": True} if "per_client" in mode else {})
    assert found["policies"]["random"]["mean_age"]["mean"] >= 1.0
    assert found["policies"]["random"]["regret_rotate"] is None
    assert shell("simulate", "--like", "first.nc", "--out", "second.nc").code == 0
    first, second = (freshband.load_result(name) for name in ("first.nc", "second.nc"))
    assert json.loads(second.attrs["config"]) == json.loads(first.attrs["config"])
    xr.testing.assert_equal(second.drop_vars("seconds"), first.drop_vars("seconds"))
    assert shell("report", "first.nc", "--out", "it.html").code == 0
    page = Path("it.html").read_text(encoding="utf-8")
    assert ("; fleet: " in page) == bool(MODES[mode])
    assert "Channel map" in page


def test_more_clients_than_channels(shell: Shell) -> None:
    found = shell.answer("simulate", "--clients", 20, "--set", "n_channels=5", *SMALL)
    assert "fleet" not in found
    assert found["policies"]["random"]["mean_age"]["mean"] > 2.5  # 20 clients take turns by fives
    assert found["policies"]["random"]["regret"]["mean"] > 0


def test_the_papers_problem_is_configured_as_before(shell: Shell) -> None:
    plain = shell.answer("simulate", *SMALL)
    assert "fleet" not in plain
    same = shell.answer("simulate", *SMALL, *sets("ack_delay=0 tells=false"))
    assert "fleet" not in same
    assert same["policies"]["random"]["regret"] == plain["policies"]["random"]["regret"]


def test_the_table_describes_the_fleet(shell: Shell) -> None:
    out = shell("simulate", "--clients", 3, *SMALL, *sets("weights=[1,1,4] ack_delay=5")).out
    assert "piecewise: 3 clients, 60 rounds, 2 runs, seed 0" in out
    assert "fleet: weights=[1, 1, 4], ack_delay=5" in out
    told = " ".join(out.split())
    assert "oracle's, which learns at once who is there and what was delivered" in told
    assert "ages are weighted by client" in told
    assert "vs rotate" not in out
    plain = shell("simulate", *SMALL).out
    assert "fleet" not in plain
    assert "vs rotate" in plain


def test_a_jammer_that_watches_a_factory(shell: Shell) -> None:
    ask = ["simulate", "--channels", "reactive", "--clients", 3, *SMALL]
    ask += sets("n_channels=6 width=3 ack_loss=0.2")
    free = shell.answer(*ask, "--set", "budget=0")
    jammed = shell.answer(*ask, "--set", "budget=1", "--out", "it.nc")
    assert jammed["fleet"] == {"ack_loss": 0.2}
    ages = [found["policies"]["random"]["mean_age"]["mean"] for found in (free, jammed)]
    assert ages[1] > ages[0]
    assert shell("report", "it.nc").code == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "The channels react to the clients: the channel map shows the free air." in page


# --------------------------------------------------------------------------------- whose setting


@pytest.mark.parametrize("name", sorted(registry))
def test_no_channel_model_shares_a_name_with_the_fleet(name: str) -> None:
    assert not set(registry[name].model_fields) & set(SimulatedFleet.model_fields)


def test_an_own_channel_model_that_shares_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_things", dict((registry.names(), registry._things)[1]))

    @register("restless")
    class Restless(Parameters):
        """Channels with a setting that the fleet has too."""

        churn: float = 1.0

    with pytest.raises(ParameterError, match="--set churn: both Restless and the fleet have"):
        split_fleet("restless", {"churn": 2.0})
    assert split_fleet("restless", {"ack_loss": 0.5}) == ({}, {"ack_loss": 0.5})


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--set ack_dealy=5",
            "neither Piecewise nor the fleet has a parameter 'ack_dealy'; did you mean 'ack_del",
        ),
        (
            "--set ack_delay=5 --policies random,m-exp3",
            "policy 'm-exp3' learns nothing from outcomes that arrive late, but ack_delay is 5: "
            "leave this policy out",
        ),
        (
            "--set ack_delay=5 --policies m-exp3+aa",
            "policy 'm-exp3+aa' learns nothing from outcomes that arrive late",
        ),
        ("--set ack_delay=101", "ack_delay must be at most max_delay = 100, got 101"),
        ("--set ack_delay=-1", "ack_delay must be a whole number >= 0, got -1"),
        ("--set ack_loss=1", "ack_loss must be a number in [0, 1), got 1"),
        ("--set churn=0.5", "churn must be a number >= 1 or None, got 0.5"),
        ("--set outages=no", "outages must be a number >= 1 or None, got 'no'"),
        ("--set dead=[2]", "dead must name some of the clients 0 to 1, but not all, got [2]"),
        ("--set dead=[0,1]", "dead must name some of the clients 0 to 1, but not all, got [0, 1]"),
        ("--set tells=maybe", "tells must be true or false, got 'maybe'"),
        ("--set weights=[1,1,4]", "weights must be 2 finite numbers > 0, one per client, got (1"),
        ("--set max_transmissions=0", "max_transmissions must be a whole number >= 1 or None, got"),
        ("--set silence=golden", "silence must be one of 'random', 'loss', got 'golden'"),
        ("--set proof_of_life=pulse", "proof_of_life must be one of 'outcome', 'delivery', 'none'"),
        ("--set links=differ", "links cannot be set in a simulation: links differ where the"),
        (
            "--set ack_loss=0.5 --plot x.png --measure regret_rotate",
            "measure must not be 'regret_rotate' for a fleet beyond the paper's problem",
        ),
    ],
)
def test_bad_settings_are_told_before_any_run(shell: Shell, arguments: str, message: str) -> None:
    assert shell.refuses("simulate", *arguments.split()).startswith(message)


def test_weights_of_a_repeated_result_are_for_its_clients(shell: Shell) -> None:
    ask = ["simulate", "--clients", 3, *SMALL, "--set", "weights=[1,1,4]"]
    assert shell(*ask, "--out", "it.nc").code == 0
    line = shell.refuses("simulate", "--like", "it.nc", "--clients", 4)
    assert line.startswith("weights must be 4 finite numbers > 0, one per client")


def test_the_page_has_every_setting_of_a_fleet() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "cli.md").read_text(encoding="utf-8")
    table = page.partition("## Simulating a fleet")[2].partition("\n\n```shell")[0]
    for name in SimulatedFleet.model_fields.keys() - {"links"}:
        assert f"| `{name}=" in table, name


def test_the_settings_of_a_fleet_are_listed(shell: Shell) -> None:
    done = shell("list", "fleet")
    assert (done.code, done.err) == (0, "")
    for name in SimulatedFleet.model_fields:
        assert f"\n{name} : " in done.out, name
    assert shell.refuses("list", "flet").endswith("did you mean 'fleet'?")


def test_default_policies_learn_from_late_outcomes() -> None:
    for policy in map(parse_policy, _LEARN_LATE.split(",")):
        state, _ = policy.start(2, 5, np.random.default_rng(0), 100)
        assert update_late.knows(type(state))
