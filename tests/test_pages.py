"""README and the pages in docs/: their programs run, and their links lead somewhere.

A page's programs run one after the other, beside the files that they name. Those of the short
pages and of docs/sources.md run in one process, and those of docs/recipes/ by the framework that
they need. h5py, zarr, datasets, pandas, pyarrow, grain and torch are in no extra: what needs them
runs where they are.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adapters import open_images
from adapters.cli.main import parsed
from adapters.packing import pack
from tests.contract.detection import detection, gradient, random_boxes
from tests.engine.scripts import ended
from tests.images.pictures import npy
from tests.packing.materials import folder
from tests.sources.example_files import encoded
from tests.sources.record_files import write

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = ROOT / "docs" / "sources.md"
INDEX = ROOT / "docs" / "recipes" / "README.md"
RECIPES = sorted(set(INDEX.parent.glob("*.md")) - {INDEX})
ALL = [
    *PAGES,
    INDEX,
    *RECIPES,
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
_PROGRAM = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")
# What a program imports that uses these names.
_IMPORTED_BY_NAME = {"SafeSequence": "keras", "gluon_loader": "mxnet"}


def programs(text: str) -> list[str]:
    """The programs of a page, without the indentation that a list gives them."""
    return [
        re.sub(f"^{indentation}", "", program, flags=re.MULTILINE)
        for indentation, program in _PROGRAM.findall(text)
    ]


def missing(program: str) -> list[str]:
    """Packages that a program needs, and that aren't installed."""
    needed = {"keras", *re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE)}
    needed |= {package for name, package in _IMPORTED_BY_NAME.items() if name in program}
    return sorted(name for name in needed if importlib.util.find_spec(name) is None)


def run(program: str, folder: Path, name: str = "program", backend: str = "jax") -> None:
    """Run a program in a process of its own, to its end."""
    script = folder / f"{name}.py"
    script.write_text(f"{program}\nprint('done')")
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    if importlib.util.find_spec(backend) is not None:
        environment["KERAS_BACKEND"] = backend
    finished = ended(script.name, cwd=folder, timeout=110, variables=environment)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.endswith("done\n")


def run_each(
    group: dict[str, str], tmp_path: Path, backend: str = "jax", beside: Path | None = None
) -> None:
    """Run programs in one process, each in an empty folder of its own, or beside some files."""
    lines = ["import os, runpy"]
    for title, program in group.items():
        if missing(program):
            continue
        script = tmp_path / title / "program.py"
        script.parent.mkdir()
        script.write_text(program)
        lines += [
            f"os.chdir({str(beside or script.parent)!r})",
            f"runpy.run_path({str(script)!r}, run_name='__main__')",
        ]
    if len(lines) == 1:
        pytest.skip(f"what {[*group]} need isn't installed")
    (tmp_path / "temporary").mkdir()
    lines.insert(1, f"os.environ['TMPDIR'] = {str(tmp_path / 'temporary')!r}")
    run("\n".join(lines), tmp_path, backend=backend)


_SHORT = {"concepts.md", "quickstart.md"}


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


def page_programs() -> dict[str, str]:
    """The programs of each page but docs/sources.md, as one, with what must be so after them."""
    found = {page.name: programs(page.read_text()) for page in PAGES if page != SOURCES}
    return {name: "\n".join([*each, _THEN.get(name, "")]) for name, each in found.items() if each}


def test_the_programs_of_short_pages_run(files, tmp_path):
    run_each({name: page_programs()[name] for name in _SHORT}, tmp_path, beside=files)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*page_programs()} - _SHORT))
def test_the_programs_of_a_page_run(name, files):
    program = page_programs()[name]
    if absent := missing(program):
        pytest.skip(f"{absent} aren't installed")
    run(program, files, f"programs_of_{name.removesuffix('.md')}")


# --- docs/sources.md ---

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


def sections() -> dict[str, str]:
    """The program of each section."""
    found = {}
    for section in SOURCES.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found[title] = "\n".join(programs(text))
    return found


def test_every_section_is_known_here():
    assert sorted(sections()) == sorted(SECTIONS)


@pytest.mark.full
def test_the_programs_of_sections_run(tmp_path):
    """In one process, which imports the frameworks once."""
    parts = (
        (title, before, sections()[title], after) for title, (before, after) in SECTIONS.items()
    )
    run_each({title: "\n".join(["import numpy as np", *rest]) for title, *rest in parts}, tmp_path)


# --- docs/recipes/ ---

MOST_PROGRAMS = 6
# Keras's backend for the programs of each framework. A program belongs to the first that it names.
BACKENDS = {
    "mxnet": "jax",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "keras": "jax",
    "numpy": "jax",
}


def framework(program: str) -> str:
    """The name in `BACKENDS` under which a program runs."""
    imported = set(re.findall(r"^(?:import|from) (\w+)", program, re.MULTILINE))
    if "gluon_loader" in program:
        imported.add("mxnet")
    return next(name for name in BACKENDS if name in imported)


def groups() -> Iterator[tuple[str, dict[str, str]]]:
    """Programs that run in one process, which imports their framework once."""
    found: dict[str, dict[str, str]] = {name: {} for name in BACKENDS}
    for page in RECIPES:
        for number, program in enumerate(programs(page.read_text())):
            found[framework(program)][f"{page.stem}-{number}"] = program
    for name, group in found.items():
        items = list(group.items())
        for start in range(0, len(items), MOST_PROGRAMS):
            yield name, dict(items[start : start + MOST_PROGRAMS])


@pytest.mark.full
@pytest.mark.parametrize(("name", "group"), [pytest.param(*each, id=each[0]) for each in groups()])
def test_the_programs_of_recipes_run(name, group, tmp_path):
    run_each(group, tmp_path, BACKENDS[name])


def test_the_index_names_every_recipe_once():
    text = INDEX.read_text()
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", text)) == [page.name for page in RECIPES]
    assert "recipes/README.md" in (ROOT / "docs" / "README.md").read_text()


# --- commands and links ---


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
