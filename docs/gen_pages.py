"""Write the pages that follow from the code: mkdocs runs this before it builds the site.

One page for each registered scheduler, channel model, matching, server rule and experiment, a table
of each kind, one page for each other module of the package, the commands' options and the
changelog. A new file in ``schedulers/`` gets its page here; it needs no documentation besides its
docstring.
"""

from __future__ import annotations

import ast
import base64
import importlib
import inspect
import json
import logging
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mkdocs_gen_files

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
LOG = logging.getLogger("mkdocs.gen_pages")  # a warning here fails a strict build
WHOLE = {"freshband.coordinator"}  # its class has a private base, whose members are public
RST = re.compile(r":(math|class|func|meth|mod|ref):`|^\s*\.\. (\[|math|note)|^\s*==+ ==")


@dataclass(frozen=True)
class Kind:
    """A kind of thing with a registry: where its pages go and how to specify it."""

    folder: str
    title: str
    module: str
    intro: str
    usage: str
    told: tuple[str, ...] = ()  # further columns of the table, see TOLD


KINDS = (
    Kind(
        folder="schedulers",
        title="Schedulers",
        module="freshband.schedulers.base",
        intro="A scheduler decides which channels are used in a round, and learns from the "
        "outcomes. [How to choose a scheduler](../choosing.md) compares them.",
        usage="freshband simulate --channels piecewise --policies {name} --clients 2",
        told=("assumes", "reference"),
    ),
    Kind(
        folder="channels",
        title="Channels",
        module="freshband.channels.base",
        intro="A channel model defines the air, the channel environment: the success rates "
        "and states of all channels in every round. All policies and the oracle meet the same air. "
        "With `per_client=true` some models give "
        "[every client its own links](../concepts.md#links).",
        usage="freshband simulate --channels {name} --policies glr-cucb --clients 2",
    ),
    Kind(
        folder="matchings",
        title="Matchings",
        module="freshband.matching.base",
        intro="A matching decides which client gets which of the chosen channels. Write it after "
        "a scheduler with a plus sign; without one the scheduler's own default applies.",
        usage="freshband simulate --channels piecewise --policies glr-cucb+{name} --clients 2",
    ),
    Kind(
        folder="experiments",
        title="Experiments",
        module="freshband.experiments.base",
        intro="An experiment defines what to compute, what is claimed and what to draw; "
        "[Reproduction](../reproduction.md) shows the results.\n\n"
        '??? example "Your own experiment is one file"\n\n'
        '    ```python\n    --8<-- "examples/my_experiment.py"\n    ```',
        usage="freshband reproduce {name} --scale quick --out reproduction",
    ),
    Kind(
        folder="algorithms",
        title="Server rules",
        module="freshband.federated.algorithms.base",
        intro="A server rule decides how arrived updates change the model. `average` and "
        "`eager` are wrappers, which change any rule: write them after it with a plus sign, such "
        "as `fedbuff+average`. [Training](../training.md) says more.",
        usage="freshband train --algorithm {name}",
    ),
)


def write(path: str, *lines: str, mode: str = "w") -> None:
    """Write one generated page, or add to a written one with ``mode="a"``."""
    with mkdocs_gen_files.open(path, mode) as page:
        page.write("\n".join(lines) + "\n")


def first_line(docstring: str | None) -> str:
    """Return a docstring's first line, ready for a table cell."""
    return (docstring or "").strip().partition("\n")[0].replace("|", "\\|")


def assumption(text: str) -> str:
    """Return what a docstring says that its thing assumes, up to the end of the sentence."""
    found = re.search(r"\bAssumes (.+?)[.:;](?=\s)", " ".join(text.split()))
    return found.group(1).replace("|", "\\|") if found else ""


def references(text: str) -> str:
    """Return the references of a docstring in one line."""
    return " ".join(text.partition("References\n----------\n")[2].split()).replace("|", "\\|")


TOLD = {"assumes": assumption, "reference": references}


def write_kind(kind: Kind) -> set[str]:
    """Write the pages and the table of one kind; return the modules they cover."""
    registry = importlib.import_module(kind.module).registry
    head = ["name", "what it is", *kind.told]
    table = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    covered = set()
    for name in registry:
        thing = registry[name]
        text = inspect.getdoc(thing) or ""
        cells = [
            f"[`{name}`]({name}.md)",
            first_line(text),
            *(TOLD[what](text) for what in kind.told),
        ]
        table.append(f"| {' | '.join(cells)} |")
        owner = thing if hasattr(thing, "__qualname__") else type(thing)
        covered.add(owner.__module__)
        write(
            f"{kind.folder}/{name}.md",
            f"# `{name}`",
            "",
            f"::: {owner.__module__}.{owner.__qualname__}",
            "    options:",
            "      members: false",
            "      show_bases: false",
            "      show_root_heading: false",
            "",
            "## How to use it",
            "",
            *usage(kind, name, thing, owner),
        )
    write(f"{kind.folder}/index.md", f"# {kind.title}", "", kind.intro, "", *table)
    return covered


