"""The command line: ``adapters pack | verify | doctor | ...``."""

from __future__ import annotations

from adapters.cli.main import main

__all__ = ["main"]
