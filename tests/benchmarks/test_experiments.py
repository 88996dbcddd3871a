"""The experiments: who imports whom."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import benchmarks
from tests.test_package import imported, tree_of

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


def wrong_imports(path: Path) -> list[str]:
    """What a file imports that its room should not."""
    room = path.relative_to(PACKAGE).parts[0]
    names = [name.split(".") for name in imported(tree_of(path))]
    allowed = ALLOWED[room] | {room}
    ours = [name for name in names if name[0] in ("benchmarks", "tests")]
    return [".".join(name) for name in ours if name[0] == "tests" or name[1] not in allowed]


def missing_modules(path: Path) -> list[str]:
    """Modules that strings name, as those of programs do, and that aren't there."""
    values = [node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    return [
        text
        for text in strings
        if MODULE.fullmatch(text)
        and not PACKAGE.parent.joinpath(*text.split(".")).with_suffix(".py").is_file()
    ]


def test_imports():
    files = [path for path in FILES if path.relative_to(PACKAGE).parts[0] in ALLOWED]
    assert {path: found for path in files if (found := wrong_imports(path))} == {}


def test_modules_that_strings_name_are_there():
    assert {path: found for path in FILES if (found := missing_modules(path))} == {}
