"""Boxes and points follow their image; what would be wrong in silence is an error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import adapters
from adapters import Boxes, Feature, ImageDecoder, Points, RecordError, open_images, open_records
from adapters.records import irheader
from tests.contract import detection as scenes
from tests.contract.detection import BBOX, DECODERS, MOVING, detection, example, gradient, written
from tests.contract.front_ends import batches_of, loader_of
from tests.images.pictures import encoded as image_file
from tests.images.pictures import npy

EACH, IMAGES = 16, 40
OUTPUTS = ("image/encoded", "boxes")


def opened(folder: Path, payloads: Iterable[bytes], decode: Any, **options: Any) -> Any:
    return open_records(written(folder / "a.tfrecord", payloads), decode=decode, **options)


def jpeg(image: NDArray[Any]) -> bytes:
    return image_file(image, "JPEG", quality=100, subsampling=0)


@pytest.mark.parametrize(
    ("name", "min_visible"),
    [*((name, 0.0) for name in DECODERS), ("center", 0.4), ("random resized", 0.4)],
)
def test_boxes_are_where_the_pixels_say(tmp_path, name, min_visible):
    """6,400 random boxes, within half a pixel, also after a JPEG was decoded at half its size."""
    rng = np.random.default_rng(len(name))
    sizes = rng.integers(100, 250, (IMAGES, 2)).tolist()
    given = [scenes.random_boxes(rng, EACH) for _ in sizes]
    images = [
        jpeg(gradient(*size)) if number % 2 else npy(gradient(*size))
        for number, size in enumerate(sizes)
    ]
    spec = {"image/encoded": DECODERS[name], "boxes": Boxes(min_visible=min_visible)}
    source = opened(tmp_path, map(detection, images, given), spec, outputs=OUTPUTS)
    moved = 0
    for (height, width), boxes, (pixels, target) in zip(sizes, given, source):
        found = dict(zip(target["classes"].tolist(), target["boxes"]))
        place = scenes.place_of(pixels)
        assert target["boxes"].dtype == np.float32
        assert target["classes"].dtype == np.int64
        for number, (top, left, bottom, right) in enumerate(boxes):
            box = np.array([left * width, top * height, right * width, bottom * height])
            expected, share = scenes.followed(box, place, *pixels.shape[:2])
            sides = np.maximum(np.subtract(expected[2:], expected[:2]), 1e-9)
            known_to = max(0.02, (0.5 / sides).sum())  # Half a pixel on each axis.
            if min(sides) < 0.5 or abs(share - max(min_visible, 0.002)) < known_to:
                continue
            assert (number in found) == (share > min_visible)
            if number in found:
                np.testing.assert_allclose(found[number], expected, atol=0.5)
                moved += 1
    assert moved > EACH * IMAGES / 4


def test_points_are_where_the_pixels_say(tmp_path):
    rng = np.random.default_rng(3)
    given = [rng.random((9, 2)) for _ in range(50)]
    names = [f"image/object/keypoint/{axis}" for axis in "xy"]
    payloads = [
        example({"image": [npy(gradient(200, 150))], **dict(zip(names, points.T.tolist()))})
        for points in given
    ]
    spec = {"image": DECODERS["random resized"], "points": Points()}
    seen = 0
    for points, sample in zip(given, opened(tmp_path, payloads, spec)):
        (scale_x, begin_x), (scale_y, begin_y) = scenes.place_of(sample["image"])
        xs = (points[:, 0] * 150 - begin_x) / scale_x
        ys = (points[:, 1] * 200 - begin_y) / scale_y
        found, visible = sample["points"]["points"], sample["points"]["visible"]
        # Far outside, the gradient says it less exactly.
        np.testing.assert_allclose(found, np.stack([xs, ys], 1), rtol=0.02, atol=0.5)
        np.testing.assert_allclose(found[visible], np.stack([xs, ys], 1)[visible], atol=0.5)
        height, width = sample["image"].shape[:2]
        inside = (xs > 0) & (xs < width) & (ys > 0) & (ys < height)
        sure = (np.abs(xs * (xs - width)) > width / 2) & (np.abs(ys * (ys - height)) > height / 2)
        np.testing.assert_array_equal(visible[sure], inside[sure])
        seen += int(visible.sum())
    assert 0 < seen < 450


def test_boxes_are_of_the_image_as_stored(tmp_path):
    """EXIF's orientation turns neither the image nor its boxes."""
    image = np.zeros((80, 160, 3), np.uint8)
    image[10:40, 20:60] = 255
    exif = Image.Exif()
    exif[274] = 6
    payload = detection(
        image_file(image, "JPEG", exif=exif, quality=100), np.array([[1, 1, 4, 3]]) / 8
    )
    spec = {"image/encoded": ImageDecoder((80, 160)), "boxes": Boxes()}
    sample = opened(tmp_path, [payload], spec)[0]
    left, top, right, bottom = sample["boxes"]["boxes"][0].astype(int)
    assert (left, top, right, bottom) == (20, 10, 60, 40)
    bright = sample["image/encoded"][:, :, 0] > 127
    assert bright[top:bottom, left:right].mean() > 0.95
    assert bright.sum() < 30 * 40 * 1.05


