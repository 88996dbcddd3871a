"""What ``open_records`` returns, and paths, in ``gluon_loader``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import SimpleDataset
from mxnet.gluon.data.vision import ImageRecordDataset
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters import Feature, ImageDecoder, RecordError, gluon_loader, open_records, pack
from adapters.engine.tuning import Trial
from adapters.generators import DECODE, generator
from adapters.images.geometry import cut, short_side
from tests.gluon.data_sets import assert_same, numpy_semantics, theirs
from tests.gluon.executors import (
    EXECUTORS,
    THREADS,
    every_executor,
    every_kind,
    every_quick_executor,
    opened,
)
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, notes_of, plan_of
from tests.sources.example_files import encoded as encoded_example
from tests.sources.example_files import file_of, sample
from tests.sources.record_files import FORMATS, SIZE, damage, jpeg_file, raw_file, write_images

every_format = pytest.mark.parametrize("format", FORMATS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
DECODES: dict[str, Any] = {
    "image": "image",
    "random": RANDOM,
    "float": ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The same images in each format."""
    folder = tmp_path_factory.mktemp("files")
    contents = [encoded(picture(20, 30 + n)[:, :30], "JPEG") for n in range(SIZE)]
    return {each: write_images(folder / f"{each}.x", each, contents) for each in FORMATS}


def numpies(batches: Any) -> list[Any]:
    """Pixels and labels of all batches, as float64."""
    return [[member.asnumpy().astype(np.float64).tolist() for member in b] for b in batches]


@every_quick_executor
@every_format
def test_stored_pixels_are_cropped_as_their_samples_are(tmp_path, format, executor):
    path = tmp_path / "x"
    pack([(picture(30 + n, 41), n) for n in range(SIZE)], path, format=format, encoding="raw")
    (file,) = tmp_path.glob("x-0*[!x]")
    source = open_records(file, decode=RANDOM)
    with opened(source, executor, batch_size=4, seed=3) as loader:
        images = [image for batch in numpies(loader) for image in batch[0]]
    expected = [source.sample(n, generator(3, 0, n, DECODE))[0].tolist() for n in range(SIZE)]
    assert images == expected


@pytest.mark.parametrize("size", [(20, 30), (7, 9), (50, 31), (1, 1)])
def test_resizing_is_that_of_mxnet(size):
    image = picture(20, 30)
    expected = mx.image.imresize(mx.nd.array(image, dtype="uint8"), size[1], size[0], interp=1)
    found = ImageDecoder(size).decode(encoded(image, "PNG"))
    np.testing.assert_array_equal(found, expected.asnumpy())


@pytest.mark.parametrize("size", [(20, 30), (30, 20), (33, 47), (9, 9), (1, 5)])
@pytest.mark.parametrize("short", [5, 8, 20, 41])
def test_resize_short_is_that_of_mxnet(size, short):
    image = picture(*size)
    expected = mx.image.resize_short(mx.nd.array(image, dtype="uint8"), short, interp=1)
    found = ImageDecoder(resize_short=short).decode(encoded(image, "PNG"))
    np.testing.assert_array_equal(found, expected.asnumpy())


@pytest.mark.parametrize("size", [(12, 10), (20, 30), (11, 13), (40, 44), (33, 7)])
def test_a_center_crop_after_resize_short_is_that_of_mxnet(size):
    image = picture(33, 47)
    resized = mx.image.resize_short(mx.nd.array(image, dtype="uint8"), 24, interp=1)
    expected = mx.image.center_crop(resized, size[::-1], interp=1)[0]
    decoder = ImageDecoder(size, crop="center", resize_short=24)
    np.testing.assert_array_equal(decoder.decode(encoded(image, "PNG")), expected.asnumpy())


@pytest.mark.parametrize("size", [(10, 10), (7, 31), (50, 3), (16, 24)])
@pytest.mark.parametrize("image", [(3, 5), (2, 5), (24, 24), (11, 60)])
def test_a_box_for_a_smaller_image_is_that_of_mxnet(size, image):
    scaled = mx.image.scale_down(short_side(*image, 2)[::-1], size[::-1])[::-1]
    crop = cut(*image, size, 2, False, None)
    assert (crop.height, crop.width) == tuple(max(1, side) for side in scaled)


@pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")  # MXNet's pack_img.
def test_image_gives_what_mxnets_own_data_set_gives(tmp_path):
    """As ``mx.recordio`` writes it, JPEG and PNG, in batches as well."""
    path = str(tmp_path / "a.rec")
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), path, "w")
    for n in range(SIZE):
        header = mx.recordio.IRHeader(0, n / 2, n, 0)
        image = picture(20, 30) // (n + 1)
        kind = {"img_fmt": ".jpg", "quality": 90} if n % 2 else {"img_fmt": ".png", "quality": 3}
        writer.write_idx(n, mx.recordio.pack_img(header, image, **kind))
    writer.close()
    expected = theirs(ImageRecordDataset(path), batch_size=4)
    with opened(open_records(path, decode="image"), "inline") as loader:
        assert_same(list(loader), expected)


@every_executor
def test_our_files_give_what_mxnets_own_data_set_gives(executor, files, tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(files["recordio"].read_bytes())
    path.with_suffix(".idx").write_bytes(Path(f"{files['recordio']}.idx").read_bytes())
    expected = theirs(ImageRecordDataset(str(path)), batch_size=4)
    with opened(open_records(path, decode="image"), executor) as loader:
        assert_same(list(loader), expected)


@pytest.mark.parametrize(
    ("format", "decode", "semantics"),
    [
        ("recordio", "image", False),
        ("tfrecord", "image", True),
        ("recordio", "random", True),
        ("tfrecord", "random", False),
        ("recordio", "float", False),
    ],
)
def test_every_executor_gives_the_same_bits(files, format, decode, semantics):
    with numpy_semantics(semantics):
        passes = []
        for executor in EXECUTORS:
            source = open_records(files[format], decode=DECODES[decode])
            with opened(source, executor, shuffle=True, seed=3) as loader:
                passes.append([*loader, *loader])
        assert_same(passes[1], passes[0])
        assert_same(passes[2], passes[0])


@pytest.mark.parametrize("decode", DECODES)
def test_both_formats_give_the_same_samples(files, decode):
    passes = []
    for format in FORMATS:
        with opened(open_records(files[format], decode=DECODES[decode]), THREADS, seed=1) as loader:
            passes.append(numpies(loader))
    assert passes[0] == passes[1]


def test_a_random_crop_is_the_one_of_safe_sequence(files):
    """Of that seed and epoch, and of the sample's number, whatever the framework."""
    source = open_records(files["tfrecord"], decode=RANDOM)
    with opened(source, "inline", SIZE, seed=4) as loader:
        for epoch in range(2):
            (images, _), *_ = loader
            expected = batch_of(plan_of(source, SIZE, seed=4), epoch)[0]
            np.testing.assert_array_equal(images.asnumpy(), expected)


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("semantics", [False, True])
def test_images_and_labels_are_of_the_kind_in_use(files, decode, semantics):
    with numpy_semantics(semantics):
        kind = mx.np.ndarray if semantics else mx.nd.NDArray
        source = open_records(files["recordio"], decode=DECODES[decode])
        with opened(source, "inline") as loader:
            batch = next(iter(loader))
            assert [type(member) for member in batch] == [kind, kind]


@every_format
def test_a_path_and_a_glob_are_data_sets_of_images(files, format):
    with opened(str(files[format]), "inline") as loader:
        expected = numpies(loader)
    with opened(str(files[format].parent / f"{format}*"), "inline") as loader:
        assert numpies(loader) == expected
    assert len(expected) == -(-SIZE // 4)


@every_executor
@every_format
def test_raw_arrays_are_what_they_were(executor, format, tmp_path):
    source = open_records(raw_file(tmp_path, format), decode="image")
    with opened(source, executor, shuffle=True, seed=1) as loader:
        batches = list(loader)
    labels = np.concatenate([batch[1].asnumpy() for batch in batches]).astype(int)
    assert sorted(labels) == list(range(SIZE))
    images = np.concatenate([batch[0].asnumpy() for batch in batches])
    np.testing.assert_array_equal(images, [source[n][0] for n in labels.tolist()])


@every_quick_executor
@every_format
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_to_tensor_of_the_images_is_what_it_is_in_mxnet(executor, format, decode, files):
    data = SimpleDataset(open_records(files[format], decode=decode)).transform_first(ToTensor())
    pairs = [
        (ToTensor()(mx.nd.array(image, dtype="uint8")), label)
        for image, label in open_records(files[format], decode=decode)
    ]
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(SimpleDataset(pairs), batch_size=4))


@every_quick_executor
def test_a_part_of_a_source_is_that_part(executor, files):
    data = SimpleDataset(open_records(files["tfrecord"], decode=RANDOM)).shard(2, 1)
    with opened(data, executor, len(data)) as loader:
        (_, labels), *_ = loader
    assert labels.asnumpy().tolist() == list(range(6, SIZE))


@every_executor
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_a_damaged_record_is_named_with_its_sample(executor, decode, tmp_path):
    path = jpeg_file(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 100)
    loader = opened(open_records(path, decode=decode), executor, SIZE)
    with loader, pytest.raises(RecordError, match=rf"{path}, record 10, byte \d+: ") as caught:
        list(loader)
    assert "in sample 10" in notes_of(caught.value)


@every_executor
def test_a_function_decodes_records(executor, tmp_path):
    path = raw_file(tmp_path, "recordio")
    with opened(open_records(path, decode=len), executor, SIZE) as loader:
        assert [batch.asnumpy().tolist() for batch in loader] == [[24 + 128 + 60] * SIZE]


@every_kind
def test_draws_of_a_decode_function_are_those_of_each_sample(executor, tmp_path):
    """They were the same in every batch, and those of ``random`` others in every run."""

    def decode(content: bytes) -> list[float]:
        return [random.random(), np.random.rand()]

    source = open_records(raw_file(tmp_path, "recordio"), decode=decode)

    def rows(batch_size: int) -> list[Any]:
        with opened(source, executor, batch_size, seed=5) as loader:
            return [row for batch in loader for row in batch.asnumpy().tolist()]

    drawn = rows(4)
    assert len(set(map(tuple, drawn))) == SIZE
    assert rows(3) == drawn


def test_negative_numbers_of_a_sampler_count_from_the_end(tmp_path):
    source = open_records(raw_file(tmp_path, "recordio"), decode="image")
    with gluon_loader(source, 2, sampler=[-1, 3], num_workers=0) as loader:
        assert [batch[1].asnumpy().tolist() for batch in loader] == [[10, 3]]


def test_raw_grey_images_keep_their_one_channel(tmp_path):
    """As MNIST is stored."""
    path = write_images(tmp_path / "a.rec", "recordio", [npy(picture(28, 28, 1))] * 3)
    with opened(open_records(path, decode="image"), "inline") as loader:
        assert next(iter(loader))[0].shape == (3, 28, 28, 1)


@every_format
def test_a_loader_knows_whether_it_only_decodes_images(files, format):
    """For those, threads are right without a measurement."""
    source = open_records(files[format], decode=RANDOM)
    assert gluon_loader(source, 4)._plan.only_decodes
    first_member = SimpleDataset(source).transform_first(ToTensor())
    others = [
        gluon_loader(open_records(files[format], decode="image"), 4),
        gluon_loader(first_member, 4),
        gluon_loader(source, 4, batchify_fn=lambda samples: samples),
        gluon_loader(SimpleDataset(source).transform(lambda *sample: sample), 4),
        gluon_loader(SimpleDataset([1, 2, 3]), 2),
    ]
    assert not any(loader._plan.only_decodes for loader in others)


def test_auto_looks_at_the_images_that_a_batch_sampler_gives(files):
    """Threads are right without a measurement for large images only, not for large batches."""
    source = open_records(files["recordio"], decode=RANDOM)
    sampler = [[0, 1, 2] * 4, [3, 4, 5] * 4]
    with gluon_loader(source, batch_sampler=sampler) as loader:
        trial = Trial(loader._plan, False)
        stream = loader._engine.drawn_stream(0, iter(sampler))
        trial.step(stream)
        trial.step(stream)
        assert trial._samples == 12


@every_executor
def test_a_selection_of_records_is_a_data_set_of_them(executor, files):
    source, chosen = open_records(files["recordio"], decode=ImageDecoder(8)), [7, 2, 5, 2]
    with opened(source.select(chosen), executor) as loader:
        ((images, labels),) = loader
        assert labels.asnumpy().tolist() == chosen
        for row, number in enumerate(chosen):
            np.testing.assert_array_equal(images[row].asnumpy(), source[number][0])


# --- features ---

RECORDS = 20
SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int64"),
    "weight": Feature("float32"),
}


def source_of(folder: Any, outputs: Any = ("image", "label"), spec: Any = None) -> Any:
    path = file_of(folder, [encoded_example(sample(number)) for number in range(RECORDS)])
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
        return encoded_example({"image": [encoded(picture(20, 30), "JPEG")], "label": [number]})

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
    path = file_of(tmp_path, [encoded_example({"a": list(range(n)), "b": [n]}) for n in range(4)])
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
