"""Batches of boxes: padded, and the same for all workers and in both front ends."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters import (
    Boxes,
    ImageDecoder,
    open_records,
    pad,
)
from tests.contract.detection import (
    detection,
    gradient,
    random_boxes,
    written,
)
from tests.images.pictures import encoded as image_file


@pytest.fixture
def detections(tmp_path) -> str:
    rng = np.random.default_rng(4)
    images = [image_file(gradient(*rng.integers(60, 200, 2)), "JPEG") for _ in range(24)]
    boxes = [random_boxes(rng, int(count)) for count in rng.integers(0, 6, 24)]
    return written(tmp_path / "a.tfrecord", map(detection, images, boxes))


SPEC = {
    "image/encoded": ImageDecoder(32, crop="random_resized", flip=True),
    "boxes": Boxes(min_visible=0.25),
}
OUTPUTS = ("image/encoded", "boxes")


def arrays_of(batches: Iterable[Any]) -> Iterator[NDArray[Any]]:
    for images, targets in batches:
        for each in (images, targets["boxes"], targets["classes"]):
            yield each if isinstance(each, np.ndarray) else each.asnumpy()


def by_keras(path: str, **workers: Any) -> list[NDArray[Any]]:
    from adapters import SafeSequence

    source = open_records(path, decode=SPEC, outputs=OUTPUTS)
    with SafeSequence(
        source, 6, shuffle=True, seed=3, collate=pad((None, -1)), **workers
    ) as sequence:
        return list(arrays_of(sequence[index] for index in range(len(sequence))))


def by_gluon(path: str, **workers: Any) -> list[NDArray[Any]]:
    from adapters import gluon_loader

    source = open_records(path, decode=SPEC, outputs=OUTPUTS)
    with gluon_loader(
        source, 6, shuffle=True, seed=3, batchify_fn=pad((None, -1)), **workers
    ) as loader:
        return list(arrays_of(loader))


# MXNet 1.9.1 reads names that NumPy 2 no longer has, and every other name while it is imported.
NEEDS_MXNET = (
    pytest.mark.skipif(
        importlib.util.find_spec("mxnet") is None or np.__version__.startswith("2."),
        reason="MXNet needs NumPy 1",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
)
KERAS = [{"workers": 0}, {"workers": 2}, {"workers": 2, "use_multiprocessing": True}]
GLUON = [{"num_workers": 0}, {"num_workers": 2, "thread_pool": True}, {"num_workers": 2}]


@pytest.mark.parametrize(
    ("by", "ways"), [(by_keras, KERAS), pytest.param(by_gluon, GLUON, marks=NEEDS_MXNET)]
)
def test_padded_batches_are_the_same_for_all_workers(
    detections: str, by: Callable[..., list[NDArray[Any]]], ways: list[dict[str, Any]]
):
    if by is by_keras:
        pytest.importorskip("keras")
    first, *others = (by(detections, **workers) for workers in ways)
    assert len(first) == 12
    assert first[0].shape == (6, 32, 32, 3)
    assert first[1].shape[::2] == (6, 4)
    assert first[2].shape == first[1].shape[:2]
    assert any((each == -1).any() for each in first[2::3])
    for other in others:
        for mine, its in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, its, strict=True)


@pytest.mark.parametrize("gluon", [pytest.param(by_gluon, marks=NEEDS_MXNET)])
def test_both_front_ends_give_the_same_boxes(detections, gluon):
    pytest.importorskip("keras")
    for keras, its in zip(by_keras(detections), gluon(detections), strict=True):
        np.testing.assert_array_equal(keras, its)


def test_without_padding_the_error_names_it(detections):
    pytest.importorskip("keras")
    from adapters import SafeSequence

    for outputs, like in ((OUTPUTS, r"pad\(\(None, -1\)\)"), (None, r'pad\(\{"image": None')):
        source = open_records(detections, decode=SPEC, outputs=outputs)
        with (
            SafeSequence(source, 6, workers=0) as sequence,
            pytest.raises(ValueError, match=like),
        ):
            sequence[0]