FORMATS = {
    "xyxy": (20, 10, 60, 40),
    "yxyx": (10, 20, 40, 60),
    "xywh": (20, 10, 40, 30),
    "center_xywh": (40, 25, 40, 30),
    "rel_xyxy": (0.125, 0.125, 0.375, 0.5),
    "rel_yxyx": (0.125, 0.125, 0.5, 0.375),
    "rel_xywh": (0.125, 0.125, 0.25, 0.375),
    "rel_center_xywh": (0.25, 0.3125, 0.25, 0.375),
}


@pytest.mark.parametrize(
    ("format", "output"),
    [*((each, "xyxy") for each in FORMATS), *(("rel_xywh", each) for each in FORMATS)],
)
def test_formats_are_keras(tmp_path, format, output):
    """The same box of an image of 80 x 160 pixels in all of them, as one list of values."""
    values = list(map(float, FORMATS[format] * 2))
    payload = example({"image": [npy(gradient(80, 160))], "b": values})
    spec = {"image": ImageDecoder(), "b": Boxes(format, "b", classes=None, output=output)}
    found = opened(tmp_path, [payload], spec)[0]["b"]
    np.testing.assert_allclose(found, [FORMATS[output]] * 2, rtol=1e-6)


def test_formats_of_pixels(tmp_path):
    """Whole numbers are read as such, and come out exactly where nothing is resized."""
    names = ["x", "y", "w", "h"]
    values = {name: [number, number + 7] for name, number in zip(names, (233, 17, 101, 59))}
    payloads = [example({"image": [npy(gradient(249, 500))], **values})]
    boxes = Boxes("xywh", names, classes=None, output="xywh")
    stored, half = np.array([[233, 17, 101, 59], [240, 24, 108, 66]]), ImageDecoder((249, 250))
    for decode, expected in (
        ({"image": ImageDecoder(), "boxes": boxes}, stored),
        ({"image": half, "boxes": boxes}, stored * [0.5, 1, 0.5, 1]),
        ({"boxes": boxes}, stored),
    ):
        assert opened(tmp_path, payloads, decode)[0]["boxes"].tolist() == expected.tolist()


def test_boxes_are_dropped_and_clipped(tmp_path):
    boxes = np.array([[0.5, 0.5, 0.5, 0.9], [-0.1, 0.2, 0.6, 1.2], [0.1, 0.3, 0.1, 0.3]])
    payloads = [detection(npy(gradient(20, 20)), boxes)]
    spec = {"image/encoded": ImageDecoder(10), "boxes": Boxes()}
    found = opened(tmp_path, payloads, spec)[0]["boxes"]
    np.testing.assert_allclose(found["boxes"], [[2, 0, 10, 6]], rtol=1e-6)
    assert found["classes"].tolist() == [1]
    alone = opened(tmp_path, payloads, {"boxes": Boxes(output="rel_yxyx")})[0]["boxes"]
    np.testing.assert_array_equal(alone["boxes"], boxes[1:2].astype(np.float32))


@pytest.mark.parametrize("min_visible", [0.0, 1.0])
def test_boxes_that_are_wholly_visible_are_kept(tmp_path, min_visible):
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.7, 0.30000001, 1], [1 / 3, 0, 2 / 3, 1 / 7]])
    spec = {"image/encoded": ImageDecoder(10), "boxes": Boxes(min_visible=min_visible)}
    source = opened(tmp_path, [detection(npy(gradient(21, 33)), boxes)], spec)
    assert source[0]["boxes"]["classes"].tolist() == [0, 1, 2]


