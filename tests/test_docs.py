"""The pages in docs/: every program in them runs, beside the files that it names.

Each runs in a process of its own, where its libraries are installed. None but MXNet is in an extra:
h5py, zarr, datasets, pandas, pyarrow, grain and torch are tested where they are.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "sources.md"

# What makes the files that a section's program reads, and what is claimed of the loaders it makes.
_CLICKS = """
columns = {"price": np.arange(100.0), "age": np.arange(100) % 7, "clicked": np.arange(100) % 2}
"""
_OF_BOTH = """
x, y = next(iter(sequence))
assert len(x) == len(y)
assert len(sequence) * 64 >= len(train) > len(test)
x, y = next(iter(loader))
assert type(x).__name__ == "NDArray" and len(x) == len(y)
"""
SECTIONS = {
    "Select, split, concatenate": (
        "",
        "assert [len(part) for part in (train, validation, test)] == [800, 100, 100]\n"
        "assert len(few) == len(range(0, 900, 7)) == sum(len(y) for _, y in sequence)\n"
        "assert next(iter(loader))[0].shape == (32, 8)",
    ),
    "Arrays on the disk": (
        "import h5py\n"
        "with h5py.File('train.h5', 'w') as made:\n"
        "    made.create_dataset('x', data=np.zeros((200, 4, 4), 'u1'), chunks=(16, 4, 4))\n"
        "np.save('labels.npy', np.arange(200) % 10)",
        _OF_BOTH,
    ),
    "zarr": (
        "import zarr\n"
        "made = zarr.open_group('train.zarr', mode='w')\n"
        "made['x'], made['y'] = np.zeros((200, 4, 4), 'u1'), np.arange(200)",
        "x, y = next(iter(sequence))\n"
        "assert x['image'].shape == (64, 4, 4) and y.shape == (64,)\n"
        "assert next(iter(loader))[0].shape == (64, 4, 4)",
    ),
    "Hugging Face datasets": (
        "import datasets\n"
        "image = datasets.Array3D((4, 4, 3), 'uint8')\n"
        "features = datasets.Features({'image': image, 'label': datasets.Value('int64')})\n"
        "pixels = np.zeros((100, 4, 4, 3), 'u1')\n"
        "made = {'image': pixels, 'label': np.arange(100) % 5}\n"
        "datasets.Dataset.from_dict(made, features).to_parquet('train.parquet')",
        _OF_BOTH + "assert train.fetches_many and x.shape == (64, 4, 4, 3)",
    ),
    "pandas": (
        _CLICKS + "import pandas\npandas.DataFrame(columns).to_csv('clicks.csv')",
        "assert next(iter(sequence))[0].shape == next(iter(loader))[0].shape == (80, 2)\n"
        "assert set(named[0][0]) == {'price', 'age'}",
    ),
    "Arrow": (
        _CLICKS + "import pyarrow.parquet\n"
        "pyarrow.parquet.write_table(pyarrow.table(columns), 'clicks.parquet')",
        "x, y = next(iter(sequence))\n"
        "assert set(x) == {'price', 'age'} and len(y) == 80\n"
        "assert next(iter(loader))[0].shape == (100,)",
    ),
    "Grain": (
        "from adapters import RecordWriter\n"
        "with RecordWriter('numbers.rec', format='recordio') as writer:\n"
        "    for number in range(100):\n"
        "        writer.write(str(number).encode())",
        _OF_BOTH + "assert (y == 2 * x).asnumpy().all()",
    ),
    "PyTorch": ("", _OF_BOTH + "assert [len(each) for each in next(iter(torchs))] == [64, 64]"),
}
# Keras's backends in the order of the time that importing them takes.
_BACKENDS = ("jax", "torch", "tensorflow")
_PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs() -> dict[str, str]:
    """The program of each section."""
    sections = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        sections[title] = "\n".join(_PROGRAM.findall(text))
    return sections


def imports(program: str) -> set[str]:
    """Packages that a program imports."""
    return set(re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE))


def test_every_program_of_the_page_is_known_here():
    assert sorted(programs()) == sorted(SECTIONS)
    assert PAGE.read_text().count("```python") == len(SECTIONS)


@pytest.mark.parametrize("title", SECTIONS)
def test_a_program_runs(title, tmp_path):
    program = programs()[title]
    needed = imports(program) | ({"mxnet"} if "gluon_loader" in program else set())
    for package in sorted({*needed, "keras"}):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} isn't installed")
    before, after = SECTIONS[title]
    lines = ["import numpy as np", before, program, after, "print('done')"]
    backend = next(name for name in _BACKENDS if importlib.util.find_spec(name) is not None)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "KERAS_BACKEND": backend,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
    }
    (tmp_path / "program.py").write_text("\n".join(lines))
    finished = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (finished.returncode, finished.stdout) == (0, "done\n"), finished.stderr
