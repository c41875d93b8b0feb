"""The service as a client sees it, over real connections."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freshband import Coordinator
from freshband.errors import FileError, ParameterError
from freshband.service.app import create_app
from freshband.service.calls import CALLS
from freshband.service.catalogue import Catalogue
from freshband.service.hosted import Hosted
from tests.service.calling import Client, running

SETUP = {"policy": "cucb", "n_clients": 2, "n_channels": 3}
TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    catalogue = Catalogue()
    catalogue.open("default", SETUP)
    return catalogue


@pytest.fixture(scope="module")
def port(catalogue: Catalogue) -> Iterator[int]:
    with running(create_app(catalogue, max_body=2000)) as port:
        yield port


@pytest.fixture
def client(port: int) -> Client:
    return Client(port)


@pytest.fixture
def name(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A coordinator of the test's own."""
    name = re.sub(r"\W", "-", request.node.name)[:60]
    assert client.call("PUT", f"/v1/coordinators/{name}", SETUP) == (201, {"created": True})
    yield name
    assert client.call("DELETE", f"/v1/coordinators/{name}")[0] == 200


def test_rounds_are_those_of_a_coordinator(client: Client, name: str) -> None:
    coordinator = Coordinator("cucb", 2, 3)
    assert client.post("plan", {"round": 1}, name) == (
        200,
        {"round": 1, "channels": coordinator.plan().tolist(), "alarm": None},
    )
    for t in range(2, 20):
        coordinator.observe([t % 2 == 0, t % 3 == 0])
        body = {"round": t, "delivered": [t % 2 == 0, t % 3 == 0]}
        for _ in range(2):  # repeated, it changes nothing
            status, reply = client.post("plan", body, name)
            assert (status, reply["round"]) == (200, t)
        assert reply["channels"] == coordinator.plan().tolist()
    status, shown = client.call("GET", f"/v1/coordinators/{name}")
    assert status == 200
    assert shown["name"] == name
    assert shown["ages"] == coordinator.ages.tolist()
    assert shown["channel_means"] == coordinator.channel_means.tolist()
    assert client.post("join", {"client": "Eve"}, name) == (200, {"client": "Eve", "number": 2})
    assert client.post("leave", {"client": "Eve"}, name) == (200, {"client": "Eve"})


@pytest.mark.parametrize(
    ("method", "path", "data", "kind", "status", "text"),
    [
        ("POST", "/plan", b'{"round": 7}', "application/json", 409, "the next is 1"),
        ("POST", "/plan", b'{"round": 0}', "application/json", 422, "round must be a whole number"),
        ("POST", "/plan", b"{", "application/json", 400, "the body is not JSON: Expecting"),
        ("POST", "/plan", b'{"round": NaN}', "application/json", 400, "'NaN' is not a number"),
        ("POST", "/plan", b'{"round": 1' + b"0" * 1500 + b"}", "application/json", 422, "10"),
        ("POST", "/plan", b"[" * 1999, "application/json", 400, "the body is not JSON"),
        ("POST", "/plan", b'"\xff"', "application/json", 400, "the body is not JSON"),
        ("POST", "/plan", b"", "application/json", 400, "the body is not JSON"),
        ("POST", "/plan", b" " * 2001, "application/json", 413, "2000 bytes at most"),
        ("POST", "/plan", b'{"round": 1}', "text/plain", 415, "application/json"),
        ("POST", "/plans", b"{}", "application/json", 404, "no such coordinator or path"),
        ("GET", "/plan", None, "", 405, "no such method"),
        ("PUT", "", b'{"n_clients": 2}', "application/json", 422, "a value for 'n_channels'"),
        ("PUT", "", json.dumps({**SETUP, "seed": 1}).encode(), "application/json", 409, "other"),
        ("DELETE", "", None, "", 409, "was started with the service"),
    ],
)
def test_errors_are_one_line(
    client: Client,
    method: str,
    path: str,
    data: bytes | None,
    kind: str,
    status: int,
    text: str,
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    found, answered, reply = client.send(method, f"/v1/coordinators/default{path}", data, **headers)
    assert (found, answered, list(reply)) == (status, "application/json", ["error"])
    assert text in reply["error"]
    assert "\n" not in reply["error"]
    assert client.call("GET", "/v1/coordinators/default")[1]["planned"] == 0


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("a", {**SETUP, "policy": "cucbb"}, "did you mean 'cucb'"),
        ("a", {**SETUP, "n_clients": 10**8}, "too large to be started by a request"),
        ("a", {**SETUP, "links": "differ"}, "use 'bayes'"),
        ("a", {**SETUP, "options": [1]}, "options"),
        ("a", {**SETUP, "client_ids": 5}, "client_ids must hold one name per client"),
        ("a", {**SETUP, "client_ids": [[1], [2]]}, "must be text or a whole number"),
        ("a", [], "takes a JSON object"),
        (".a", SETUP, "the name of a coordinator must be"),
        ("a%20b", SETUP, "the name of a coordinator must be"),
        ("x" * 65, SETUP, "the name of a coordinator must be"),
    ],
)
def test_a_coordinator_that_cannot_be_is_refused(
    client: Client, name: str, settings: Any, text: str
) -> None:
    status, reply = client.call("PUT", f"/v1/coordinators/{name}", settings)
    assert status == 422
    assert text in reply["error"]
    assert client.call("GET", "/v1/coordinators") == (200, {"coordinators": ["default"]})


