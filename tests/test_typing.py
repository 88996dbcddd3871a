"""A user's program is accepted by mypy --strict, with the types that the names really have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is in the extra test")

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "tests" / "typing" / "program.py"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory):
    """What mypy --strict says of a program."""
    cache = tmp_path_factory.mktemp("mypy")

    def said(path: Path) -> tuple[int, str]:
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", cache]
        finished = subprocess.run(
            # Of the package itself, mypy's own run in CI tells.
            [*map(str, command), "--follow-imports=silent", str(path)],
            cwd=path.parent,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=110,
        )
        return finished.returncode, finished.stdout + finished.stderr

    return said


def test_mypy_accepts_a_users_program(checked, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.read_text())
    status, said = checked(path)
    assert status == 0, said


WRONG = {
    "number: int = SafeSequence([1], workers=2).state_dict()": "assignment",
    "SafeSequence([1], shufle=True)": "call-arg",
    'SafeSequence([1], workers="many")': "arg-type",
    'pack("photos/", "train", format="tfrecord", resize="256")': "arg-type",
    "from adapters import nothing": "attr-defined",
}


def test_mypy_refuses_what_is_wrong(checked, tmp_path):
    path = tmp_path / "program.py"
    path.write_text("\n".join(["from adapters import SafeSequence, pack", *WRONG, ""]))
    status, said = checked(path)
    assert status == 1, said
    for number, (line, error) in enumerate(WRONG.items(), 2):
        told = [each for each in said.splitlines() if each.startswith(f"program.py:{number}:")]
        assert any(f"[{error}]" in each for each in told), (line, said)