def test_boxes_are_dropped_with_other_values(tmp_path):
    boxes = np.array([[0.5, 0.5, 0.5, 0.9], [0.1, 0.2, 0.6, 0.9], [0.1, 0.3, 0.4, 0.5]])
    more = {"image/object/is_crowd": [0, 1, 0], "image/object/class/text": [b"a", b"b", b"c"]}
    payloads = [detection(npy(gradient(20, 20)), boxes, **more)]
    per_box = {"image/object/is_crowd": Feature("uint8"), "image/object/class/text": Feature(str)}
    spec = {"image/encoded": ImageDecoder(10), "boxes": Boxes(per_box=per_box)}
    found = opened(tmp_path, payloads, spec)[0]["boxes"]
    assert list(found) == ["boxes", "classes", *more]
    assert found["image/object/is_crowd"].tolist() == [1, 0]
    assert found["image/object/class/text"].tolist() == ["b", "c"]
    assert found["classes"].tolist() == [1, 2]
    spec["image/object/is_crowd"] = Feature("int64", (None,))
    with pytest.raises(ValueError, match=r"per_box=\{'image/object/is_crowd'"):
        opened(tmp_path, payloads, spec)


def test_image_is_followed_if_it_is_no_output(tmp_path):
    rng = np.random.default_rng(1)
    given = [scenes.random_boxes(rng, 4) for _ in range(9)]
    path = written(tmp_path / "a.tfrecord", [detection(npy(gradient(99, 90)), b) for b in given])
    spec = {"image/encoded": DECODERS["random resized"], "boxes": Boxes()}
    both = open_records(path, decode=spec, outputs=OUTPUTS)
    alone = open_records(path, decode=spec, outputs=("boxes",))
    for number in range(len(given)):
        _, expected = both.sample(number, np.random.default_rng(number))
        (found,) = alone.sample(number, np.random.default_rng(number))
        np.testing.assert_equal(found, expected)


def test_image_that_is_followed_is_one(tmp_path):
    payload = detection(npy(gradient(99, 90)), np.array([[0, 0, 0.5, 0.5]]))
    path = written(tmp_path / "a.tfrecord", [payload])
    spec: dict[str, Any] = {"image": ImageDecoder(40), "small": ImageDecoder(10)}
    fields = {"image": "image/encoded", "small": "image/encoded"}
    with pytest.raises(ValueError, match=r"which image it follows, Boxes\(image=\.\.\.\)"):
        open_records(path, decode={**spec, "boxes": Boxes()}, fields=fields)
    with pytest.raises(ValueError, match=r"image must be the name of an ImageDecoder .*'other'"):
        open_records(path, decode={**spec, "boxes": Boxes(image="other")}, fields=fields)
    spec |= {"boxes": Boxes(image="small", classes=None)}
    found = open_records(path, decode=spec, fields=fields)[0]
    assert found["boxes"].tolist() == [[0, 0, 5, 5]]


# --- im2rec's detection labels ---


def det_label(rows: NDArray[Any], header: Iterable[float] = ()) -> list[float]:
    header = list(header)
    return [2 + len(header), rows.shape[1], *header, *rows.ravel().tolist()]


def det_file(folder: Path, labels: Iterable[Any]) -> str:
    image = npy(gradient(80, 160))
    payloads = [irheader.pack(label, number, image) for number, label in enumerate(labels)]
    return written(folder / "a.rec", payloads, "recordio")


OBJECTS = np.array([[3, 0.125, 0.25, 0.375, 0.5], [0, 0.5, 0.5, 1, 1]])
ROWS = Feature("float32", (None, 5), default=-1)


@pytest.mark.parametrize("header", [(), (160, 80, 3)])
def test_im2rec_labels_are_boxes(tmp_path, header):
    path = det_file(tmp_path, [det_label(OBJECTS, header), [2 + len(header), 5, *header]])
    spec = {"image": ImageDecoder(40, crop="center"), "label": Boxes.im2rec()}
    source = open_records(path, decode=spec, outputs=("image", "label"))
    _, found = source[0]
    assert found["boxes"].tolist() == [[0, 10, 10, 20], [20, 20, 40, 40]]
    assert found["boxes"].dtype == np.float32
    assert found["classes"].tolist() == [3, 0]
    assert found["classes"].dtype == np.int64
    empty = source[1][1]
    assert (empty["boxes"].shape, empty["classes"].shape) == ((0, 4), (0,))


