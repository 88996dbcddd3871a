"""The command line: ``adapters pack | index | verify | convert | inspect``."""

from __future__ import annotations

from adapters.cli.main import main

__all__ = ["main"]
