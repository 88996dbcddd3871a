"""`adapters pack` beside MXNet's im2rec.py: whole commands, as one types them.

Both resize the shorter side of 2,000 JPEG files of 500x375 to 256 pixels and write them as JPEG of
quality 95 into one RecordIO file, with as many workers. The list of files is made before the clock
starts for im2rec, which is given it, and after for ours, which looks for them. What the commands
import counts.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.data.photographs import PICTURES, Photographs
from benchmarks.harness.ratios import Contestant

SHORT = "256"  # pixels
QUALITY = "95"
# MXNet's script, with NumPy's old names lent to it while it imports MXNet.
_IM2REC = """
import runpy, sys
from adapters.gluon import import_mxnet
import_mxnet()
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def pack(photographs: Photographs, workers: int) -> Contestant:
    """Ours."""
    folder = str(photographs.paths[0].parents[1])

    def contestant() -> float:
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "adapters", "pack", folder, f"{out}/train"]
            command += ["--format", "recordio", "--resize", SHORT, "--quality", QUALITY]
            return _images_per_second([*command, "--workers", str(workers)], Path(out))

    return contestant


def im2rec(photographs: Photographs, workers: int) -> Contestant:
    """MXNet's."""
    folder = photographs.paths[0].parents[1]
    package = importlib.util.find_spec("mxnet")
    assert package is not None
    assert package.origin is not None
    script = str(Path(package.origin).parent / "tools" / "im2rec.py")

    def contestant() -> float:
        with tempfile.TemporaryDirectory() as out:
            lines = [
                f"{number}\t{label}\t{path.relative_to(folder)}\n"
                for number, (path, label) in enumerate(zip(photographs.paths, photographs.labels))
            ]
            Path(out, "train.lst").write_text("".join(lines))
            command = [sys.executable, "-c", _IM2REC, script, f"{out}/train", str(folder)]
            command += ["--resize", SHORT, "--quality", QUALITY, "--num-thread", str(workers)]
            return _images_per_second(command, Path(out))

    return contestant


def _images_per_second(command: list[str], out: Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=out)
    seconds = time.perf_counter() - started
    (index,) = out.glob("*.idx")
    assert len(index.read_text().splitlines()) == PICTURES
    return PICTURES / seconds
