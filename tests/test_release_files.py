"""Workflows, the image and the templates name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_is_there(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for step in steps:
        command = step.get("run", "")
        for target in re.findall(r"\bmake ([a-z-]+)", command):
            assert target in targets
        for name in re.findall(r"(?:^|\s)((?:examples|\.ci|src)/[\w./]+)", command):
            assert (ROOT / name).exists(), name
        assert ("uses" in step) != ("run" in step)


def test_python_is_declared_as_it_is_tested() -> None:
    """Every version that is declared is run by the workflows, and no other."""
    declared = {
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name
    }
    used = {
        version
        for path in WORKFLOWS
        for version in re.findall(r'python-version: "([\d.]+)"', path.read_text())
    }
    assert declared == used
    assert re.findall(r"FROM python:([\d.]+)-", (ROOT / "Dockerfile").read_text()) == [*used] * 2


def test_templates_are_forms() -> None:
    for path in (FORGE / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.stem == "config":
            continue
        assert {"name", "description", "body"} <= form.keys()
        assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_the_security_policy_leads_to_pages_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (ROOT / target).is_file()
    assert not re.search(r"[\w.]+@[\w.]+", text)  # no address that nobody reads
