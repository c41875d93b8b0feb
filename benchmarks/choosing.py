"""Write what the arena says into the page "Which scheduler should I use?".

freshband arena --out DIR && python -m benchmarks.choosing DIR
"""

from __future__ import annotations

import argparse
from pathlib import Path

import xarray as xr

from freshband._default import DEFAULT_POLICY
from freshband.arena import load_arena
from freshband.arena.result import read_config
from freshband.reporting.arena import as_markdown, families, not_run, ranking

PAGE = Path(__file__).parent.parent / "docs" / "choosing.md"
BEGIN, END = "<!-- arena: begin -->\n", "<!-- arena: end -->\n"
BOUND = 1.05  # how far the default may be behind the best policy of a family


def exceptions(result: xr.Dataset) -> list[str]:
    """Return the families in which the default is further behind the best policy than the bound."""
    means = result.mean_age.mean("run")
    ratio = means.sel(policy=DEFAULT_POLICY) / means.min("policy")
    return [
        f"- `{family}`: {float(behind):.3f} times the mean age of `{best}`"
        for family, behind, best in zip(
            map(str, ratio.family.values),
            ratio.values,
            means.fillna(float("inf")).idxmin("policy").values,
            strict=True,
        )
        if behind > BOUND
    ]


def section(result: xr.Dataset) -> str:
    """Return the section as Markdown."""
    config = read_config(result)
    how = "full" if config["full"] else "default"
    parts = [
        f"{result.sizes['policy']} policies, {result.sizes['family']} families, seed "
        f"{config['seed']}, {how} size; freshband {result.attrs['freshband']}.",
        as_markdown(ranking(result)).rstrip(),
        as_markdown(families(result)).rstrip(),
    ]
    if DEFAULT_POLICY in result.policy.values:
        behind = exceptions(result)
        told = f"The default, `{DEFAULT_POLICY}`, has at most {BOUND} times the best mean age in "
        parts.append(f"{told}every family." if not behind else f"{told}all families but these:")
        parts += ["\n".join(behind)] if behind else []
    if slow := not_run(result):
        parts.append("Too slow for the time limit, and so not run:")
        parts.append("\n".join(f"- {line}" for line in slow))
    return "\n\n".join(parts) + "\n"


def fill(page: str, text: str) -> str:
    """Return the page with the text between its marks."""
    before, begun, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise SystemExit(f"{PAGE} has lost its marks {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    """Rewrite the section of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what freshband arena --out wrote")
    result = load_arena(parser.parse_args().folder / "arena.nc")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), section(result)), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
