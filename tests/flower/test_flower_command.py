"""``freshband flower new``, and what is said where something is missing."""

import ast
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("torch")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from typer.testing import CliRunner

from freshband.cli.app import app
from freshband.errors import FileError, FreshbandError, ParameterError
from freshband.federated.uplink import DeadlineUplink, SimulatedUplink, Uplink
from freshband.flower import channel_mod, read_training
from freshband.flower._deployment import Deployment
from freshband.flower._scaffold import read_app
from freshband.flower.certificates import make_certificates, make_node_key


def run(*arguments):
    return CliRunner().invoke(app, ["flower", *map(str, arguments)])


def test_new_writes_an_app_that_flower_takes(tmp_path):
    folder = tmp_path / "My-Digits"
    done = run("new", folder, "--clients", "3", "--rounds", "5")
    assert done.exit_code == 0, done.output
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    components = project["tool"]["flwr"]["app"]["components"]
    assert components["serverapp"] == "my_digits.server_app:app"
    assert project["project"]["dependencies"] == []
    settings = read_training(project["tool"]["flwr"]["app"]["config"])
    assert (settings.clients, settings.rounds, settings.matching) == (3, 5, None)
    for path in (folder / "my_digits").glob("*.py"):
        ast.parse(path.read_text())
        assert "freshband.flower.template" not in path.read_text()
    from flwr.cli.config_utils import load_and_validate

    load_and_validate(folder / "pyproject.toml")


@pytest.mark.parametrize(
    "name", ["my digits", "a.b", "it's", 'q"r', "-a-", "a name of more than thirty-two characters"]
)
def test_new_finds_a_name_that_flower_takes(name, tmp_path):
    from flwr.cli.config_utils import load_and_validate

    folder = tmp_path / name
    done = run("new", folder)
    assert done.exit_code == 0, done.exception
    assert f"freshband flower up {shlex.quote(str(folder))}" in done.output
    load_and_validate(folder / "pyproject.toml")
    for path in folder.glob("*/*.py"):
        ast.parse(path.read_text())


@pytest.mark.parametrize("name", ["class", "1st", "..."])
def test_new_wants_a_name_that_can_be_imported(name, tmp_path):
    done = run("new", tmp_path / name)
    assert f"a name a module can have, got {name!r}" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_new_overwrites_nothing(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = run("new", tmp_path)
    assert isinstance(done.exception, FreshbandError)
    assert "something already" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_up_wants_an_app(tmp_path):
    with pytest.raises(FreshbandError, match="freshband flower new"):
        Deployment(tmp_path, 2)
    project = tmp_path / "pyproject.toml"
    for text, problem in (("[project]", "no \\[tool.flwr.app\\]"), ("nonsense", "cannot read")):
        project.write_text(text)
        done = run("up", tmp_path)
        assert isinstance(done.exception, FileError)
        assert re.search(problem, str(done.exception))
        assert "starting" not in done.output


def test_up_takes_the_number_of_clients_from_the_app(tmp_path):
    app = tmp_path / "digits"
    run("new", app, "--clients", "3")
    assert read_app(app)["clients"] == 3
    for more in (["--set", "clients=0"], ["--clients", "0"]):
        done = run("up", app, *more)
        assert "clients must be a whole number >= 1, got 0" in str(done.exception)
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("clients = 3", "clients = -3"))
    assert "got -3" in str(run("up", app).exception)


def test_up_asks_for_clients_where_the_app_has_none(tmp_path):
    """Any app of Flower's can be run: what is missing is the number of SuperNodes."""
    app = tmp_path / "digits"
    run("new", app)
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("clients = 4\n", ""))
    done = run("up", app)
    assert isinstance(done.exception, ParameterError)
    assert str(done.exception) == (
        f"the number of clients must be given: add --clients, or clients = 4 under "
        f"[tool.flwr.app.config] in {project}"
    )
    assert "starting" not in done.output


def test_up_wants_one_number_of_clients(tmp_path):
    """The app would wait for clients that nobody starts."""
    app = tmp_path / "digits"
    run("new", app)
    done = run("up", app, "--clients", "2", "--set", "clients=3")
    assert "--clients 2 and --set clients=3 must be the same number" in str(done.exception)
    assert "starting" not in done.output


@pytest.mark.parametrize("value", ["null", "[1, 2]", '{"a": 1}', "NaN"])
def test_up_takes_the_values_that_flower_takes(value, tmp_path):
    app = tmp_path / "digits"
    run("new", app)
    done = run("up", app, "--set", f"matching={value}")
    assert "--set matching must be text, a finite number, true or false" in str(done.exception)
    assert "starting" not in done.output