def usage(kind: Kind, name: str, thing: Any, owner: Any) -> Iterator[str]:
    """Yield how to specify a thing, and its presets with their default matchings."""
    yield from ("```shell", kind.usage.format(name=name), "```", "")
    yield from ("```python", f"from {owner.__module__} import {owner.__qualname__}", "```", "")
    if hasattr(thing, "needs"):
        yield from (f"Needs {thing.needs()}.", "")
    presets = getattr(thing, "presets", None)
    if not isinstance(presets, Mapping) or not presets:
        return
    matchings = getattr(thing, "matchings", {})
    yield from ("| preset | typed as | matching | sets |", "| --- | --- | --- | --- |")
    for preset, values in presets.items():
        typed = f"`{name}`" if preset == "default" else f"`{name}:{preset}`"
        matching = matchings.get(preset, "age")
        link = f"[`{matching}`](../matchings/{matching}.md)"
        yield f"| {preset} | {typed} | {link} | {settings(values)} |"


def settings(values: Any) -> str:
    """Return a preset's settings as inline code, one after the other."""
    if not isinstance(values, Mapping):
        return f"`{values!r}`"
    shown = (f"`{key}={value!r}`".replace("|", "\\|") for key, value in values.items())
    return ", ".join(shown) or "the defaults"


def docstring_of(module: str) -> str | None:
    """Return a module's docstring without importing it."""
    path = SOURCES.joinpath(*module.split("."))
    source = path / "__init__.py" if is_package(module) else path.with_suffix(".py")
    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))


def public_parts() -> dict[str, list[str]]:
    """Return the package's public top-level parts, each with its public modules."""
    parts: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages([str(SOURCES / "freshband")], "freshband."):
        names = module.name.split(".")
        if not any(name.startswith("_") for name in names) and names[1] != "cli":
            parts.setdefault(".".join(names[:2]), []).append(module.name)
    return parts


def write_api(covered: set[str]) -> None:
    """Write a page for every module that has none yet, and the list of them for navigation."""
    contents = ["- [API](index.md)"]
    for part, modules in public_parts().items():
        inner = [module for module in modules if module != part and module not in covered]
        write(f"api/{part}.md", *module_page(part), *module_table(inner, part))
        for module in inner:
            write(f"api/{module}.md", *module_page(module))
        if inner:
            contents += [f"- {part}", f"    - [Overview]({part}.md)"]
            contents += [f"    - [{each.removeprefix(f'{part}.')}]({each}.md)" for each in inner]
        else:
            contents.append(f"- [{part}]({part}.md)")
    hidden = [
        f"::: {thing.__module__}.{thing.__qualname__}"
        for thing in exports("freshband").values()
        if "._" in getattr(thing, "__module__", "")
    ]  # they have no page of their own
    parts = module_table(public_parts())
    write("api/index.md", "# API", "", *exported("freshband"), *parts, "", *hidden)
    write("api/SUMMARY.md", *contents)


def module_table(modules: Iterable[str], package: str = "") -> list[str]:
    """Return a table that leads to the pages of modules, which are named within a package."""
    rows = [
        f"| [`{module.removeprefix(f'{package}.')}`]({module}.md) "
        f"| {first_line(docstring_of(module))} |"
        for module in modules
    ]
    head = ["## Modules", "", "| module | what it holds |", "| --- | --- |"]
    return [*head, *rows] if rows else []


def is_package(module: str) -> bool:
    """Return whether a module is a package."""
    return SOURCES.joinpath(*module.split(".")).is_dir()


def module_page(module: str) -> list[str]:
    """Return a module's docstring and members; of a package, the members defined in it."""
    options = ["      heading_level: 2", "      show_root_heading: false"]
    if module in WHOLE:
        options.append("      inherited_members: true")
    if is_package(module):
        own = [name for name, thing in exports(module).items() if thing.__module__ == module]
        options.append(f"      members: {own or 'false'}")
    block = [f"# `{module}`", "", f"::: {module}", "    options:", *options, ""]
    return [*block, *exported(module)] if is_package(module) else block


