"""What the package asks for, and the exact versions it is tested with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PUBLISHED = {
    str(requirement): requirement
    for some in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in map(Requirement, some)
    if requirement.name != "freshband"
}
TESTED = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
}
LOCKED = re.findall(
    r"^(\S+)==(\S+)[^\\\n]*((?:\\\n *--hash=sha256:[0-9a-f]{64} ?)*)$",
    (ROOT / "requirements.lock").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize("wanted", PUBLISHED.values(), ids=PUBLISHED)
def test_a_published_requirement_is_a_range_that_holds_the_tested_version(
    wanted: Requirement,
) -> None:
    assert not [one for one in wanted.specifier if one.operator in ("==", "===", "~=")]
    assert TESTED[canonicalize_name(wanted.name)] in wanted.specifier


def test_the_lock_has_the_tested_versions_and_a_hash_of_each_package() -> None:
    locked = {canonicalize_name(name): version for name, version, hashes in LOCKED if hashes}
    assert len(locked) == len(LOCKED)
    assert TESTED.items() <= locked.items()
