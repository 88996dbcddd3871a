"""docs/reference.md is what the docstrings say, and names all that is public."""

from __future__ import annotations

import runpy
from pathlib import Path

import adapters

ROOT = Path(__file__).parents[1]
MADE = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
PAGE = ROOT / "docs" / "reference.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == MADE["page"](), "run: python docs/make_reference.py"


def test_every_public_name_has_its_part():
    headings = {
        line.removeprefix("### ") for line in PAGE.read_text().splitlines() if "### " in line
    }
    assert {name for name in adapters.__all__ if name != "__version__"} <= headings


def test_names_of_a_face_have_theirs_and_two_of_one_name_are_told_apart():
    parts = PAGE.read_text().split("\n### ")
    keras = next(part for part in parts if part.startswith("adapters.keras.Resume\n"))
    gluon = next(part for part in parts if part.startswith("adapters.gluon.Resume\n"))
    assert "loader: DataLoader" in gluon
    assert "loader: DataLoader" not in keras
    assert any(part.startswith("adapters.keras.Watch\n") for part in parts)


DOCSTRING = """One ``line``.

Args:
    a: First,
        on.
    *b: Second.

More.

Example:
    >>> 1
    1
"""
MARKDOWN = """One `line`.

**Args**

- `a`: First, on.
- `*b`: Second.

More.

```pycon
>>> 1
1
```"""


def test_a_docstring_becomes_markdown():
    assert MADE["rendered"](DOCSTRING) == MARKDOWN
