"""Each command that takes its time says on a terminal what goes on, and how long it will take."""

from __future__ import annotations

import io
import re
import sys

import pytest

from adapters.cli import main
from adapters.cli.progress import bar
from tests.packing.materials import folder


class Terminal(io.StringIO):
    """Standard error, as if somebody looked at it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What is shown."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


SCRIPT = """
import numpy as np
from adapters import SafeSequence
import keras
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(SafeSequence((np.zeros((640, 4)), np.zeros((640, 1))), 64), verbose=0)
"""


def test_a_bar_says_what_is_done_of_how_much(terminal):
    with bar("verify", "record") as progress:
        for done in range(1, 4):
            progress(done, 10)
        progress(1, 20)  # The next file
    shown = terminal.getvalue()
    assert "verify:  10%" in shown
    assert re.search(r"1/10 \[.*record", shown)
    assert "/20" in shown


def test_without_a_terminal_nothing_is_shown(capsys):
    with bar("verify") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_pack_index_and_verify_show_theirs(terminal, tmp_path, capsys):
    folder(tmp_path / "photos")
    out = str(tmp_path / "train")
    assert main(["pack", str(tmp_path / "photos"), out, "--format", "recordio"]) == 0
    written = str(next(tmp_path.glob("train*.rec")))
    assert main(["index", written]) == 0
    assert main(["verify", written]) == 0
    for name, unit in (("pack", "picture"), ("index", "file"), ("verify", "record")):
        assert re.search(rf"{name}: .*{unit}", terminal.getvalue()), name


def test_tune_shows_its_own(terminal, tmp_path, capsys):
    pytest.importorskip("keras", reason="Keras is an extra")
    program = tmp_path / "data.py"
    program.write_text(
        "import numpy as np\nfrom adapters import SafeSequence\n"
        "train = SafeSequence(np.zeros((100, 4)), 10)\n"
    )
    assert main(["tune", f"{program}:train", "--seconds", "0.01", "--rounds", "1"]) == 0
    assert re.search(r"tune: .*measurement", terminal.getvalue())


def test_the_doctor_shows_its_rounds(terminal, tmp_path, capsys):
    pytest.importorskip("keras", reason="Keras is an extra")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    assert main(["doctor", "--seconds", "0.05", str(script)]) == 0
    assert re.search(r"doctor: .*/3 \[.*round", terminal.getvalue())
