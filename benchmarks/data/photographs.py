"""The pictures of the record benchmarks: parts of photographs.

Ten photographs that scikit-image and scikit-learn ship, each a class. A picture is a part of one of
them, its width and place drawn from one seed, resized to 500x375 and encoded as JPEG: of quality
90, 47 KB on average, and once more of quality 98, 98 KB on average, as ImageNet's files are. In the
records, a picture's label is its number, so that a loader that loses one can be told. They are made
once, into the cache folder::

    photographs-2/jpeg/<label>/<number>.jpg
    photographs-2/train.tfrecord, train.idx      tf.train.Example
    photographs-2/recordio/train.rec, train.idx  MXNet's IRHeader
    photographs-2-98/...                         the same at quality 98
    short-256-<encoding>-1/train-*.tfrecord      of those of 47 KB, the shorter side 256, by `pack`
    digit-records-1/train.tfrecord, train.idx    digits as NPY arrays, in tf.train.Example

Rows only read; `find_photographs` and the others are first called in the harness.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adapters import RecordWriter, pack
from benchmarks.data.cache import made_once

PICTURES = 2_000
WIDTH, HEIGHT = 500, 375  # pixels
SHORT = 256  # pixels, of the shorter side of what `pack` makes of them
# Of the JPEG files, by their mean size.
SMALL, LARGE = "47 KB", "98 KB"
QUALITIES = {SMALL: 90, LARGE: 98}
LEAST_WIDTH = 0.6  # of a picture, as a part of the widest that its photograph has room for
DIGIT_RECORDS = 60_000
SEED = 24

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Photographs:
    """Where the pictures lie.

    Args:
        size: Their mean size, as `QUALITIES` has it.
        paths: The JPEG files, by number.
        labels: The classes of the files, 0 to 9.
        tfrecord: The same as Examples, with their numbers as labels.
        recordio: The same behind IRHeaders.
    """

    size: str
    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    tfrecord: Path
    recordio: Path

    @property
    def folder(self) -> Path:
        """Where the files lie, in a folder for each class."""
        return self.paths[0].parents[1]


class Numbered:
    """The bytes of JPEG files, and their numbers.

    Args:
        paths: By number.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = [str(path) for path in paths]

    def __len__(self) -> int:
        """Number of files."""
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """(JPEG, number)."""
        return Path(self._paths[number]).read_bytes(), number


def find_photographs(size: str = SMALL) -> Photographs:
    """The pictures, made now if they aren't in the cache.

    Args:
        size: The mean of the files, as `QUALITIES` has it.
    """
    name = "photographs-2" if size == SMALL else f"photographs-2-{QUALITIES[size]}"
    folder = made_once(name, lambda folder: _make_photographs(folder, QUALITIES[size]))
    paths = sorted(folder.glob("jpeg/*/*.jpg"), key=lambda path: path.name)
    return Photographs(
        size,
        tuple(paths),
        tuple(int(path.parent.name) for path in paths),
        folder / "train.tfrecord",
        folder / "recordio" / "train.rec",
    )


def find_packed(encoding: str) -> str:
    """The glob of the pictures of 47 KB as `pack` makes them; made now if they aren't in the cache.

    Args:
        encoding: As `pack` takes it; their shorter side has 256 pixels.
    """

    def make(folder: Path) -> None:
        files = Numbered(find_photographs().paths)
        pack(files, folder / "train", format="tfrecord", resize=SHORT, encoding=encoding)

    return str(made_once(f"short-{SHORT}-{encoding}-1", make) / "train-*.tfrecord")


def as_npy(array: Pixels) -> bytes:
    """An array as `numpy.save` writes it."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _make_photographs(folder: Path, quality: int) -> None:
    (folder / "recordio").mkdir()
    with (
        RecordWriter(folder / "train.tfrecord", format="tfrecord") as examples,
        RecordWriter(folder / "recordio" / "train.rec", format="recordio") as headed,
    ):
        for number, (jpeg, label) in enumerate(_pictures(quality)):
            path = folder / "jpeg" / str(label) / f"{number:05}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg)
            examples.write(_example(jpeg, number))
            headed.write(headed_record(jpeg, number, number))


def write_raw(folder: Path, samples: Iterable[tuple[Pixels, int]]) -> None:
    """Arrays and labels as raw records, in TFRecord."""
    with RecordWriter(folder / "train.tfrecord", format="tfrecord") as writer:
        for array, label in samples:
            writer.write(_example(as_npy(array), label))


def _pictures(quality: int) -> Iterator[tuple[bytes, int]]:
    """JPEG files and labels, each label equally often, mixed."""
    import cv2

    rng = np.random.default_rng(SEED)
    photographs = _photographs()
    for label in rng.permutation(np.arange(PICTURES) % len(photographs)).tolist():
        photograph = photographs[label]
        height, width = photograph.shape[:2]
        box_width = int(min(width, height * WIDTH / HEIGHT) * rng.uniform(LEAST_WIDTH, 1))
        box_height = box_width * HEIGHT // WIDTH
        top = rng.integers(height - box_height + 1)
        left = rng.integers(width - box_width + 1)
        box = photograph[top : top + box_height, left : left + box_width]
        how = cv2.INTER_AREA if box_width > WIDTH else cv2.INTER_CUBIC
        picture = cv2.cvtColor(
            cv2.resize(box, (WIDTH, HEIGHT), interpolation=how), cv2.COLOR_RGB2BGR
        )
        _, jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
        yield jpeg.tobytes(), label


def _photographs() -> list[Pixels]:
    """The ten photographs; none is downloaded."""
    import skimage.data
    from sklearn.datasets import load_sample_images

    return [
        skimage.data.astronaut(),
        skimage.data.chelsea(),
        skimage.data.coffee(),
        skimage.data.hubble_deep_field(),
        skimage.data.immunohistochemistry(),
        skimage.data.retina(),
        skimage.data.rocket(),
        skimage.data.stereo_motorcycle()[0],
        *load_sample_images().images,
    ]


def headed_record(content: bytes, label: int, number: int) -> bytes:
    """What `mxnet.recordio.pack` makes, for a Python that has no MXNet."""
    return struct.pack("<IfQQ", 0, label, number, 0) + content


def _example(content: bytes, label: int) -> bytes:
    """A tf.train.Example; written by hand, as TensorFlow would stay in the harness's memory."""
    image = _field(b"image/encoded", _message(1, _message(1, content)))
    number = _field(b"image/class/label", _message(3, bytes([1 << 3]) + _varint(label)))
    return _message(1, image + number)


def _field(name: bytes, feature: bytes) -> bytes:
    return _message(1, _message(1, name) + _message(2, feature))


def _message(number: int, content: bytes) -> bytes:
    """Tag, length, and what has that length."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
