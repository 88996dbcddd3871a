"""The pictures of the Caltech-256 experiment: the real ones where they lie, else pictures made.

Looked for under `--data-dir` and in Keras's cache, as the folder that the archive unpacks to::

    256_ObjectCategories/001.ak47/001_0001.jpg, ...      257 classes, 30,607 pictures

Where it isn't, pictures are made once, into the cache folder: parts of ten photographs, each a
class, whose sizes are drawn from a model of the real ones' spread. Either kind is packed once, the
shorter side resized to 256 pixels, which is what the experiment calls preprocessed out of band.
Rows only read; `find_pictures` runs in the harness.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adapters import pack
from benchmarks.data.cache import made_once
from benchmarks.data.photographs import find_photographs

FOLDER = "256_ObjectCategories"
MADE = 2_000
# The model: logarithms of width and aspect are normal. The real data set has 1.2 GB in 30,607
# files, 39 KB each, and sides of less than 100 to nearly 8,000 pixels.
MEDIAN_WIDTH, MEDIAN_HEIGHT = 370, 325  # pixels
SIGMA_SIDE, SIGMA_ASPECT = 0.5, 0.25
LEAST_SIDE, MOST_SIDE = 100, 2_500  # pixels
QUALITY = 92  # of the JPEG files; makes them 39 KB on average
LEAST_WIDTH = 0.6  # of a picture, as a part of the widest that its photograph has room for
SHORT_SIDE = 256  # pixels, of the packed pictures
SEED = 256

SUBSTITUTE = (
    f"{MADE:,} pictures made of ten photographs, passed over again and again; the spread of their "
    f"sizes is modelled after Caltech-256: median {MEDIAN_WIDTH}x{MEDIAN_HEIGHT}, a tenth wider "
    "than 700 pixels"
)


@dataclass(frozen=True)
class Pictures:
    """Where the pictures lie, and what every table calls them.

    Args:
        name: For the tables.
        folder: Has a folder for each class, with the JPEG files.
        packed: The same, smaller, in record files; a glob.
    """

    name: str
    folder: Path
    packed: str


def find_pictures(data_dir: Path | None = None) -> Pictures:
    """The real Caltech-256 where it is found, else pictures made now if they aren't in the cache.

    Args:
        data_dir: A folder that has `256_ObjectCategories`, or is it.
    """
    keras_home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    for place, root in (("under --data-dir", data_dir), ("", keras_home / "datasets")):
        found = None if root is None else _folder_in(root)
        if found is not None:
            name = f"Caltech-256 {place}".strip()
            return Pictures(name, found, _packed(found))
    made = made_once("caltech-pictures-1", _make_pictures)
    return Pictures(SUBSTITUTE, made, _packed(made))


def files_in(folder: Path) -> list[tuple[str, int]]:
    """Paths of the JPEG files and their labels, sorted; classes are numbered by name."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    return [
        (str(path), label)
        for label, each in enumerate(classes)
        for path in sorted(each.glob("*.jpg"))
    ]


class Encoded:
    """What `pack` is given: the files' bytes and labels.

    Args:
        files: Paths and labels.
    """

    def __init__(self, files: Sequence[tuple[str, int]]) -> None:
        self._files = files

    def __len__(self) -> int:
        """Number of files."""
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """(JPEG, label)."""
        path, label = self._files[number]
        return Path(path).read_bytes(), label


def _folder_in(root: Path) -> Path | None:
    """The data set's folder, also where torchvision unpacks it."""
    for folder in (root / FOLDER, root / "caltech256" / FOLDER, root):
        if next(folder.glob("001.*/*.jpg"), None) is not None:
            return folder
    return None


def _packed(folder: Path) -> str:
    """The glob of the record files, packed now if they aren't in the cache."""
    files = files_in(folder)
    digest = hashlib.sha256(str(folder.resolve()).encode())
    for path, _ in files:
        digest.update(f"{path} {os.path.getsize(path)}\n".encode())

    def make(out: Path) -> None:
        # Of some 30,000 files of the real data set, one that is no image must not end it all.
        pack(Encoded(files), out / "train", format="tfrecord", resize=SHORT_SIDE, on_error="skip")

    cached = made_once(f"caltech-packed-1-{digest.hexdigest()[:12]}", make)
    return str(cached / "train-*.tfrecord")


def _make_pictures(folder: Path) -> None:
    import cv2

    photographs = find_photographs()
    rng = np.random.default_rng(SEED)
    for number, chosen in enumerate(rng.permutation(len(photographs.paths))[:MADE].tolist()):
        picture = cv2.imread(str(photographs.paths[chosen]), cv2.IMREAD_COLOR)
        made = cv2.resize(_part(picture, *(size := draw_size(rng)), rng), size)
        path = folder / f"{photographs.labels[chosen]:03}.made" / f"{number:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        _, jpeg = cv2.imencode(".jpg", made, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
        path.write_bytes(jpeg.tobytes())


def draw_size(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height of one picture, in pixels."""
    scale = np.exp(rng.normal(0, SIGMA_SIDE))
    aspect = np.exp(rng.normal(0, SIGMA_ASPECT))
    sides = MEDIAN_WIDTH * scale * np.sqrt(aspect), MEDIAN_HEIGHT * scale / np.sqrt(aspect)
    width, height = np.clip(np.round(sides), LEAST_SIDE, MOST_SIDE).astype(int).tolist()
    return width, height


def _part(
    picture: npt.NDArray[np.uint8], width: int, height: int, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """A part of a picture that has that aspect, its place drawn."""
    rows, columns = picture.shape[:2]
    scale = min(columns / width, rows / height) * rng.uniform(LEAST_WIDTH, 1)
    box_width, box_height = max(1, int(width * scale)), max(1, int(height * scale))
    top = rng.integers(rows - box_height + 1)
    left = rng.integers(columns - box_width + 1)
    return picture[top : top + box_height, left : left + box_width]
