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
