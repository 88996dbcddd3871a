"""Small data sets of every kind that Gluon knows, and the comparison with MXNet's own batches."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.gluon.data import ArrayDataset, DataLoader, Dataset, FilterSampler, SimpleDataset
from mxnet.gluon.data.vision import CIFAR10, MNIST, ImageFolderDataset, ImageRecordDataset
from mxnet.gluon.data.vision.transforms import ToTensor

from tests.images.pictures import encoded

SIZE = 11


class Pair(NamedTuple):
    image: Any
    label: Any


def pixels(size: int = SIZE, height: int = 6, width: int = 5, channels: int = 3) -> Any:
    """uint8 ``(size, height, width, channels)``, the same each time."""
    shape = (size, height, width, channels)
    numbers = np.random.default_rng(size * channels).integers(0, 256, shape)
    return numbers.astype(np.uint8)


def labels(size: int = SIZE) -> Any:
    """int32 ``(size,)``, all different."""
    return np.arange(size, dtype=np.int32) * 3 - 7


def nd(array: Any) -> Any:
    """An array of MXNet's, of the kind that is in use."""
    make = mx.np.array if mx.util.is_np_array() else mx.nd.array
    return make(array, dtype=array.dtype)


def downloaded(kind: type, transform: Any = None) -> Any:
    """One of the data sets that would be downloaded, as it is afterwards."""
    data = object.__new__(kind)
    channels = 1 if issubclass(kind, MNIST) else 3
    data._data = nd(pixels(channels=channels))
    data._label = nd(labels()) if mx.util.is_np_array() else labels()
    data._transform = transform
    return data


class Computed(Dataset):
    """A data set of the user's own: sample ``i`` is ``function(i)``."""

    def __init__(self, function: Callable[[Any], Any], size: int = SIZE) -> None:
        self.function = function
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return self.function(index)


def triples() -> Computed:
    """Of tuples, with an array of MXNet's among them."""
    return Computed(lambda i: (nd(np.full((2,), i, np.int64)), i / 2, np.int8(i)))


