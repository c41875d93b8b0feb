"""Execute notebooks in place: ``python tools/notebook.py [NOTEBOOK.ipynb...]``.

A notebook is a JSON file (nbformat 4) of Markdown and code. Its code runs in one process, as in
Jupyter, and what it prints, the value of its last line and figures become its outputs. That is all
that pages of the documentation need, and it needs nothing but matplotlib.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def execute(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Run the code of a notebook; yield each cell of code with its outputs."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        yield cell, list(_run("".join(cell["source"]), f"cell {number}", number, scope))


def _run(source: str, name: str, number: int, scope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    tree, value = ast.parse(source, name), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, name, "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
    if printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
    if value is not None:
        yield {
            "output_type": "execute_result",
            "execution_count": number,
            "metadata": {},
            "data": {"text/plain": _lines(repr(value)), **_picture(value)},
        }


def _picture(value: Any) -> dict[str, str]:
    if not hasattr(value, "savefig"):
        return {}
    data = io.BytesIO()
    value.savefig(data, format="png", dpi=120)
    return {"image/png": base64.b64encode(data.getvalue()).decode()}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(paths: list[Path]) -> None:
    """Execute notebooks and write them with their outputs."""
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for number, (cell, outputs) in enumerate(execute(notebook), start=1):
            cell["outputs"], cell["execution_count"] = outputs, number
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or NOTEBOOKS)
