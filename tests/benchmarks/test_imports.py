"""The benchmarks' folders: who imports whom, and that what is named is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import benchmarks
from tests.test_package import imported

PACKAGE = Path(benchmarks.__file__).parent
# Without those of results, which anything may lie in.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "results" not in path.parts)
# Which rooms a room may look into, besides itself. What lies in none of them, the tests and their
# conftest, may look into all; and so may the lab, which none of them may look into.
ALLOWED = {
    "harness": set(),
    "data": set(),
    "peers": {"data", "harness"},
    "experiments": {"data", "harness", "peers"},
}
MODULE = re.compile(r"benchmarks(\.\w+)+")


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def wrong_imports(room: str, source: str) -> list[str]:
    """What a file of this room imports and should not."""
    names = [name.split(".") for name in imported(source)]
    allowed = ALLOWED[room] | {room}
    ours = [name for name in names if name[0] in ("benchmarks", "tests")]
    return [".".join(name) for name in ours if name[0] == "tests" or name[1] not in allowed]


def missing_modules(source: str) -> list[str]:
    """Modules that strings name, as those of programs do, and that aren't there."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [
        text
        for text in strings
        if MODULE.fullmatch(text)
        and not PACKAGE.parent.joinpath(*text.split(".")).with_suffix(".py").is_file()
    ]


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in ALLOWED], ids=name_of)
def test_a_file_imports_only_what_its_room_may(path):
    assert wrong_imports(room_of(path), path.read_text()) == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_modules_that_strings_name_are_there(path):
    assert missing_modules(path.read_text()) == []