def test_paths_of_a_deployment_are_absolute(tmp_path, monkeypatch):
    """Its processes and the files they read name them, wherever they were given from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    run("new", "my digits")
    assert run("new", "~/more").exit_code == 0
    paths = (("my digits", "kept"), ("./my digits/../more", "~/kept"), ("~/more", "./kept"))
    for given, keep in paths:
        federation = Deployment(Path(given), 1, Path(keep))
        assert federation.app == tmp_path / Path(given).name
        assert federation.folder == tmp_path / "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["more", "my digits"]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    """It may hold the keys of another federation."""
    app, keep = tmp_path / "digits", tmp_path / "mine"
    run("new", app)
    (keep / "keys").mkdir(parents=True)
    (keep / "keys" / "client-0").write_text("mine")
    done = run("up", app, "--keep", keep)
    assert isinstance(done.exception, FileError)
    assert "give an empty folder, or one that freshband flower up wrote" in str(done.exception)
    assert [str(path.relative_to(keep)) for path in keep.rglob("*")] == ["keys", "keys/client-0"]
    assert (keep / "keys" / "client-0").read_text() == "mine"


def test_a_folder_of_an_earlier_deployment_is_used_again(tmp_path):
    app, keep = tmp_path / "digits", tmp_path / "kept"
    run("new", app)
    (keep / "flwr").mkdir(parents=True)
    (keep / "flwr" / "config.toml").write_text("")
    assert Deployment(app, 1, keep).folder == keep


def test_up_knows_the_settings_of_the_app(tmp_path):
    app = tmp_path / "digits"
    run("new", app)
    done = run("up", app, "--set", "round=3")
    assert "did you mean 'rounds'?" in str(done.exception)
    assert "starting" not in done.output
    project = app / "pyproject.toml"
    project.write_text(f"{project.read_text()}partition-options.alpha = 0.1\n")
    assert read_app(app)["partition-options.alpha"] == 0.1


def test_up_says_where_it_cannot_write(tmp_path):
    app = tmp_path / "digits"
    run("new", app)
    taken = tmp_path / "taken"
    taken.write_text("mine")
    done = run("up", app, "--keep", taken)
    assert isinstance(done.exception, FileError)
    assert "cannot write" in str(done.exception)
    assert taken.read_text() == "mine"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--client": 3}, "--client must be below --clients 3, got 3"),
        ({"--client": -1}, "client must be a whole number >= 0, got -1"),
        ({"--key": "nowhere"}, "cannot read nowhere: there is no such file"),
    ],
)
def test_node_wants_a_number_and_files(changed, message, tmp_path):
    _, public = make_node_key(tmp_path, "client-2")
    given = {"--client": 2, "--clients": 3, "--authority": public, "--key": public} | changed
    done = run("node", "127.0.0.1:1", *(part for pair in given.items() for part in pair))
    assert str(done.exception) == message


def test_without_a_command_there_is_help():
    done = run()
    assert done.exit_code == 0
    assert "Usage" in done.output
    assert "up" in done.output


def test_without_flower_it_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "import importlib.util as util; real = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'flwr' else real(name, *more)\n"
        "import freshband\n"
        "try:\n    import freshband.flower\n"
        "except freshband.errors.FreshbandError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'freshband[flower]'" in done.stdout


def test_certificates_are_what_they_should_be(tmp_path):
    made = make_certificates(tmp_path, ["fl.example.org", "10.0.0.7"])
    server = x509.load_pem_x509_certificate(made.server.read_bytes())
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert server.not_valid_after_utc - datetime.now(UTC) < timedelta(days=31)
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert not list(tmp_path.glob("ca.key"))
    private, public = make_node_key(tmp_path, "client-0")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    known = load_ssh_private_key(private.read_bytes(), None).public_key()
    assert load_ssh_public_key(public.read_bytes()) == known


def test_uplinks_keep_the_contract():
    for uplink in (SimulatedUplink("piecewise", rounds=9), DeadlineUplink(5, deadline=1.0)):
        assert isinstance(uplink, Uplink)
        assert uplink.n_channels == 5
    with pytest.raises(ParameterError, match="deadline"):
        DeadlineUplink(5, deadline=0.0)


def test_the_example_of_an_uplink_runs(capsys):
    from tests.test_examples import load

    load("flower_uplink").main()
    assert "would run: ip route replace" in capsys.readouterr().out


def test_the_mod_leaves_other_messages_alone():
    from flwr.app import Context, Message, RecordDict

    from tests.flower.playground import identify

    identify()
    seen = []
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    mod = channel_mod(on_channel=lambda channel, context: seen.append(channel))
    context = Context(1, 1, {}, RecordDict(), {})
    assert mod(message, context, lambda message, context: message) is message
    assert seen == []
