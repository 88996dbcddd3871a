"""What would be wrong boxes in silence is an error that says what to write."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import (
    Boxes,
    Feature,
    ImageDecoder,
    Points,
    RecordError,
    open_images,
    open_records,
)
from tests.contract.detection import (
    BBOX,
    LABEL,
    MOVING,
    detection,
    example,
    gradient,
    written,
)
from tests.images.pictures import npy


@pytest.mark.parametrize("decoder", MOVING)
@pytest.mark.parametrize("name", [*BBOX, "image/object/keypoint/x"])
def test_coordinates_that_would_stay_where_they_were_are_an_error(tmp_path, decoder, name):
    path = written(tmp_path / "a.tfrecord", [detection(npy(gradient(9, 9)), np.zeros((1, 4)))])
    feature = Feature("float32", (None,), default=0)
    kind = "Points" if "keypoint" in name else "Boxes"
    for spec, fields in (({name: feature}, None), ({"y": feature}, {"y": name})):
        with pytest.raises(ValueError, match=rf"crops or flips, .* give {kind}\(\) instead"):
            open_records(path, decode={"image/encoded": decoder, **spec}, fields=fields)
        plain = {"image/encoded": ImageDecoder(16), **spec}
        assert len(open_records(path, decode=plain, fields=fields)) == 1


@pytest.mark.parametrize(
    ("name", "feature", "remedy"),
    [
        ("objects/bbox", Feature("float32", (None, 4)), "Boxes"),
        ("objects/bbox", Feature("float32", (None,)), "Boxes"),
        ("gt_boxes", Feature("int64", (5, 4)), "Boxes"),
        ("xmin", Feature("float32"), "Boxes"),
        ("face/landmarks", Feature("float32", (68, 2)), "Points"),
        ("keypoints", Feature("float32", (None, 3)), "Points"),
        ("box", Feature("float32"), None),
        ("boxes/count", Feature("int64"), None),
        ("label", Feature("float32", (None, 4)), None),
        ("box", Feature(str, (4,)), None),
    ],
)
def test_coordinates_are_told_by_name_and_shape(tmp_path, name, feature, remedy):
    path = written(tmp_path / "a.tfrecord", [detection(npy(gradient(9, 9)), np.zeros((1, 4)))])
    spec = {"image/encoded": MOVING[0], name: feature}
    if remedy is None:
        assert len(open_records(path, decode=spec)) == 1
        return
    with pytest.raises(ValueError, match=rf"give {remedy}\(format, keys, \.\.\.\) instead"):
        open_records(path, decode=spec)


def test_tensorflows_specification_of_boxes_would_stay_too(tmp_path):
    class VarLenFeature:
        dtype = "float32"

    path = written(tmp_path / "a.tfrecord", [detection(npy(gradient(9, 9)), np.zeros((1, 4)))])
    with pytest.raises(ValueError, match=r"give Boxes\(\) instead"):
        open_records(path, decode={"image/encoded": MOVING[0], BBOX[0]: VarLenFeature()})


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
def test_records_that_hold_no_such_boxes_are_errors(tmp_path, boxes, values, message):
    payload = example(
        {"image": [npy(gradient(80, 90))], "b": list(map(float, values)), "c": [1, 2]}
    )
    path = written(tmp_path / "a.tfrecord", [payload])
    source = open_records(path, decode={"image": ImageDecoder(8), "boxes": boxes})
    with pytest.raises(RecordError, match=message) as raised:
        source[0]
    assert "feature 'boxes'" in str(raised.value)


def test_an_error_of_a_target_of_several_features_names_no_feature_that_is_none(tmp_path):
    record = detection(npy(gradient(9, 9)), np.array([[0.5, 0.5, 0.1, 0.1]]))
    path = written(tmp_path / "a.tfrecord", [record])
    with pytest.raises(RecordError, match="expected feature 'boxes' with boxes of 'rel_yxyx'"):
        open_records(path, decode={"image/encoded": MOVING[0], "boxes": Boxes()})[0]


def test_columns_of_several_lengths_are_an_error(tmp_path):
    values = {name: [0.1] * (1 + (name == BBOX[2])) for name in BBOX}
    path = written(tmp_path / "a.tfrecord", [example({**values, LABEL: [1]})])
    with pytest.raises(RecordError, match=r"as many values of each .*found \[1, 1, 2, 1\]"):
        open_records(path, decode={"boxes": Boxes(output="rel_xyxy")})[0]


def test_a_record_without_boxes_has_none(tmp_path):
    """Lists without values, and with ``optional``, also no lists at all."""
    empty = detection(npy(gradient(9, 9)), np.zeros((0, 4)))
    bare = example({"image/encoded": [npy(gradient(9, 9))]})
    path = written(tmp_path / "a.tfrecord", [empty, bare])
    decoder = MOVING[0]
    source = open_records(path, decode={"image/encoded": decoder, "boxes": Boxes()})
    optional = {"image/encoded": decoder, "boxes": Boxes(optional=True)}
    for target in (
        source[0]["boxes"],
        *(each["boxes"] for each in open_records(path, decode=optional)),
    ):
        assert target["boxes"].shape == (0, 4)
        assert target["classes"].shape == (0,)
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
def test_arguments_that_cannot_be_are_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_mapping_that_cannot_be_is_an_error(tmp_path):
    path = written(tmp_path / "a.tfrecord", [detection(npy(gradient(9, 9)), np.zeros((1, 4)))])
    with pytest.raises(ValueError, match="must have output='rel_xyxy' without an ImageDecoder"):
        open_records(path, decode={"boxes": Boxes()})
    with pytest.raises(ValueError, match="must not rename 'boxes', which has several names"):
        open_records(path, decode={"boxes": Boxes(output="rel_xyxy")}, fields={"boxes": "b"})
    spec = {"image/encoded": ImageDecoder(8), "boxes": Boxes()}
    cached = open_records(path, decode=spec, cache=tmp_path / "read")
    assert cached[0]["boxes"]["boxes"].shape == (0, 4)


@pytest.mark.parametrize("boxes", [[[1, 2, 3, 4]], np.zeros((2, 4)), {"boxes": []}, [], None])
def test_boxes_as_labels_of_files_are_an_error_with_the_remedy(tmp_path, boxes):
    remedy = "give the row's number as the label, and have a transform look them up"
    with pytest.raises(ValueError, match=remedy):
        open_images([(tmp_path / "a.png", boxes), (tmp_path / "b.png", [[1, 2, 3, 4]])])