def exports(package: str) -> dict[str, Any]:
    """Return a package's public classes and functions by name."""
    module = importlib.import_module(package)
    found = {name: getattr(module, name, None) for name in sorted(getattr(module, "__all__", ()))}
    return {
        name: thing
        for name, thing in found.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    }


def exported(package: str) -> list[str]:
    """Return a list of a package's public classes and functions, linked to their entries."""
    listed = [
        f"- [`{package}.{name}`][{thing.__module__}.{thing.__qualname__}]: "
        f"{first_line(inspect.getdoc(thing))}"
        for name, thing in exports(package).items()
    ]
    return [*listed, ""] if listed else []


def check_docstrings() -> None:
    """Warn of reStructuredText in sources: pages are Markdown and formulas plain Unicode."""
    for path in sorted((SOURCES / "freshband").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if RST.search(line):
                LOG.warning(
                    "%s:%d: reStructuredText in a docstring; write Markdown and Unicode: %s",
                    path.relative_to(ROOT),
                    number,
                    line.strip(),
                )


def write_commands() -> None:
    """Add every command's arguments and options to the page about the command line."""
    import typer

    application = getattr(importlib.import_module("freshband.cli.app"), "app", None)
    if application is None:
        return
    commands = getattr(typer.main.get_command(application), "commands", {})
    single = {
        f"{name} {below}" if below else name: command
        for name, group in commands.items()
        for below, command in getattr(group, "commands", {"": group}).items()
    }
    lines = ["", "## All options", ""]
    for name, command in sorted(single.items()):
        lines += [f"### `freshband {name}`", "", *command_help(command.help or ""), ""]
        lines += ["| option | what it does | default |", "| --- | --- | --- |"]
        lines += [option_row(option) for option in command.params if not option.is_eager] + [""]
    write("cli.md", *lines, mode="a")


def command_help(text: str) -> Iterator[str]:
    """Yield a command's help as Markdown: rich's bold becomes Markdown's, examples become code."""
    text = re.sub(r"\[/?bold\]", "**", inspect.cleandoc(text).replace("\b", ""))
    in_code = False
    for line in text.splitlines():
        is_code = line.strip().startswith("freshband ")
        if line.strip() and is_code != in_code:
            in_code = is_code
            yield "\n```shell" if is_code else "```\n"
        if line.strip() or not in_code:
            yield line.strip()
    if in_code:
        yield "```"


def option_row(option: Any) -> str:
    """Return the table row of one command-line option."""
    typed = " ".join(f"`{name}`" for name in option.opts)
    text = re.sub(r"([\[\]|])", r"\\\1", " ".join((getattr(option, "help", "") or "").split()))
    no_default = option.default is None or callable(option.default) or option.default in ([], ())
    default = "required" if option.required else "" if no_default else f"`{option.default}`"
    return f"| {typed} | {text} | {default} |"


def write_notebooks() -> None:
    """Write a page for each executed notebook, with its outputs as they are saved."""
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        lines: list[str] = []
        pictures = 0
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                lines += [source, ""]
                continue
            lines += ["```python", source, "```", ""]
            for output in cell["outputs"]:
                data = output.get("data", {})
                if "image/png" in data:
                    pictures += 1
                    name = f"{path.stem}-{pictures}.png"
                    with mkdocs_gen_files.open(f"notebooks/{name}", "wb") as file:
                        file.write(base64.b64decode(data["image/png"]))
                    lines += [f"![What the code above draws]({name})", ""]
                    continue
                text = "".join(output.get("text") or data["text/plain"]).rstrip()
                lines += ['<div class="notebook-output" markdown>', "", "```text", text, "```"]
                lines += ["", "</div>", ""]
        lines += [
            f"The notebook itself, for Jupyter, is `docs/notebooks/{path.name}`; "
            "`python tools/notebook.py` executes it again."
        ]
        write(f"notebooks/{path.stem}.md", *lines)


def write_families() -> None:
    """Add the table of the families to the page about the arena."""
    families = importlib.import_module("freshband.arena.families").FAMILIES.values()
    rows = [
        f"| `{each.name}` | {each.about} | [`{each.channels}`](channels/{each.channels}.md) | "
        f"{settings(dict(each.options))} | {each.clients} | {each.rounds:,} | "
        f"{each.runs}, {each.full_runs} |"
        for each in families
    ]
    head = "| family | what it is | channels | with | clients | rounds | instances, in full |"
    write("arena.md", "## The families", "", head, "| --- " * 7 + "|", *rows, mode="a")


covered = set().union(*(write_kind(kind) for kind in KINDS))
write_api(covered)
write_commands()
write_notebooks()
write_families()
write("changelog.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
check_docstrings()
