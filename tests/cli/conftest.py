"""A command as it is typed, and something to pack."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.cli import main
from tests.packing.materials import folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folder(tmp_path / "in", 6)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command: status, output, errors."""

    def said(*words: Any) -> tuple[int, str, str]:
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return said


@pytest.fixture
def told(say: Any) -> Any:
    """Runs a command that ends with this status: its output, or its errors if it fails."""

    def words_of(*words: Any, status: int = 0) -> str:
        ended, output, errors = say(*words)
        assert ended == status, errors
        return errors if status else output

    return words_of


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command adds to the module search path goes with the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