def test_im2rec_labels_with_more_numbers(tmp_path):
    """As gluon-cv has them, and as MXNet fills labels up: with rows of -1."""
    rows = np.array([[3, 0.125, 0.25, 0.375, 0.5, 1], [-1] * 6, [0, 0.5, 0.5, 1, 1, 0]])
    path = det_file(tmp_path, [det_label(rows)])
    spec = {"image": ImageDecoder(40), "y": Boxes.im2rec("label", output="rel_xyxy")}
    found = open_records(path, decode=spec)[0]["y"]
    np.testing.assert_array_equal(found["boxes"], rows[[0, 2], 1:5].astype(np.float32))
    assert found["classes"].tolist() == [3, 0]
    assert found["extra"].tolist() == [[1], [0]]


@pytest.mark.parametrize(
    "label", [[2, 5, 1], [5, 2, 1, 1, 1, 1, 1], [1, 2, 3], 4, [2, 4, *[0.1] * 4]]
)
def test_im2rec_label_that_is_none_is_an_error(tmp_path, label):
    path = det_file(tmp_path, [label])
    source = open_records(path, decode={"image": ImageDecoder(8), "label": Boxes.im2rec()})
    with pytest.raises(RecordError, match="a detection label: the width of its header"):
        source[0]


@pytest.mark.parametrize(
    ("objects", "decode"),
    [
        (OBJECTS, {"boxes": Boxes()}),
        (OBJECTS[:1], {"label": ROWS}),
        (np.repeat(OBJECTS, 2, 0)[:3], {"label": ROWS}),  # As many numbers as whole rows have.
        (np.pad(OBJECTS, ((0, 0), (0, 1))), {"label": ROWS}),
    ],
)
def test_im2rec_labels_read_otherwise_are_an_error(tmp_path, objects, decode):
    path = det_file(tmp_path, [det_label(objects)])
    with pytest.raises(RecordError, match=r"Boxes\.im2rec\(\)"):
        open_records(path, decode={"image": ImageDecoder(8), **decode})[0]


@pytest.mark.parametrize(
    ("decoder", "shape"), [(MOVING[0], (None,)), (MOVING[1], (7,)), (MOVING[2], (None,))]
)
def test_im2rec_labels_that_would_stay_are_an_error(tmp_path, decoder, shape):
    path = det_file(tmp_path, [det_label(OBJECTS[:1])] * 2)
    features = {"image": decoder, "label": Feature("float32", shape)}
    named = open_records(path, decode=features, outputs=("image", "label"))
    for source in (open_records(path, decode=decoder), named):
        for read in (source.__getitem__, adapters.SafeSequence(source, 2, workers=0).__getitem__):
            with pytest.raises(RecordError, match=r'"label": Boxes\.im2rec\(\)'):
                read(0)
    plain = open_records(path, decode={**features, "image": ImageDecoder(8)})
    np.testing.assert_allclose(plain[0]["label"], det_label(OBJECTS[:1]))


@pytest.mark.parametrize("count", [1, 2])
def test_im2rec_lists_beside_a_crop_are_an_error(tmp_path, count):
    """Boxes of a list's images would stay where they are, too."""
    (tmp_path / "0.png").write_bytes(image_file(gradient(20, 20), "PNG"))
    lines = [[0, *det_label(OBJECTS[:each]), "0.png"] for each in (1, count, count)]
    listed = tmp_path / "det.lst"
    listed.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    with pytest.raises(ValueError, match=r"Boxes\.im2rec\(\)"):
        open_images(listed, decode=MOVING[0])
    np.testing.assert_allclose(
        open_images(listed, decode=ImageDecoder(8))[0][1][-4:], OBJECTS[0, 1:]
    )


# --- batches ---


@pytest.fixture
def detections(tmp_path) -> str:
    rng = np.random.default_rng(4)
    images = [image_file(gradient(*rng.integers(60, 200, 2)), "JPEG") for _ in range(24)]
    boxes = [scenes.random_boxes(rng, int(count)) for count in rng.integers(0, 6, 24)]
    return written(tmp_path / "a.tfrecord", map(detection, images, boxes))


SPEC = {
    "image/encoded": ImageDecoder(32, crop="random_resized", flip=True),
    "boxes": Boxes(min_visible=0.25),
}


def padded(front_end: str, path: str, workers: str = "inline") -> list[Any]:
    source = open_records(path, decode=SPEC, outputs=OUTPUTS)
    arguments = {"workers": workers, "shuffle": True, "collate": adapters.pad((None, -1))}
    with loader_of(front_end, source, 6, **arguments) as loader:
        return list(batches_of(loader))


