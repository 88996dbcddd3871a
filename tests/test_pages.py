"""README and the pages in docs/: their programs run, and their links lead somewhere.

A page's programs run one after the other in one process, beside the files that they name.
``test_docs.py`` runs those of docs/sources.md, which need other libraries, and ``test_recipes.py``
those of docs/recipes/.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adapters import open_images
from adapters.cli.main import parsed
from adapters.packing import pack
from tests.contract.detection import detection, gradient, random_boxes
from tests.images.pictures import npy
from tests.packing.materials import folder
from tests.sources.example_files import encoded
from tests.sources.record_files import write

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL = [
    *PAGES,
    *sorted((ROOT / "docs" / "recipes").glob("*.md")),
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
# What must be so when its programs have run.
_THEN = {
    "README.md": "assert train[0][0].shape[1:] == (224, 224, 3) == decode.shape",
    "concepts.md": "assert state == {'epoch': 1, 'batch': 1} and len(train) == 10",
    "cluster.md": "assert manifest.packed == 6\nclient.close()\ncluster.close()",
    "folders.md": "assert train[0][0].shape[1:] == (224, 224, 3)",
    "gluon.md": "assert data.shape[1:] == (1, 28, 28) and len(loader) == 94",
    "keras.md": "assert len(train) == 94",
    "quickstart.md": "assert len(held_out) == 3 and train[0][0].shape == (3, 64, 64, 3)",
    "storage.md": "assert images.shape[1:] == (64, 64, 3) and cache.used > 0\n"
    "assert train[0][0].shape[1:] == (64, 64, 3) and type(photos[0][1]) is int",
    "records.md": "assert records[0][0].shape == (28, 28, 1)\n"
    "assert images.shape == (4, 128, 128, 3) and targets['boxes'].shape[::2] == (4, 4)",
}
# What a page that names something is skipped without.
_NEEDED = {
    "keras": "SafeSequence",
    "mxnet": "gluon_loader",
    "distributed": "LocalCluster",
    "fsspec": "import fsspec",
}
_PROGRAM = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


def programs(page: Path) -> list[str]:
    """Those of a page, without the indentation that a list gives them."""
    return [
        re.sub(f"^{indentation}", "", text, flags=re.MULTILINE)
        for indentation, text in _PROGRAM.findall(page.read_text())
    ]


_SHORT = {"concepts.md", "gluon.md", "quickstart.md", "records.md"}


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {"#" + title.replace(" ", "-") for title in kept}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name."""
    here = tmp_path_factory.mktemp("files")
    folder(here / "photos")
    for part in ("images", "masks"):
        folder(here / "street" / part)
    photos = open_images(here / "photos").select([0, 1, 2] * 40)
    pack(photos, here / "train-00000.tfrecord", format="tfrecord")
    payloads = [
        encoded({"image": [np.full(784, number, np.uint8).tobytes()], "label": [number % 10]})
        for number in range(20)
    ]
    boxes = random_boxes(np.random.default_rng(0), 12).reshape(4, 3, 4)
    image = npy(gradient(90, 120))
    found = [detection(image, each[:count]) for count, each in enumerate(boxes)]
    write(here / "detection-00000.tfrecord", "tfrecord", found)
    for name in ("train", "digits"):
        write(here / f"{name}.tfrecord", "tfrecord", payloads)
    return here


@pytest.mark.spread
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in _SHORT else pytest.mark.full)
        for page in PAGES
        if programs(page) and page.name != "sources.md"
    ],
    ids=str,
)
def test_the_programs_of_a_page_run(page, files):
    program = "\n".join(programs(page))
    for package, name in _NEEDED.items():
        if name in program and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} isn't installed")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if importlib.util.find_spec("jax") is not None:
        environment["KERAS_BACKEND"] = "jax"
    script = files / f"programs_of_{page.stem.lower()}.py"
    script.write_text("\n".join([program, _THEN.get(page.name, ""), "print('done')"]))
    finished = subprocess.run(
        [sys.executable, script.name],
        cwd=files,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.endswith("done\n")


def commands(page: Path) -> list[list[str]]:
    """The words of the commands of this package in a page's blocks that are no programs."""
    blocks = re.findall(
        r"^ *```(?:bash|sh)?\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL
    )
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("adapters ")]


def test_the_commands_of_the_pages_have_options_that_there_are():
    found = [words for page in PAGES for words in commands(page)]
    assert len(found) >= 3
    for words in found:
        assert parsed(words)[1].command == words[0]


@pytest.mark.parametrize("page", ALL, ids=str)
def test_links_lead_somewhere(page):
    for path, anchor in _LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), path + anchor
