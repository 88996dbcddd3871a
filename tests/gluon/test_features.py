"""Typed features of records in ``gluon_loader``."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters import Feature, ImageDecoder, RecordError, gluon_loader, open_records
from tests.gluon.executors import every_quick_executor, opened
from tests.images.pictures import encoded as picture_file
from tests.images.pictures import picture
from tests.sources.example_files import encoded, file_of, sample
from tests.sources.record_files import damage

SIZE = 20
SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int64"),
    "weight": Feature("float32"),
}


def source_of(folder: Any, outputs: Any = ("image", "label"), spec: Any = None) -> Any:
    path = file_of(folder, [encoded(sample(number)) for number in range(SIZE)])
    return open_records(path, decode=spec or SPEC, outputs=outputs)


def by_itself(source: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The samples that are asked for by themselves."""
    asked: list[int] = []
    sample = type(source).sample

    def noted(self: Any, number: int, rng: Any = None) -> Any:
        asked.append(number)
        return sample(self, number, rng)

    monkeypatch.setattr(type(source), "sample", noted)
    return asked


@every_quick_executor
def test_batches_are_gathered(tmp_path, executor, monkeypatch):
    source = source_of(tmp_path)
    asked = by_itself(source, monkeypatch)
    with opened(source, executor, 8) as loader:
        batches = [[member.asnumpy() for member in batch] for batch in loader]
    assert asked == []
    for number, (image, label) in enumerate(zip(*map(np.concatenate, zip(*batches)))):
        expected = sample(number)
        assert image.tobytes() == expected["image"][0]
        assert [label] == expected["label"]
    assert (batches[0][0].dtype, batches[0][1].dtype) == (np.uint8, np.int64)


def test_three_members_and_one(tmp_path):
    for outputs in (("weight", "image", "label"), ("label",)):
        source = source_of(tmp_path, outputs)
        with gluon_loader(source, 5, num_workers=0) as loader:
            batch = next(iter(loader))
        assert [member.shape for member in batch] == [
            (5, *np.shape(each)) for each in source.sample(0)
        ]
        for row in range(5):
            for member, value in zip(batch, source.sample(row)):
                np.testing.assert_array_equal(member[row].asnumpy().reshape(value.shape), value)


def test_a_transform_of_the_image_is_given_what_mxnet_takes(tmp_path):
    """A batch at a time where it is known, with the same result as one by one."""
    source = source_of(tmp_path)
    data = mx.gluon.data.SimpleDataset(source)
    with gluon_loader(data.transform_first(ToTensor()), 4, num_workers=0) as loader:
        images, labels = next(iter(loader))
    assert images.shape == (4, 4, 2, 3)
    for row in range(4):
        image, label = source[row]
        expected = ToTensor()(mx.nd.array(image, dtype="uint8"))
        np.testing.assert_array_equal(images[row].asnumpy(), expected.asnumpy())
        assert labels[row].asscalar() == label


def test_a_function_is_given_the_sample_as_it_is(tmp_path):
    source = source_of(tmp_path, ("weight", "label"))
    data = mx.gluon.data.SimpleDataset(source)
    kinds = []

    def noted(weight: Any, label: Any) -> Any:
        kinds.append((type(weight), type(label)))
        return weight * 2, label

    with gluon_loader(data.transform(noted), 4, num_workers=0) as loader:
        weights, _ = next(iter(loader))
    assert set(kinds) == {(np.float32, np.int64)} == {tuple(map(type, source[0]))}
    assert weights[1].asscalar() == 2 * source[1][0]


def test_images_are_decoded_into_the_batch(tmp_path, monkeypatch):
    def payload(number: int) -> bytes:
        return encoded({"image": [picture_file(picture(20, 30), "JPEG")], "label": [number]})

    path = file_of(tmp_path, map(payload, range(6)))
    decoder = ImageDecoder(16, crop="random_resized", flip=True)
    spec = {"image": decoder, "label": Feature("int64")}
    source = open_records(path, decode=spec, outputs=("image", "label"))
    asked = by_itself(source, monkeypatch)
    with gluon_loader(source, 6, num_workers=0, seed=3) as loader:
        images, labels = next(iter(loader))
    assert asked == []
    assert (images.shape, labels.asnumpy().tolist()) == ((6, 16, 16, 3), list(range(6)))
    assert len({image.asnumpy().tobytes() for image in images}) == 6


def test_lengths_that_vary_are_filled_up(tmp_path):
    path = file_of(tmp_path, [encoded({"a": list(range(n)), "b": [n]}) for n in range(4)])
    spec = {"a": Feature("int32", (None,), default=-1), "b": Feature("int64")}
    with gluon_loader(
        open_records(path, decode=spec, outputs=("a", "b")), 3, num_workers=0
    ) as loader:
        found = [member.asnumpy().tolist() for member in next(iter(loader))]
    assert found == [[[-1, -1], [0, -1], [0, 1]], [0, 1, 2]]


def test_a_dict_is_refused_with_the_remedy(tmp_path):
    with (
        gluon_loader(source_of(tmp_path, None), 4, num_workers=0) as loader,
        pytest.raises(TypeError, match=r"got a dict of .* outputs=.* transform="),
    ):
        next(iter(loader))


def test_a_damaged_record_is_an_error(tmp_path):
    source = source_of(tmp_path)
    path = tmp_path / "a.tfrecord"
    place = path.read_bytes().index(sample(2)["image"][0])
    source.close()
    damage(path, place)
    source = open_records(path, decode=SPEC, outputs=("image", "label"))
    with (
        gluon_loader(source, 4, num_workers=0) as loader,
        pytest.raises(RecordError, match=r"record 2, .* the CRC of the data"),
    ):
        next(iter(loader))


def test_what_mxnet_packs(tmp_path):
    """By the names of what is in it: label, id and payload."""
    names = str(tmp_path / "b.idx"), str(tmp_path / "b.rec")
    record = mx.recordio.MXIndexedRecordIO(*names, "w")
    for number in range(6):
        header = mx.recordio.IRHeader(0, float(number), number, 0)
        record.write_idx(number, mx.recordio.pack(header, bytes([number] * 6)))
    record.close()
    spec = {
        "image": Feature("uint8", (2, 3), stored="raw"),
        "label": Feature("float32"),
        "id": Feature("int64"),
    }
    source = open_records(names[1], decode=spec, outputs=("image", "label", "id"))
    with gluon_loader(source, 4) as loader:
        image, label, number = next(iter(loader))
    assert image.asnumpy()[:, 0, 0].tolist() == label.asnumpy().tolist() == [0, 1, 2, 3]
    assert number.asnumpy().tolist() == [0, 1, 2, 3]
    assert (image.dtype, label.dtype) == (np.uint8, np.float32)
