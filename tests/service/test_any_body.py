"""Whatever JSON a request holds, it is answered, or refused in one line and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.errors import FreshbandError
from freshband.service.calls import CALLS, SETTINGS
from freshband.service.catalogue import Catalogue
from freshband.service.hosted import Hosted

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([10**30, -(10**30), 0.5, -0.0, 1e308, "", "Eve", "0", "\0", "x" * 100]),
)
ANY = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner)
)


@pytest.fixture(scope="module")
def hosted() -> Hosted:
    hosted = Hosted({"policy": "cucb", "n_clients": 2, "n_channels": 3})
    hosted.answer("plan", {"round": 1})
    return hosted


@pytest.mark.parametrize("call", CALLS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_request(hosted: Hosted, call: str, data: st.DataObject) -> None:
    fields = st.fixed_dictionaries(
        {}, optional={name: ANY for name in [*CALLS[call].fields, "unknown"]}
    )
    body: Any = data.draw(fields | ANY)
    before = hosted.coordinator.to_bytes()
    refused, reply = "", b""
    try:
        reply = hosted.answer(call, body)
    except FreshbandError as error:
        refused = str(error)
    assert "\n" not in refused
    if refused:
        assert hosted.coordinator.to_bytes() == before
    else:
        assert json.loads(reply).keys() == CALLS[call].reply.keys()


@settings(max_examples=60)
@given(given_settings=st.fixed_dictionaries({}, optional={name: ANY for name in SETTINGS}))
def test_any_settings(given_settings: dict[str, Any]) -> None:
    wanted = {"n_clients": 2, "n_channels": 3, **given_settings, "policy": "cucb"}
    catalogue = Catalogue()
    refused = ""
    try:
        catalogue.add("any", wanted)
    except FreshbandError as error:
        refused = str(error)
    assert "\n" not in refused
    assert list(catalogue) == ([] if refused else ["any"])
