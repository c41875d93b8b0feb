"""The package stays small: no long file, and no block of code twice."""

from pathlib import Path

from tools.house import LONGEST_FILE, PACKAGE, repeated_blocks

FILES = sorted(PACKAGE.rglob("*.py"))


def test_no_file_is_too_long() -> None:
    long = {str(path): lines for path in FILES if (lines := _lines(path)) > LONGEST_FILE}
    assert long == {}


def test_no_block_of_code_stands_twice() -> None:
    assert [f"{first} and {second}" for first, second in repeated_blocks(FILES)] == []


def test_a_block_that_stands_twice_is_found(tmp_path: Path) -> None:
    block = "".join(f"x{number} = {number}\n" for number in range(9))
    (tmp_path / "one.py").write_text(f"import math\n\ny = math.pi\n{block}")
    (tmp_path / "two.py").write_text(f'"""Docstring."""\n\n{block[:20]}\n# a comment\n{block[20:]}')
    files = sorted(tmp_path.iterdir())
    [(first, second)] = repeated_blocks(files)
    assert (first.path.name, first.number, second.path.name, second.number) == (
        "one.py",
        4,
        "two.py",
        3,
    )
    assert repeated_blocks(files, longest=9) == []


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())