class Plain:
    """No Gluon data set at all."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        return Pair(np.arange(index, index + 3), Pair(index, (float(index),)))


def _summed(image: Any, label: Any) -> Any:
    return image.astype("float32").sum(axis=2), label + 1


def doubled(sample: Any) -> Any:
    """Write into a sample."""
    image, label = sample
    image *= 2
    return image.astype("float32"), label


def _images() -> Any:
    return ArrayDataset(nd(pixels()), labels())


IN_MEMORY: dict[str, Callable[[], Any]] = {
    "nd uint8 images and int32 labels": _images,
    "NumPy arrays": lambda: ArrayDataset(pixels(), labels().astype(np.float64)),
    "strided NumPy arrays": lambda: ArrayDataset(pixels()[:, ::2, ::-1], labels()[::-1]),
    "NumPy arrays in Fortran order": lambda: ArrayDataset(np.asfortranarray(pixels()), labels()),
    "lists": lambda: ArrayDataset(list(range(SIZE)), [i / 2 for i in range(SIZE)]),
    "a range and booleans": lambda: ArrayDataset(range(SIZE), [i % 3 > 1 for i in range(SIZE)]),
    "lists of lists": lambda: ArrayDataset([[i, 2 * i] for i in range(SIZE)], labels()),
    "lists of mixed numbers": lambda: ArrayDataset([i if i % 3 else i / 2 for i in range(SIZE)]),
    "one array": lambda: ArrayDataset(nd(pixels())),
    "an array beside a data set": lambda: ArrayDataset(SimpleDataset(list(pixels())), labels()),
    "SimpleDataset of NDArrays": lambda: SimpleDataset([nd(row) for row in pixels()]),
    "SimpleDataset of tuples": lambda: SimpleDataset(list(zip(map(nd, pixels()), range(SIZE)))),
    "SimpleDataset of named tuples": lambda: SimpleDataset([*map(Pair, pixels(), labels())]),
    "SimpleDataset of nested tuples": lambda: SimpleDataset(
        [((nd(image), label), (label, (label, 1.5))) for image, label in zip(pixels(), labels())]
    ),
    "SimpleDataset of tuples of one": lambda: SimpleDataset([(i,) for i in range(SIZE)]),
    "a raw np array": pixels,
    "a raw NDArray": lambda: nd(pixels()),
    "a raw list": lambda: list(range(SIZE)),
    "a list of NDArrays": lambda: [nd(row) for row in pixels()],
    "MNIST": lambda: downloaded(MNIST),
    "CIFAR10": lambda: downloaded(CIFAR10),
    "MNIST with a transform": lambda: downloaded(MNIST, _summed),
    "triples of the user's own": triples,
    "named tuples of no Gluon class": Plain,
    "take": lambda: _images().take(7),
    "filter": lambda: downloaded(CIFAR10).filter(lambda pair: bool(pair[1] % 2)),
    "a FilterSampler": lambda: _images().sample(FilterSampler(lambda pair: pair[1] > 2, _images())),
    "shard of take of filter": lambda: (
        downloaded(MNIST).filter(lambda pair: pair[1] > -3).take(8).shard(2, 1)
    ),
    "transform": lambda: _images().transform(_summed),
    "transform of one of two": lambda: _images().transform(lambda image, label: label),
    "transform to a tuple of a list": lambda: _images().transform(lambda i, n: ([n, n + 1], n)),
    "transform_first": lambda: _images().transform_first(lambda image: image[0]),
    "transform_first, singles": lambda: SimpleDataset([*pixels()]).transform_first(lambda x: x + 1),
    "transform of a transform": lambda: (
        _images().transform(_summed).transform_first(lambda image: image * 2)
    ),
    "transform, not lazy": lambda: _images().transform(_summed, lazy=False),
    "take of transform of shard": lambda: downloaded(MNIST).shard(2, 0).transform(_summed).take(4),
    "ToTensor": lambda: downloaded(CIFAR10).transform_first(ToTensor()),
    "a lambda after ToTensor": lambda: (
        _images().transform_first(ToTensor()).transform(lambda image, label: (label, image + 1))
    ),
    "ToTensor after a lambda": lambda: (
        _images().transform(lambda image, label: (image[1:], label)).transform_first(ToTensor())
    ),
}


def record_data_set(folder: Path) -> Any:
    """An ``ImageRecordDataset`` with labels of two numbers."""
    record = mx.recordio.MXIndexedRecordIO(str(folder / "a.idx"), str(folder / "a.rec"), "w")
    for number, image in enumerate(pixels()):
        # What mx.recordio.pack writes, by a name that NumPy has given up.
        header = struct.pack("<IfQQ", 2, 0, number, 0)
        label = np.array([number, number / 2], np.float32).tobytes()
        record.write_idx(number, header + label + encoded(image, "PNG"))
    record.close()
    return ImageRecordDataset(str(folder / "a.rec"))


def folder_data_set(folder: Path) -> Any:
    """An ``ImageFolderDataset`` of two classes."""
    for number, image in enumerate(pixels()):
        place = folder / "images" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:02}.png").write_bytes(encoded(image, "PNG"))
    return ImageFolderDataset(str(folder / "images"))


def outline(batch: Any) -> Any:
    """A batch with type, dtype, shape and bytes for each array; ``==`` compares all bits."""
    if isinstance(batch, mx.nd.NDArray):
        array = batch.asnumpy()
        return type(batch), batch.stype, np.dtype(batch.dtype), batch.shape, array.tobytes()
    if isinstance(batch, (np.ndarray, np.generic)):
        return type(batch), batch.dtype, batch.shape, batch.tobytes()
    if isinstance(batch, (list, tuple)):
        return type(batch), [outline(member) for member in batch]
    if isinstance(batch, dict):
        return dict, {name: outline(member) for name, member in batch.items()}
    return type(batch), batch


def assert_same(ours: Any, theirs: Any) -> None:
    """Two batches, or lists of batches, agree in structure, types, dtypes, shapes and all bits."""
    assert outline(ours) == outline(theirs)


def theirs(data: Any, **arguments: Any) -> list[Any]:
    """MXNet's own batches of one epoch."""
    return list(DataLoader(data, num_workers=0, **arguments))


def values(batches: Any) -> list[Any]:
    """The numbers in a pass over a loader of single numbers."""
    return [batch.asnumpy().tolist() for batch in batches]


@contextlib.contextmanager
def numpy_semantics(active: bool = True) -> Iterator[None]:
    """``mx.npx.set_np()``, if wanted, for as long as this lasts."""
    if active:
        mx.npx.set_np()
    try:
        yield
    finally:
        mx.npx.reset_np()
