"""Results of the arena as tables, for a terminal, a paper, a program or a page, and as curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from freshband._default import DEFAULT_POLICY
from freshband.arena.result import (
    behind_best,
    best_of,
    count_wins,
    rank_policies,
    read_config,
    summarise_arena,
)
from freshband.reporting._numbers import MISSING, Table, latex_table, number, with_digits
from freshband.reporting.curves import _styles_of
from freshband.statistics import mean_and_error

_LABELS: Final = {"regret": "AoI regret", "age": "mean age so far"}
_COLUMNS: Final = (
    "family", "policy", "mean_age", "mean_age_se", "regret", "regret_se", "ns_per_round",
    "behind_best", "behind_best_margin",
)  # of the CSV file  # fmt: skip


def ranking(result: xr.Dataset) -> Table:
    """Return the policies in the order of their mean rank over the families."""
    ranks, wins = rank_policies(result), count_wins(result)
    names = [str(name) for name in result.policy.values]
    means = result.mean_age.mean("run")
    ratio = means / means.min("policy")
    rows = []
    for name, rank in ranks.items():
        place, own = names.index(name), ratio.sel(policy=name)
        known = own[~own.isnull()]
        worst = str(known.idxmax("family").item()) if known.size else MISSING
        speed = float(np.nanmedian(result.ns_per_round.sel(policy=name)))
        rows.append(
            [
                name,
                with_digits(rank, 1),
                f"{wins[place].sum():,}",
                f"{wins[:, place].sum():,}",
                with_digits(float(known.max()), 2) if known.size else MISSING,
                worst,
                str(int(own.isnull().sum())),
                f"{speed:,.0f}",
            ]
        )
    head = ["policy", "mean rank", "wins", "losses", "worst ratio", "there", "not run", "ns/round"]
    return Table("Policies by their mean rank over the families", head, rows)


def families(result: xr.Dataset) -> Table:
    """Return the families with their best policy, and how far the default one is behind it."""
    about = read_config(result)["about"]
    default = DEFAULT_POLICY if DEFAULT_POLICY in result.policy.values else None
    rows = []
    for name in map(str, result.family.values):
        best = best_of(result, name)
        if best is None:
            rows.append([name, about[name], *[MISSING] * (3 if default else 2)])
            continue
        row = [name, about[name], best, _age(result, name, best)]
        if default is not None:
            means = result.mean_age.sel(family=name).mean("run")
            row.append(with_digits(float(means.sel(policy=default) / means.min()), 3))
        rows.append(row)
    head = ["family", "what it is", "best", "its mean age"]
    head += [] if default is None else [f"{default} over best"]
    return Table("Families and their best policies", head, rows, words=True)


def ages(result: xr.Dataset) -> Table:
    """Return the mean age of every policy in every family, with standard errors."""
    policies = list(rank_policies(result))
    rows = [
        [name, *(_age(result, name, policy) for policy in policies)]
        for name in map(str, result.family.values)
    ]
    return Table("Mean age ± standard error", ["family", *policies], rows)


def _age(result: xr.Dataset, family: str, policy: str) -> str:
    """Return a mean age, or the time per round of a policy that was too slow to be run."""
    one = result.sel(family=family, policy=policy)
    found = mean_and_error(one.mean_age.values)
    if found is None:
        return f"not run, {float(one.ns_per_round):,.0f} ns per round"
    return number(found["mean"], found["se"])


def not_run(result: xr.Dataset) -> list[str]:
    """Return a line for each policy that was too slow for a family."""
    return [
        f"{policy} was not run on {family}: {float(speed):,.0f} ns per round"
        for family, row in zip(result.family.values, result.ns_per_round.values, strict=True)
        for policy, speed in zip(result.policy.values, row, strict=True)
        if bool(result.mean_age.sel(family=family, policy=policy).isnull().all())
    ]


def wins(result: xr.Dataset) -> Table:
    """Return in how many families each policy of a row beats each policy of a column."""
    names, counts = [str(name) for name in result.policy.values], count_wins(result)
    order = [names.index(name) for name in rank_policies(result)]
    rows = [
        [names[i], *(MISSING if i == j else f"{counts[i, j]}–{counts[j, i]}" for j in order)]
        for i in order
    ]
    title = "Families won and lost, row against column (paired 95 % intervals)"
    return Table(title, ["policy", *(names[j] for j in order)], rows)


def as_csv(result: xr.Dataset) -> str:
    """Return a line for each family and policy; empty cells are unknown."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(_COLUMNS)
    summary = summarise_arena(result)
    for family, found in summary["families"].items():
        for policy, row in found["policies"].items():
            cells = [
                (row[measure] or {}).get(part)
                for measure in ("mean_age", "regret")
                for part in ("mean", "se")
            ]
            behind = behind_best(result, family, policy)
            known = ["" if math.isnan(value) else value for value in behind]
            write([family, policy, *cells, row["ns_per_round"], *known])
    return out.getvalue()


def as_latex(result: xr.Dataset) -> str:
    """Return the mean ages as a table for LaTeX, the best of each family in bold (booktabs)."""
    table = ages(result)
    rows = []
    for family, *cells in table.rows:
        told = [MISSING if cell.startswith("not run") else cell for cell in cells]
        best = best_of(result, family)
        if best is not None:
            place = table.head.index(best) - 1
            told[place] = f"[bold]{told[place]}[/bold]"
        rows.append([family, *told])
    return latex_table(table.head, rows, (r"\toprule", r"\midrule", r"\bottomrule"))


def as_markdown(*tables: Table) -> str:
    """Return tables in Markdown, with the names in the first column as code."""
    parts = []
    for table in tables:
        lines = [
            "| " + " | ".join(table.head) + " |",
            "| --- |" + "".join(_align(cells) for cells in list(zip(*table.rows, strict=True))[1:]),
            *(f"| `{row[0]}` | " + " | ".join(row[1:]) + " |" for row in table.rows),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _align(cells: Sequence[str]) -> str:
    """Return the alignment of a column: numbers on the right."""
    numbers = all(cell == MISSING or cell[:1].isdigit() for cell in cells)
    return " ---: |" if numbers else " --- |"


def draw_arena(result: xr.Dataset, measure: str = "regret") -> Figure:
    """Draw a measure over rounds, ``"regret"`` or ``"age"``: a small picture for each family."""
    read_config(result)
    names = [
        str(name)
        for name in result.family.values
        if bool(result[f"{measure}_curve"].sel(family=name).notnull().any())
    ]
    columns = min(4, max(1, len(names)))
    rows = max(1, math.ceil(len(names) / columns))
    figure = Figure(figsize=(4 * columns, 2.8 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, axis in enumerate(axes):
        if place >= len(names):
            axis.set_axis_off()
            continue
        part = result.sel(family=names[place])
        for policy, style in _styles_of(result.policy.values).items():
            one, x = part.sel(policy=policy), part["round"].values
            middle, error = (one[f"{measure}_curve{end}"].values for end in ("", "_se"))
            axis.plot(x, middle, linewidth=1.2, label=policy, **style)
            edges = middle - error, middle + error
            axis.fill_between(x, *edges, color=style["color"], alpha=0.15, lw=0)
        axis.set_title(names[place], fontsize=9)
        axis.set_xlabel("round", fontsize=8)
        axis.set_ylabel(_LABELS[measure], fontsize=8)
        axis.tick_params(labelsize=7)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
    return figure
