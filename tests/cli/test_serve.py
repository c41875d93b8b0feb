"""``freshband serve``: token, TLS, signals, and what it refuses."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from freshband import Coordinator
from freshband.flower.certificates import make_certificates
from tests.cli.running import Shell
from tests.service.calling import Client

TOKEN = "correct horse battery staple"


def test_token_tls_and_a_graceful_end(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "tls")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "more.toml").write_text("[roof]\nn_clients = 2\nn_channels = 2\npolicy = 'cucb'")
    command = [
        *(sys.executable, "-m", "freshband", "serve", "--policy", "cucb", "--port", "0"),
        *("--clients", "3", "--channels", "4", "--state", "state.npz"),
        *("--set", "max_transmissions=2", "--set", "index_c=2.0"),
        *("--coordinators", "more.toml"),
        *("--host", "0.0.0.0", "--token-file", "token"),
        *("--tls-certificate", str(made.server), "--tls-key", str(made.key)),
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r"freshband serves default, roof on https://0.0.0.0:(\d+)\n", said)
            assert found, said
            port = int(found[1])
            trusting = ssl.create_default_context(cafile=made.authority)
            with pytest.raises(ssl.SSLCertVerificationError):  # another authority's certificate
                Client(port, TOKEN, ssl.create_default_context()).call("GET", "/health")
            client = Client(port, TOKEN, trusting)
            assert Client(port, "a wrong token", trusting).post("plan", {"round": 1})[0] == 401
            assert client.call("GET", "/v1/coordinators")[1] == {
                "coordinators": ["default", "roof"]
            }
            status, plan = client.post("plan", {"round": 1})
            assert (status, sum(channel >= 0 for channel in plan["channels"])) == (200, 2)
            del client  # over TLS, the end waits some seconds for those that are connected
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    coordinator = Coordinator.load(tmp_path / "state.npz")
    assert coordinator.pending is not None
    assert coordinator.pending.tolist() == plan["channels"]
    assert coordinator.policy.options["index_c"] == 2.0
    assert Coordinator.load(tmp_path / "state.npz.d" / "roof.npz").n_clients == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--host", "0.0.0.0"], "host '0.0.0.0' can be reached by others: give a token"),
        (["--host", "no.such.host.invalid"], "host 'no.such.host.invalid' is not known"),
        (["--tls-key", "key.pem"], "TLS needs a certificate and its private key"),
        (["--tls-key", "k.pem", "--tls-certificate", "c.pem"], "cannot use the certificate c.pem"),
        (["--token-file", "nothing"], "cannot read nothing: No such file"),
        (["--token-file", "short"], "the token must have at least 16 bytes, got 5"),
        (["--port", "-1"], "port must be a whole number >= 0, got -1"),
        (["--port", "99999"], "port must be at most 65535, got 99999"),
        (["--max-body", "0"], "max_body must be a whole number >= 1"),
        (["--set", "maxdelay=3"], "has no parameter 'maxdelay'"),
        (["--set", "seed=3", "--set", "seed=4"], "each key once"),
        (["--name", "a/b"], "the name of a coordinator must be"),
        (["--state", "missing.npz/state.npz"], "cannot write missing.npz/state.npz"),
        (["--coordinators", "short"], "short is not TOML"),
        (["--policy", "bayess"], "did you mean 'bayes'"),
    ],
)
def test_what_it_refuses(shell: Shell, arguments: list[str], text: str) -> None:
    Path("short").write_text("short")
    Path("missing.npz").write_text("a file, not a folder")
    done = shell(
        "serve", *(["--policy", "cucb"] if "--policy" not in arguments else []), *arguments
    )
    assert done.code == 2
    assert text in done.err
    assert done.err.count("\n") == 1