@pytest.mark.parametrize(
    ("front_end", "workers"),
    [("keras", "2 threads"), ("keras", "2 processes"), ("gluon", "2 threads")],
)
def test_padded_batches_are_the_same_for_all_workers(detections, front_end, workers):
    expected = padded("keras", detections)
    np.testing.assert_equal(padded(front_end, detections, workers), expected)
    assert len(expected) == 4
    for images, targets in expected:
        assert images.shape == (6, 32, 32, 3)
        assert targets["boxes"].shape == (*targets["classes"].shape, 4)
    assert any((targets["classes"] == -1).any() for _, targets in expected)


@pytest.mark.parametrize(
    ("outputs", "remedy"), [(OUTPUTS, r"pad\(\(None, -1\)\)"), (None, r'pad\(\{"image": None')]
)
def test_padded_batches_are_the_remedy(detections, outputs, remedy):
    source = open_records(detections, decode=SPEC, outputs=outputs)
    with (
        adapters.SafeSequence(source, 6, workers=0) as batches,
        pytest.raises(ValueError, match=remedy),
    ):
        batches[0]


# --- what would be wrong boxes in silence is an error that says what to write ---


def one_box(folder: Path) -> str:
    return written(folder / "a.tfrecord", [detection(npy(gradient(9, 9)), np.zeros((1, 4)))])


@pytest.mark.parametrize(
    ("decoder", "name"),
    [(MOVING[0], BBOX[0]), (MOVING[1], BBOX[3]), (MOVING[2], "image/object/keypoint/x")],
)
def test_coordinates_that_would_stay_are_an_error(tmp_path, decoder, name):
    path = one_box(tmp_path)
    feature = Feature("float32", (None,), default=0)
    kind = "Points" if "keypoint" in name else "Boxes"
    for spec, fields in (({name: feature}, None), ({"y": feature}, {"y": name})):
        with pytest.raises(ValueError, match=rf"crops or flips, .* give {kind}\(\) instead"):
            open_records(path, decode={"image/encoded": decoder, **spec}, fields=fields)
        plain = {"image/encoded": ImageDecoder(16), **spec}
        assert len(open_records(path, decode=plain, fields=fields)) == 1


class VarLenFeature:
    dtype = "float32"


OWN_BOXES, OWN_POINTS = r"Boxes\(format, keys, \.\.\.\)", r"Points\(format, keys, \.\.\.\)"


@pytest.mark.parametrize(
    ("name", "feature", "remedy"),
    [
        (BBOX[0], VarLenFeature(), r"Boxes\(\)"),
        ("objects/bbox", Feature("float32", (None, 4)), OWN_BOXES),
        ("objects/bbox", Feature("float32", (None,)), OWN_BOXES),
        ("gt_boxes", Feature("int64", (5, 4)), OWN_BOXES),
        ("xmin", Feature("float32"), OWN_BOXES),
        ("face/landmarks", Feature("float32", (68, 2)), OWN_POINTS),
        ("keypoints", Feature("float32", (None, 3)), OWN_POINTS),
        ("box", Feature("float32"), None),
        ("boxes/count", Feature("int64"), None),
        ("label", Feature("float32", (None, 4)), None),
        ("box", Feature(str, (4,)), None),
    ],
)
def test_coordinates_are_told_by_name_and_shape(tmp_path, name, feature, remedy):
    path = one_box(tmp_path)
    spec = {"image/encoded": MOVING[0], name: feature}
    if remedy is None:
        assert len(open_records(path, decode=spec)) == 1
        return
    with pytest.raises(ValueError, match=f"give {remedy} instead"):
        open_records(path, decode=spec)


@pytest.mark.parametrize(
    ("boxes", "values", "message"),
    [
        (Boxes("rel_xyxy", "b", classes=None), (20, 10, 60, 40), r"'xyxy' has pixels\), found 60"),
        (Boxes("xyxy", "b", classes=None), (0.1, 0.2, 0.3, 0.4), "'rel_xyxy' has parts"),
        (Boxes("xyxy", "b", classes=None), (20, 10, 15, 40), "left and upper sides are before"),
        (Boxes("xywh", "b", classes=None), (20, 10, -15, 40), "left and upper sides are before"),
        (Boxes("xyxy", "b", classes=None), (20, np.nan, 15, 40), "finite coordinates"),
        (Boxes("xyxy", "b", classes=None), (20, 10, 15), "a multiple of 4 coordinates, found 3"),
        (Boxes("xyxy", "b", classes="c"), (20, 10, 55, 40), "'classes' of 1 boxes, found of 2"),
        (Boxes("xyxy", "other", classes=None), (1, 2, 3, 4), r"Boxes\(optional=True\) takes"),
        (Points("xy", "b"), (20, 10, 15), "a multiple of 2 coordinates, found 3"),
        (Points("rel_xy", "b"), (20, 10), "'xy' has pixels"),
    ],
)
def test_records_without_such_boxes_are_errors(tmp_path, boxes, values, message):
    features = {"image": [npy(gradient(80, 90))], "b": list(map(float, values)), "c": [1, 2]}
    payload = example(features)
    source = opened(tmp_path, [payload], {"image": ImageDecoder(8), "boxes": boxes})
    with pytest.raises(RecordError, match=message) as raised:
        source[0]
    assert "feature 'boxes'" in str(raised.value)