@pytest.mark.parametrize(
    "settings",
    [
        {"options": {"slots": 10**7}},
        {"policy": "bayes{slots=10000000}"},
        {"policy": "cucb", "options": {"mean_window": 10**8}},
    ],
)
def test_settings_of_a_policy_are_bounded_too(settings: Any) -> None:
    with pytest.raises(ParameterError, match="too large to be started by a request"):
        Catalogue().add("roof", {"n_clients": 2, "n_channels": 5, **settings})


def test_a_second_service_touches_nothing(tmp_path: Path) -> None:
    """Not even what a running one has written in part."""
    state, folder = tmp_path / "state.npz", tmp_path / "state.npz.d"
    with Catalogue(state) as catalogue:
        catalogue.open("default", SETUP)
        catalogue.add("roof", SETUP)
        catalogue["roof"].answer("plan", {"round": 1})
        with (folder / "roof.npz.journal").open("ab") as journal:
            journal.write(b"half a li")
        (folder / "new.npz.journal").write_bytes(b"of a coordinator that is being added\n")
        before = {path: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(FileError, match=r"state.npz is served by another process"):
            Catalogue(state).open("default", SETUP)
        with pytest.raises(FileError, match=r"roof.npz is served by another process"):
            Hosted.reopened(folder / "roof.npz")
        assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_others_are_answered_while_a_removal_waits(
    catalogue: Catalogue, client: Client, port: int
) -> None:
    path = "/v1/coordinators/cellar"
    client.call("PUT", path, SETUP)
    removal = threading.Thread(target=Client(port).call, args=("DELETE", path))
    with catalogue._adding:  # as while another coordinator is compiled
        removal.start()
        assert client.post("plan", {"round": 10**6})[0] == 409
    removal.join()
    assert "cellar" not in list(catalogue)


def test_several_coordinators_by_name(client: Client, name: str) -> None:
    assert client.call("PUT", f"/v1/coordinators/{name}", SETUP) == (200, {"created": False})
    assert client.call("GET", "/v1/coordinators")[1] == {"coordinators": ["default", name]}
    client.post("plan", {"round": 1}, name)
    assert client.call("GET", f"/v1/coordinators/{name}")[1]["planned"] == 1
    assert client.call("GET", "/v1/coordinators/default")[1]["planned"] == 0
    status, reply = client.post("plan", {"round": 1}, "defualt")
    assert (status, reply["error"]) == (
        404,
        "there is no coordinator 'defualt'; did you mean 'default'?",
    )


def test_simultaneous_repetitions_are_executed_once(port: int, client: Client, name: str) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: answers.append(Client(port).post("plan", {"round": 1}, name))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert all(answer == answers[0] for answer in answers)
    metrics = client.send("GET", "/metrics")[2]
    assert f'freshband_changes_total{{coordinator="{name}"}} 1\n' in metrics
    assert f'freshband_repeated_total{{coordinator="{name}"}} 7\n' in metrics


def test_without_a_token_a_web_page_of_another_site_reaches_nothing(client: Client) -> None:
    """A browser sends the name it was given, even where that now leads to this machine."""
    status, _, reply = client.send("GET", "/v1/coordinators", Host="evil.example:8371")
    assert status == 403
    assert "localhost" in reply["error"]
    for host in ("localhost", "127.0.0.1:80", "[::1]:80"):
        assert client.send("GET", "/v1/coordinators", Host=host)[0] == 200


def test_a_token_is_needed_for_all_but_health_and_description(catalogue: Catalogue) -> None:
    with running(create_app(catalogue, token=TOKEN)) as port:
        for wrong in (None, "another token", TOKEN[:-1], TOKEN + "x", ""):
            outsider = Client(port, wrong)
            for method, path in (
                ("GET", "/v1/coordinators"),
                ("GET", "/metrics"),
                ("POST", "/v1/coordinators/default/plan"),
                ("PUT", "/v1/coordinators/mine"),
                ("DELETE", "/v1/coordinators/default"),
                ("GET", "/nothing"),
            ):
                assert outsider.call(method, path)[0] == 401
            assert outsider.call("GET", "/health") == (200, {"status": "ok"})
        insider = Client(port, TOKEN)
        assert insider.call("GET", "/v1/coordinators")[0] == 200
        assert insider.send("GET", "/v1/coordinators", Host="gateway.example")[0] == 200


def test_the_description_names_every_path_and_field(client: Client) -> None:
    status, described = client.call("GET", "/openapi.json")
    assert status == 200
    assert described["openapi"].startswith("3.1")
    for path, item in described["paths"].items():
        for method in item.keys() & {"get", "put", "post", "delete"}:
            found, _ = client.call(method.upper(), path.replace("{name}", "nobody"), {"x": 1})
            assert found in (200, 404, 422), (method, path)
            assert found != 404 or "{name}" in path
    for name, call in CALLS.items():
        schema = described["paths"][f"/v1/coordinators/{{name}}/{name}"]["post"]["requestBody"]
        described_fields = schema["content"]["application/json"]["schema"]["properties"]
        assert described_fields.keys() == call.fields.keys()


def test_replies_hold_the_fields_described(client: Client, name: str) -> None:
    bodies = {
        "plan": {"round": 1},
        "observe": {"round": 1, "delivered": [True, False]},
        "join": {"client": "Eve"},
        "leave": {"client": "Eve"},
    }
    for call, body in bodies.items():
        assert client.post(call, body, name)[1].keys() == CALLS[call].reply.keys()


def test_metrics_are_in_prometheus_form(client: Client) -> None:
    status, kind, text = client.send("GET", "/metrics")
    assert (status, kind) == (200, "text/plain")
    sample = re.compile(r'freshband_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+')
    typed = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            typed.add(line.split()[2])
        elif not line.startswith("#"):
            assert sample.fullmatch(line), line
            family = re.sub(r"_(bucket|sum|count)$", "", re.split(r"[{ ]", line)[0])
            assert family in typed
    assert "freshband_age_mean" in typed


def test_coordinators_that_were_added_are_restored(tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    catalogue = Catalogue(state, b"key of the files")
    catalogue.open("default", SETUP)
    catalogue.add("roof", {**SETUP, "seed": 3})
    catalogue.add("cellar", SETUP)
    catalogue["roof"].answer("plan", {"round": 1})
    catalogue.remove("cellar")
    planned = catalogue["roof"].coordinator.to_bytes()
    catalogue.close()
    (tmp_path / "state.npz.d" / "gone.npz.journal").write_text("a deletion that was killed\n")
    (tmp_path / "state.npz.d" / ".freshband-0123456789abcdef.roof.npz").write_bytes(b"half writ")
    again = Catalogue(state, b"key of the files")
    again.open("default", SETUP)
    assert list(again) == ["default", "roof"]
    assert again["roof"].coordinator.to_bytes() == planned
    again.close()
    found = sorted(path.name for path in (tmp_path / "state.npz.d").glob("[!.]*"))
    assert found == ["roof.npz", "roof.npz.journal", "roof.npz.lock"]
