"""What ``adapters inspect`` prints to be pasted makes right batches; tensors in records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Boxes, Feature, ImageDecoder, RecordError, SafeSequence, open_records, pad
from adapters.cli import main
from tests.contract.detection import detection, example, gradient, written
from tests.contract.image_files import COLOURS, IDS, SIXTEEN, encoded, palette
from tests.images.pictures import npy


def suggestion(path: str | Path, capsys: Any) -> tuple[str, dict[str, Any]]:
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    names: dict[str, Any] = {"Boxes": Boxes, "Feature": Feature, "ImageDecoder": ImageDecoder}
    exec(said[said.index("decode = {") :], names)
    return said, names["decode"]


def pasted(path: Path, capsys: Any) -> dict[str, Any]:
    return suggestion(path, capsys)[1]


def test_pasted_masks(tmp_path, capsys):
    features = {
        "image": [encoded(COLOURS, "JPEG")],
        "mask": [encoded(IDS)],
        "palette": [encoded(palette())],
        "instances": [encoded(SIXTEEN)],
    }
    path = written(tmp_path / "a.tfrecord", [example(features)] * 2)
    sample = open_records(path, decode=pasted(path, capsys))[0]
    assert sample["image"].shape == (30, 40, 3)
    for name, expected in {"mask": IDS, "palette": IDS, "instances": SIXTEEN}.items():
        np.testing.assert_array_equal(sample[name][..., 0], expected)


def test_pasted_grey_image(tmp_path, capsys):
    path = written(tmp_path / "a.tfrecord", [example({"image": [encoded(IDS)]})])
    assert repr(pasted(path, capsys)["image"]) == "ImageDecoder(None)"


def test_pasted_boxes(tmp_path, capsys):
    text, ids = "image/object/class/text", "image/object/id"
    given = [np.array([[0.1, 0.1, 0.6, 0.8]] * count).reshape(-1, 4) for count in (2, 1, 3)]
    records = [
        detection(
            npy(gradient(20, 30)), each, **{text: [b"cat"] * len(each), ids: [b"\xff"] * len(each)}
        )
        for each in given
    ]
    path = written(tmp_path / "a.tfrecord", records)
    decode = pasted(path, capsys)
    assert decode.keys() == {"boxes", "image/encoded"}
    source = open_records(path, decode=decode, outputs=("image/encoded", "boxes"))
    with SafeSequence(source, 3, collate=pad((None, -1))) as batches:
        _, targets = batches[0]
    assert targets["boxes"].shape == (3, 3, 4)
    assert (targets["classes"] >= 0).sum(1).tolist() == [2, 1, 3]


# --- serialized tensors, and images in feature lists ---


tf = pytest.importorskip("tensorflow")
DTYPES = ["float32", "float64", "float16", "int8", "uint16", "int32", "uint64", "bool", "complex64"]


def serialized(array: object) -> bytes:
    return tf.io.serialize_tensor(tf.constant(array)).numpy()


def file_of(tmp_path, *arrays: object) -> str:
    payloads = [example({"x": [serialized(array)]}) for array in arrays]
    return written(tmp_path / "train.tfrecord", payloads)


PHOTO = encoded(np.zeros((24, 32, 3), np.uint8), "JPEG")


def frames(count: int) -> bytes:
    step = tf.train.Feature(bytes_list=tf.train.BytesList(value=[PHOTO]))
    lists = {"frames": tf.train.FeatureList(feature=[step] * count)}
    return tf.train.SequenceExample(
        feature_lists=tf.train.FeatureLists(feature_list=lists)
    ).SerializeToString()


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [*((dtype, (2, 3, 4)) for dtype in DTYPES), *(("int32", each) for each in ((), (3,), (0, 4)))],
)
def test_tensor_is_read_as_a_feature(tmp_path, dtype, shape):
    arrays = [(np.random.default_rng(n).random(shape) * 5).astype(dtype) for n in range(3)]
    path = file_of(tmp_path, *arrays)
    wanted = (None, *shape[1:]) if shape[:1] == (0,) else shape
    samples = open_records(path, decode={"x": Feature(dtype, wanted, stored="tensor")})[:]
    for array, sample in zip(arrays, samples):
        assert sample["x"].dtype == dtype
        np.testing.assert_array_equal(sample["x"], array)


def test_tensors_in_batches(tmp_path):
    arrays = [np.full((length, 2), length, np.float32) for length in (1, 3, 2)]
    path = file_of(tmp_path, *arrays)
    given = {"x": Feature("float32", (None, 2), stored="tensor", default=-1)}
    with SafeSequence(open_records(path, decode=given), 3) as batches:
        batch = batches[0]["x"]
    assert batch.shape == (3, 3, 2)
    assert batch[0, :, 0].tolist() == [1, -1, -1]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (Feature("float32", (2, 2), stored="tensor"), r"one of float32 \(2, 3\)"),
        (Feature("int32", (2, 3), stored="tensor"), r"one of float32 \(2, 3\)"),
        (Feature("float32", (2, 3), stored="raw"), 'stored="tensor"'),
        (Feature("float32", (2, 3)), 'stored="tensor"'),
    ],
)
def test_tensor_as_another_feature(tmp_path, given, found):
    path = file_of(tmp_path, np.zeros((2, 3), np.float32))
    with pytest.raises(RecordError, match=f"feature 'x' .*{found}"):
        open_records(path, decode={"x": given})[0]


def test_tensor_of_texts(tmp_path):
    path = file_of(tmp_path, [b"one", b"two"])
    with pytest.raises(RecordError, match="string"):
        open_records(path, decode={"x": Feature("float32", (2,), stored="tensor")})[0]
    with pytest.raises(RecordError, match=r"tf\.io\.parse_tensor"):
        open_records(path, decode={"x": Feature("float32", (2,))})[0]


def test_tensor_arguments():
    with pytest.raises(ValueError, match=r'"tensor".*got \'proto\''):
        Feature("float32", stored="proto")
    with pytest.raises(ValueError, match='stored="tensor" must have a dtype of numbers'):
        Feature(str, stored="tensor")


@pytest.mark.parametrize("lengths", [(2, 2), (2, 5)])
def test_pasted_tensors(tmp_path, lengths, capsys):
    arrays = [np.ones((length, 3), np.float32) for length in lengths]
    path = file_of(tmp_path, *arrays)
    text, decode = suggestion(path, capsys)
    assert "x: serialized tensor float32 (2, 3)" in text
    for array, sample in zip(arrays, open_records(path, decode=decode)[:]):
        np.testing.assert_array_equal(sample["x"], array)


def test_record_that_is_a_tensor(tmp_path, capsys):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = written(tmp_path / "a.tfrecord", [serialized(array)])
    assert main(["inspect", path]) == 0
    text = capsys.readouterr().out
    assert "a serialized tensor of float32 (2, 3)" in text
    assert 'tf.io.parse_tensor(record, "float32").numpy()' in text
    for decode in ({"x": Feature("float32", (2, 3))}, "example", "image"):
        with pytest.raises(RecordError, match=r"a serialized tensor of float32 .*parse_tensor"):
            open_records(path, decode=decode)[0]


def test_pasted_feature_lists_of_images(tmp_path, capsys):
    path = written(tmp_path / "a.tfrecord", [frames(2), frames(3)])
    text, decode = suggestion(path, capsys)
    assert "frames: 2 steps" in text
    assert "decode each in transform" in text
    decoder = ImageDecoder(16, flip=True)

    def decoded(sample, rng):
        return np.stack([decoder.decode(image, rng) for image in sample["frames"]])

    with SafeSequence(open_records(path, decode=decode), 1, transform=decoded) as batches:
        assert [batch.shape for batch in batches] == [(1, 2, 16, 16, 3), (1, 3, 16, 16, 3)]


def test_image_decoder_for_several_images(tmp_path):
    path = tmp_path / "a.tfrecord"
    for payload in (example({"frames": [PHOTO, PHOTO]}), frames(2)):
        written(path, [payload])
        with pytest.raises(RecordError, match=r"'frames'.*Feature\(bytes, \(None,\)\)"):
            open_records(path, decode={"frames": ImageDecoder(16)})[0]
    with pytest.raises(RecordError, match=r"feature lists frames.*Feature\(bytes, \(None,\)\)"):
        open_records(path, decode="image")[0]