def test_records_with_columns_of_several_lengths(tmp_path):
    values = {name: [0.1] * (1 + (name == BBOX[2])) for name in BBOX}
    payload = example({**values, scenes.LABEL: [1]})
    source = opened(tmp_path, [payload], {"boxes": Boxes(output="rel_xyxy")})
    with pytest.raises(RecordError, match=r"as many values of each .*found \[1, 1, 2, 1\]"):
        source[0]


def test_records_without_boxes_have_none(tmp_path):
    """Lists without values, and with ``optional``, also no lists at all."""
    empty = detection(npy(gradient(9, 9)), np.zeros((0, 4)))
    bare = example({"image/encoded": [npy(gradient(9, 9))]})
    path = written(tmp_path / "a.tfrecord", [empty, bare])
    decoder = MOVING[0]
    source = open_records(path, decode={"image/encoded": decoder, "boxes": Boxes()})
    optional = {"image/encoded": decoder, "boxes": Boxes(optional=True)}
    for sample in (source[0], *open_records(path, decode=optional)):
        assert sample["boxes"]["boxes"].shape == (0, 4)
        assert sample["boxes"]["classes"].shape == (0,)
    with pytest.raises(RecordError, match=r"Boxes\(optional=True\)"):
        source[1]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Boxes("xyyx"), ValueError, "format must be one of xyxy, "),
        (lambda: Boxes(output="coco"), ValueError, "output must be one of xyxy, "),
        (lambda: Boxes(min_visible=1.5), ValueError, "min_visible must be a part .* got 1.5"),
        (lambda: Boxes(min_visible="a"), TypeError, "min_visible must be a number"),
        (lambda: Boxes("xywh"), ValueError, "keys must name where 'xywh' is"),
        (lambda: Boxes(keys=("a", "b")), ValueError, "keys must be 4 names"),
        (lambda: Boxes(keys=3), TypeError, "keys must be names in the record, got 3"),
        (lambda: Boxes(classes=3), TypeError, "classes must be a name"),
        (lambda: Boxes(per_box={"a": 3}), TypeError, "must be a Feature of values"),
        (lambda: Boxes(per_box={"classes": Feature("int64")}), ValueError, "other names"),
        (lambda: Boxes(image=3), TypeError, "image must be a name"),
        (lambda: Boxes(optional=3), TypeError, "optional must be True or False"),
        (lambda: Boxes(stored="raw"), ValueError, "stored must be"),
        (lambda: Boxes(stored="im2rec"), ValueError, r"Boxes.im2rec\(\) sets them"),
        (lambda: Points("xyxy"), ValueError, "format must be one of xy, yx, rel_xy, rel_yx"),
    ],
)
def test_arguments_are_checked(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_mapping_is_checked(tmp_path):
    path = one_box(tmp_path)
    with pytest.raises(ValueError, match="must have output='rel_xyxy' without an ImageDecoder"):
        open_records(path, decode={"boxes": Boxes()})
    with pytest.raises(ValueError, match="must not rename 'boxes', which has several names"):
        open_records(path, decode={"boxes": Boxes(output="rel_xyxy")}, fields={"boxes": "b"})
    spec = {"image/encoded": ImageDecoder(8), "boxes": Boxes()}
    cached = open_records(path, decode=spec, cache=tmp_path / "read")
    assert cached[0]["boxes"]["boxes"].shape == (0, 4)


@pytest.mark.parametrize("boxes", [[[1, 2, 3, 4]], np.zeros((2, 4)), {"boxes": []}, []])
def test_boxes_as_labels_of_files_are_an_error(tmp_path, boxes):
    remedy = "give the row's number as the label, and have a transform look them up"
    with pytest.raises(ValueError, match=remedy):
        open_images([(tmp_path / "a.png", boxes), (tmp_path / "b.png", [[1, 2, 3, 4]])])
