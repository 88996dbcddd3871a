"""Detection labels of MXNet's im2rec are boxes, and nothing else in silence."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters import (
    Boxes,
    Feature,
    ImageDecoder,
    RecordError,
    SafeSequence,
    open_images,
    open_records,
)
from adapters.records import irheader
from tests.contract.detection import (
    DECODERS,
    MOVING,
    followed,
    gradient,
    place_of,
    random_boxes,
    written,
)
from tests.images.pictures import encoded as image_file
from tests.images.pictures import npy


def det_label(rows: NDArray[Any], header: Iterable[float] = ()) -> list[float]:
    """A detection label of im2rec with these objects."""
    header = list(header)
    return [2 + len(header), rows.shape[1], *header, *rows.ravel().tolist()]


def det_file(path: Path, labels: Iterable[Any], image: bytes | None = None) -> str:
    image = npy(gradient(80, 160)) if image is None else image
    payloads = [irheader.pack(label, number, image) for number, label in enumerate(labels)]
    return written(path, payloads, "recordio")


OBJECTS = np.array([[3, 0.125, 0.25, 0.375, 0.5], [0, 0.5, 0.5, 1, 1]])


@pytest.mark.parametrize("header", [(), (160, 80, 3)])
def test_im2recs_detection_labels_are_boxes(tmp_path, header):
    path = det_file(tmp_path / "a.rec", [det_label(OBJECTS, header), [2 + len(header), 5, *header]])
    spec = {"image": ImageDecoder(40), "label": Boxes.im2rec()}
    source = open_records(path, decode=spec, outputs=("image", "label"))
    _, found = source[0]
    assert found["boxes"].tolist() == [[5, 10, 15, 20], [20, 20, 40, 40]]
    assert found["boxes"].dtype == np.float32
    assert found["classes"].tolist() == [3, 0]
    assert found["classes"].dtype == np.int64
    assert {name: each.shape for name, each in source[1][1].items()} == {
        "boxes": (0, 4),
        "classes": (0,),
    }


def test_more_numbers_of_an_object_stay_with_it(tmp_path):
    """As gluon-cv has them, and as MXNet fills labels up: with rows of -1."""
    rows = np.array([[3, 0.125, 0.25, 0.375, 0.5, 1], [-1] * 6, [0, 0.5, 0.5, 1, 1, 0]])
    path = det_file(tmp_path / "a.rec", [det_label(rows)])
    spec = {"image": ImageDecoder(40), "y": Boxes.im2rec("label", output="rel_xyxy")}
    found = open_records(path, decode=spec)[0]["y"]
    np.testing.assert_array_equal(found["boxes"], rows[[0, 2], 1:5].astype(np.float32))
    assert found["classes"].tolist() == [3, 0]
    assert found["extra"].tolist() == [[1], [0]]


def test_im2recs_boxes_are_where_the_pixels_say(tmp_path):
    rng = np.random.default_rng(2)
    given = [random_boxes(rng, 5)[:, [1, 0, 3, 2]] for _ in range(20)]
    labels = [det_label(np.column_stack([range(5), boxes])) for boxes in given]
    path = det_file(tmp_path / "a.rec", labels)
    spec = {"image": DECODERS["random resized"], "label": Boxes.im2rec(min_visible=0.3)}
    for boxes, sample in zip(given, open_records(path, decode=spec)):
        target = sample["label"]
        for number, found in zip(target["classes"].tolist(), target["boxes"]):
            box = boxes[number] * [160, 80, 160, 80]
            place = place_of(sample["image"])
            expected, share = followed(box, place, *sample["image"].shape[:2])
            assert share > 0.28
            np.testing.assert_allclose(found, expected, atol=0.5)


@pytest.mark.parametrize(
    "label", [[2, 5, 1], [5, 2, 1, 1, 1, 1, 1], [1, 2, 3], 4, [2, 4, *[0.1] * 4]]
)
def test_a_label_that_is_no_detection_label_is_an_error(tmp_path, label):
    path = det_file(tmp_path / "a.rec", [label])
    source = open_records(path, decode={"image": ImageDecoder(8), "label": Boxes.im2rec()})
    with pytest.raises(RecordError, match="a detection label: the width of its header"):
        source[0]


@pytest.mark.parametrize("objects", [OBJECTS[:1], np.repeat(OBJECTS, 2, 0)[:3], OBJECTS])
@pytest.mark.parametrize("width", [5, 6])
def test_detection_labels_as_rows_are_an_error_with_the_remedy(tmp_path, objects, width):
    """Also if there are as many numbers as whole rows have."""
    rows = np.pad(objects, ((0, 0), (0, width - 5)))
    path = det_file(tmp_path / "a.rec", [det_label(rows)])
    spec = {"image": ImageDecoder(8), "label": Feature("float32", (None, 5), default=-1)}
    with pytest.raises(RecordError, match=r"Boxes\.im2rec\(\)"):
        open_records(path, decode=spec)[0]


@pytest.mark.parametrize("decoder", MOVING)
@pytest.mark.parametrize("shape", [(None,), (7,)])
def test_detection_labels_that_would_stay_where_they_were_are_an_error(tmp_path, decoder, shape):
    path = det_file(tmp_path / "a.rec", [det_label(OBJECTS[:1])] * 2)
    features = {"image": decoder, "label": Feature("float32", shape)}
    named = open_records(path, decode=features, outputs=("image", "label"))
    for source in (open_records(path, decode=decoder), named):
        for read in (source.__getitem__, SafeSequence(source, 2, workers=0).__getitem__):
            with pytest.raises(RecordError, match=r'"label": Boxes\.im2rec\(\)'):
                read(0)
    plain = open_records(
        path, decode={"image": ImageDecoder(8), "label": Feature("float32", shape)}
    )
    np.testing.assert_allclose(plain[0]["label"], det_label(OBJECTS[:1]))


def test_boxes_of_another_layout_behind_a_header_are_an_error(tmp_path):
    path = det_file(tmp_path / "a.rec", [det_label(OBJECTS)])
    with pytest.raises(RecordError, match=r"Boxes\.im2rec\(\)"):
        open_records(path, decode={"image": ImageDecoder(8), "boxes": Boxes()})[0]


@pytest.mark.parametrize("count", [1, 2])
def test_a_list_of_detection_labels_is_an_error_beside_a_crop(tmp_path, count):
    """Boxes of a list's images would stay where they are, too."""
    lines = []
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(image_file(gradient(20, 20), "PNG"))
        rows = OBJECTS[: count if number else 1]
        fields = map(str, [number, *det_label(rows), f"{number}.png"])
        lines.append("\t".join(fields))
    listed = tmp_path / "det.lst"
    listed.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"Boxes\.im2rec\(\)"):
        open_images(listed, decode=MOVING[0])
    np.testing.assert_allclose(
        open_images(listed, decode=ImageDecoder(8))[0][1][-4:], OBJECTS[0, 1:]
    )
