"""Write a software bill of materials: ``python tools/sbom.py OUT.json`` (CycloneDX 1.5).

It lists the package and everything in ``constraints.txt``, the set that is tested, with licences as
far as the installed packages tell.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def components() -> list[dict[str, Any]]:
    """Return the pinned packages."""
    found = []
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)
        if match is None:
            continue
        name, version = match.groups()
        part: dict[str, Any] = {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
        }
        licence = ""
        with suppress(metadata.PackageNotFoundError):
            told = metadata.metadata(name).json
            licence = str(told.get("license_expression") or told.get("license") or "")
        if licence and "\n" not in licence:
            part["licenses"] = [{"license": {"name": licence}}]
        found.append(part)
    return found


def main() -> None:
    """Write the bill."""
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": "freshband",
                "version": metadata.version("freshband"),
            }
        },
        "components": components(),
    }
    Path(sys.argv[1]).write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
