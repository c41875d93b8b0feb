"""``freshband check``: whether a file of one's own keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from freshband.errors import FileError, FreshbandError


def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.py...", help="Files that register schedulers.")
    ],
) -> None:
    """Check the schedulers of your own files, and print what is wrong, one line each.

    Every scheduler that a file registers is played as plain Python, with several
    numbers of clients and channels, and then compiled. The line names what broke:
    two clients on one channel, a channel that does not exist, an 'update' without
    'return', a number in a state in place of an array, no 'means' for '+aa',
    parameters without presets, or what the compiler does not understand. The exit
    code is 1 if anything is wrong.

    [bold]Examples[/bold]

      freshband check my_scheduler.py

      freshband --import my_scheduler.py arena --family stationary
    """
    wrong = 0
    for path in files:
        for line, is_problem in _read(path):
            typer.echo(f"{path}: {line}")
            wrong += is_problem
    if wrong:
        raise typer.Exit(1)


def _read(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield lines about a file, each with whether it is a problem."""
    from freshband._plugins import import_file
    from freshband.contract import scheduler_problems
    from freshband.schedulers.base import registry

    if not path.is_file():
        raise FileError(f"cannot check {path}: no such file")
    try:
        import_file(path)
    except FreshbandError as error:
        yield str(error), True
        return
    own = [name for name in registry if registry[name].__module__ == path.stem]
    if not own:
        yield "it registers no scheduler: decorate one with @register('name')", True
    for name in own:
        typer.echo(f"playing {name}, in plain Python and compiled", err=True)
        found = [*scheduler_problems(name), *_missing_presets(registry[name])]
        yield from ((f"{name}: {problem}", True) for problem in found)
        if not found:
            yield f"{name}: keeps the contract", False


def _missing_presets(kind: Any) -> list[str]:
    """Return a line about parameters that no preset sets: nobody could name the settings."""
    fields = list(getattr(kind, "model_fields", {}))
    if not fields or set(kind.presets) != {"default"}:
        return []
    return [
        f"it has parameters ({', '.join(fields)}), but no presets: name settings, such as "
        f'presets: ClassVar[Presets] = {{"bold": {{"{fields[0]}": ...}}}}'
    ]
