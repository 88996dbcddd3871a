"""``materialize``: decoded once, and every batch as it was."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import adapters
from adapters import (
    ImageDecoder,
    RecordWriter,
    concatenate,
    materialize,
    open_images,
    open_records,
    split,
)
from tests.batches import exact
from tests.contract.front_ends import batches_of, loader_of
from tests.contract.occupancy import LENGTH, DataSet, Occupancy
from tests.sources.every_kind import all_samples
from tests.sources.example_files import encoded, file_of
from tests.sources.image_folders import varied
from tests.sources.record_files import FORMATS, damage, jpeg_file

DECODERS = [
    ImageDecoder(16),
    ImageDecoder(16, crop="center", flip=True),
    ImageDecoder((12, 20), crop="center", resize_short=24, layout="NCHW"),
    ImageDecoder(16, crop="random", resize_short=18, flip=True),
    ImageDecoder(16, crop="random_resized", flip=True, area=(0.1, 0.6)),
    ImageDecoder(16, crop="random_resized", dtype="float32", mean=[1, 2, 3], std=4, layout="NCHW"),
    ImageDecoder(16, channels=1, interpolation="nearest"),
]


def batches(source: Any, workers: str = "inline", front_end: str = "keras") -> list[Any]:
    with loader_of(front_end, source, 5, workers=workers, shuffle=True, seed=3) as loader:
        return list(batches_of(loader, epochs=2))


def same(left: Any, right: Any) -> None:
    assert exact(left) == exact(right)


def same_samples(left: Any, right: Any) -> None:
    for one, other in zip(all_samples(left), all_samples(right), strict=True):
        same(one, other)


@pytest.mark.parametrize(
    ("decoder", "format"), [*zip(DECODERS, itertools.cycle(FORMATS))], ids=repr
)
def test_batches_of_records_are_the_same(tmp_path, decoder, format):
    path = jpeg_file(tmp_path, format)
    source = open_records(path, decode=decoder)
    decoded = materialize(source, tmp_path / "decoded")
    same(batches(decoded), batches(source))
    (tmp_path / "other").mkdir()
    again = open_records(jpeg_file(tmp_path / "other", format), decode=decoder)
    with pytest.raises(ValueError, match="another source"):
        materialize(again, tmp_path / "decoded")


@pytest.mark.parametrize("decode", ["image", ImageDecoder(), *DECODERS[3:5]], ids=repr)
def test_samples_of_files_are_the_same(tmp_path, decode):
    source = open_images(varied(tmp_path / "photos"), decode=decode)
    decoded = materialize(source, tmp_path / "decoded")
    assert decoded.classes == source.classes
    same_samples(decoded, source)
    assert type(decoded[1][1]) is type(source[1][1])
    assert decoded[1][0].flags.writeable


@pytest.mark.parametrize("workers", ["2 threads", "2 processes"])
def test_batches_by_all_workers(tmp_path, front_end, workers):
    source = open_images(varied(tmp_path / "photos"), decode=DECODERS[3])
    decoded = materialize(source, tmp_path / "decoded")
    expected = batches(source, "inline", front_end)
    same(batches(decoded, workers, front_end), expected)


def test_parts_are_numbered_anew(tmp_path):
    source = open_images(varied(tmp_path / "photos"), decode=DECODERS[3])
    train, test = split(source, (0.7, 0.3), stratify=source.labels)
    for name, part in (("train", train), ("test", test)):
        decoded = materialize(part, tmp_path / name)
        assert decoded.classes == source.classes
        same(batches(decoded), batches(part))
    decoded = materialize(source, tmp_path / "decoded")
    same(batches(decoded.select(train.numbers)), batches(train))
    assert decoded.select([1, 2]).classes == source.classes


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_batches_of_sixteen_bits_and_masks(tmp_path, dtype):
    """An image and its mask, cut alike; ids and depths to the bit."""
    rng = np.random.default_rng(0)
    names = [(str(tmp_path / f"image{n}.png"), str(tmp_path / f"mask{n}.png")) for n in range(7)]
    for number, (image, mask) in enumerate(names):
        cv2.imwrite(image, rng.integers(0, 65536, (20 + number, 31, 3), np.uint16))
        cv2.imwrite(mask, rng.integers(0, 20, (20 + number, 31), np.uint8))
    for crop in ("random_resized", "center"):
        shared = {"crop": crop, "flip": True}
        decode = (
            ImageDecoder(16, dtype=dtype, **shared),
            ImageDecoder(16, channels=1, interpolation="nearest", **shared),
        )
        source = open_images(names, decode=decode)
        decoded = materialize(source, tmp_path / f"{dtype} {crop}")
        same(batches(decoded), batches(source))
        assert batches(source)[0][0].max() > 255


def test_samples_of_features(tmp_path):
    def features(number: int) -> dict[str, Any]:
        ok, jpeg = cv2.imencode(".jpg", np.full((20 + number, 30, 3), 9 * number, np.uint8))
        assert ok
        return {
            "image": [jpeg.tobytes()],
            "label": [number],
            "words": [float(each) for each in range(4 * number + 4)],
            "name": [f"number {number}".encode()],
            "tags": [b"a"] * (number % 3),
            "raw": [bytes(range(6))],
        }

    path = file_of(tmp_path, [encoded(features(number)) for number in range(11)])
    decode = {
        "image": ImageDecoder(16, crop="random", resize_short=18, flip=True),
        "label": adapters.Feature("int64"),
        "words": adapters.Feature("float32", (None, 4), default=-1),
        "raw": adapters.Feature("uint8", (2, 3), stored="raw"),
        "missing": adapters.Feature("float32", (2,), default=(1, 2)),
        "tags": adapters.Feature(bytes, (None,), default=b"-"),
    }
    source = open_records(path, decode=decode)
    same(batches(materialize(source, tmp_path / "decoded")), batches(source))
    pairs = open_records(path, decode=decode, outputs=("image", "label"))
    decoded = materialize(pairs, tmp_path / "pairs")
    same(batches(decoded), batches(pairs))
    np.testing.assert_array_equal(decoded.labels_of(np.arange(11)), np.arange(11))
    texts = {"name": adapters.Feature(str), "tags": adapters.Feature(str, (None,), default="")}
    source = open_records(path, decode=texts)
    decoded = materialize(source, tmp_path / "texts")
    same_samples(decoded, source)
    same(batches(decoded), batches(source))


class Own:
    def __init__(self, varies: bool = False) -> None:
        self.varies = varies

    def __len__(self) -> int:
        return 9

    def __getitem__(self, number: int) -> Any:
        length = 3 + number * self.varies
        return {
            "x": (np.full((length, 2), number, "float16"), np.float64(number) / 3),
            "y": [number, number / 7, number % 2 == 0],
            "a": {"text": f"é{number}", "bytes": b"\0" * number, "none": None},
            "empty": np.empty((0, 4), "int8"),
            "complex": np.array([1j, number]),
        }


@pytest.mark.parametrize("varies", [False, True])
def test_samples_of_other_data_sets(tmp_path, varies):
    decoded = materialize(Own(varies), tmp_path)
    for number in range(9):
        expected, found = Own(varies)[number], decoded[number]
        for name in ("x", "a", "empty", "complex"):
            same(found[name], expected[name])
        np.testing.assert_array_equal(found["y"], expected["y"])
        assert type(found["x"][1]) is np.float64
    assert list(decoded[3]) == list(Own()[3])


@pytest.mark.parametrize(
    "rows",
    [
        [(np.zeros(2), 3, 2.5, True), (np.ones(2), -4, 1e300, False)],
        [(np.zeros(2, "int8"), 3), (np.ones(2, "float32"), 2.5)],
        # One label here and several there.
        [(np.zeros(2), 1), (np.zeros(2), np.array([1, 2])), (np.zeros(2), np.array([3]))],
        [(0.0, "a"), (1.0, "bc"), (2.0, "")],
    ],
    ids=["Python's numbers", "several dtypes", "several labels", "texts"],
)
def test_samples_of_a_list(tmp_path, rows):
    for one, other in zip(all_samples(materialize(rows, tmp_path)), rows, strict=True):
        same(np.asarray(one[0]), np.asarray(other[0]))
        for mine, its in zip(one[1:], other[1:], strict=True):
            np.testing.assert_array_equal(mine, its)
            assert type(mine) is type(its) or len({type(row[1]) for row in rows}) > 1


def test_samples_are_decoded_once_by_one_thread(tmp_path):
    data_set = DataSet(Occupancy())
    first = materialize(data_set, tmp_path)
    calls = data_set.watch.calls
    again = materialize(data_set, tmp_path)
    assert [*all_samples(first)] == [*all_samples(again)] == [*range(LENGTH)]
    assert LENGTH <= calls <= LENGTH + 1
    assert (data_set.watch.calls, data_set.watch.most) == (calls, 1)


@pytest.mark.parametrize("kind", ["records", "images"])
@pytest.mark.parametrize("ns", [1, 2])
def test_source_whose_files_changed_is_refused(tmp_path, kind, ns):
    """Also if others of the same size and time took their places, as `cp -p` leaves them."""

    def source() -> Any:
        return open_records(path, decode=DECODERS[0]) if is_record else open_images([path])

    is_record = kind == "records"
    path = jpeg_file(tmp_path, "recordio") if is_record else tmp_path / "a.jpg"
    if not is_record:
        path.write_bytes(cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1])
    os.utime(path, ns=(1, 1))
    materialize(source(), tmp_path / "decoded")
    materialize(source(), tmp_path / "decoded")
    os.utime(path, ns=(ns, ns))
    with pytest.raises(ValueError, match="another source, or of files"):
        materialize(source(), tmp_path / "decoded")


def test_decoder_may_change_what_comes_after(tmp_path):
    """Another mean, flip or area is no other decoder; another size is."""
    path = jpeg_file(tmp_path, "recordio")
    first = open_records(path, decode=ImageDecoder(16, crop="random_resized"))
    materialize(first, tmp_path / "decoded")
    other = open_records(path, decode=ImageDecoder(12, crop="random_resized", flip=True))
    decoded, again = (materialize(other, tmp_path / name) for name in ("decoded", "again"))
    same(batches(decoded), batches(again))
    smaller = open_records(path, decode=ImageDecoder(12))
    with pytest.raises(ValueError, match="give another folder"):
        materialize(smaller, tmp_path / "decoded")


class Mine(ImageDecoder):
    """A decoder of the user's."""


def test_source_that_draws_is_refused(tmp_path):
    path = jpeg_file(tmp_path, "recordio")
    with pytest.raises(ValueError, match="the same samples each time"):
        materialize(open_records(path, decode=Mine(9, flip=True)), tmp_path / "a")
    drawn = open_images(varied(tmp_path / "in"), decode=DECODERS[3])
    with pytest.raises(ValueError, match="materialize its parts"):
        materialize(concatenate([drawn, drawn]), tmp_path / "b")
    boxes = open_records(path, decode={"image/encoded": DECODERS[3], "boxes": adapters.Boxes()})
    with pytest.raises(ValueError, match="the same samples each time"):
        materialize(boxes, tmp_path / "c")


def test_samples_that_cannot_be_stored(tmp_path):
    with pytest.raises(TypeError, match="arrays, numbers, str or bytes as '1'"):
        materialize([(np.zeros(2), object())], tmp_path / "a")
    masked = np.ma.masked_less(np.arange(6).reshape(3, 2), 3)
    for source in (masked, [(row,) for row in masked]):
        with pytest.raises(TypeError, match="no masked arrays"):
            materialize(source, tmp_path / "d")
    with pytest.raises(TypeError, match="texts as keys"):
        materialize([{1: np.zeros(2)}], tmp_path / "b")
    with pytest.raises(ValueError, match="on a disk of this machine"):
        materialize([1, 2], "s3://bucket/decoded")
    with pytest.raises(ValueError, match="one structure"):
        materialize([(1, 2), (1, 2, 3)], tmp_path / "c")
    assert not list((tmp_path / "c").glob("*"))
    with pytest.raises(ValueError, match=r"materialize\(source, folder\)"):
        adapters.Cache(tmp_path, decoded=True)


def test_damaged_image_is_told(tmp_path):
    path = jpeg_file(tmp_path, "recordio")
    damage(path, 900)
    with pytest.raises(adapters.RecordError):
        materialize(open_records(path, decode=DECODERS[0]), tmp_path / "decoded")


PROGRAM = """
import sys, time
import numpy as np
from adapters import materialize

class Slow:
    def __len__(self):
        return 200
    def __getitem__(self, number):
        time.sleep(0.003)
        return np.full((64, 64), number), number

decoded = materialize(Slow(), sys.argv[1])
assert all((image == label).all() and label == place
           for place, (image, label) in enumerate(decoded))
print("done", len(decoded))
"""


def test_killed_process_leaves_nothing_half(tmp_path):
    for delay in (0.5, 0.9):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path])
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
    found = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True)
    assert found.stdout == b"done 200\n"
    assert not [path for path in Path(tmp_path).iterdir() if path.name.startswith(".")]


# --- what is told, and what is taken apart ---


def test_processes_wait_for_the_one_that_writes_and_other_sources_are_told(tmp_path):
    """The second one waits for the first, and then looks again."""
    theirs = PROGRAM.replace("(64, 64)", "(32, 32)").replace("Slow", "Other")
    command = [sys.executable, "-c"]
    several = [
        subprocess.Popen([*command, each, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for each in (PROGRAM, theirs, PROGRAM, theirs)
    ]
    said = [each.communicate() for each in several]
    right = [out for out, _ in said if out == b"done 200\n"]
    refused = [error for _, error in said if b"has the samples of another source" in error]
    assert (len(right), len(refused)) == (2, 2), said
    assert {path.name for path in tmp_path.iterdir()} >= {"samples.json"}


@pytest.mark.parametrize("name", ["samples", "samples-00000-of-00001.tfrecord"])
def test_folder_of_others_is_left_alone(tmp_path, name):
    (tmp_path / name).mkdir() if name == "samples" else (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(ValueError, match="give another folder"):
        materialize([1, 2], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def sparse(x):
    scipy = pytest.importorskip("scipy.sparse", reason="no dependency of this package")
    return scipy.csr_array(np.diag(x))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda x: x, lambda x: x + 1),
        (lambda x: {"a": x}, lambda x: {"a": x + 1}),
        (lambda x: split((x, x), (0.5, 0.5))[0], lambda x: split((x + 1, x), (0.5, 0.5))[0]),
        (lambda x: concatenate([(x, x)] * 2), lambda x: concatenate([(x, x), (x, x + 1)])),
        (lambda x: (long_rows(x), x), lambda x: (long_rows(x + 1), x)),
        (lambda x: (sparse(x), x), lambda x: (sparse(x + 1), x)),
        (lambda x: (sparse(x), x), lambda x: (sparse(x), x + 1)),
    ],
    ids=["one", "a dict", "a part", "joined", "objects", "sparse", "beside sparse"],
)
def test_source_of_other_arrays_is_refused(tmp_path, first, second):
    x = np.arange(8.0)
    materialize(first(x), tmp_path)
    materialize(first(x), tmp_path)
    with pytest.raises(ValueError, match="another source"):
        materialize(second(x), tmp_path)


def long_rows(x):
    rows = np.empty(8, object)
    rows[:] = [np.full(1500, value) for value in x]
    rows[0][:700] = rows[0][-700:] = 0  # What repr shows of it.
    return rows


@pytest.mark.parametrize("times", [1, 2])
def test_content_of_other_fields_is_refused(tmp_path, times):
    path = file_of(tmp_path, [encoded({"a": [1], "b": [2]})])

    def stored(decode: str | None, fields: Any) -> Any:
        source = open_records(path, decode=decode, fields=fields)
        return materialize(source if times == 1 else concatenate([source] * times), tmp_path / "x")

    assert stored("example", {"y": "a"})[0]["y"] == [1]
    for decode, fields in (("example", {"y": "b"}), (None, None)):
        with pytest.raises(ValueError, match="another source"):
            stored(decode, fields)


AGAIN = """
import sys
import numpy as np
from adapters import concatenate, materialize
folder, rows = sys.argv[1], [np.zeros(i + 1) for i in range(5)]
first = materialize(rows, folder + "/a")
materialize(first.select([0, 1]), folder + "/b")
materialize(concatenate([first, first]), folder + "/c")
"""


def test_arrays_of_any_shape_in_another_process(tmp_path):
    for _ in range(2):
        subprocess.run([sys.executable, "-c", AGAIN, str(tmp_path)], check=True)


def test_source_of_joined_folders(tmp_path):
    folders = [varied(tmp_path / name) for name in ("a", "b")]

    def joined(first: int, **options: Any) -> Any:
        decode = ImageDecoder(8, dtype="float32", **options)
        parts = [open_images(each, decode=decode) for each in folders]
        return concatenate(parts[::first])

    decoded = materialize(joined(1), tmp_path / "decoded")
    same(batches(decoded), batches(joined(1)))
    for other in (joined(-1), joined(1, mean=3)):
        with pytest.raises(ValueError, match="another source"):
            materialize(other, tmp_path / "decoded")


def test_materialized_again(tmp_path):
    source = (np.arange(6.0), {"b": np.arange(6), "a": (np.arange(6), np.arange(6))})
    once = materialize(source, tmp_path / "once")
    twice = materialize(once, tmp_path / "twice")
    same_samples(twice, once)
    assert list(twice[0][1]) == ["b", "a"]


def test_source_with_an_order_or_whole_batches_is_refused(tmp_path):
    import keras

    with pytest.raises(ValueError, match="no order of its own"):
        materialize(adapters.mix([np.zeros(9), np.ones(9)], [9, 1]), tmp_path / "a")
    with pytest.raises(TypeError, match="whole batches"):
        materialize(keras.utils.PyDataset(), tmp_path / "b")


def test_file_that_is_cut_or_gone_is_told(tmp_path):
    rows = (np.arange(40.0).reshape(20, 2), np.arange(20))
    materialize(rows, tmp_path)
    (path,) = tmp_path.glob("samples-*.tfrecord")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 20 * 10])
    with pytest.raises(ValueError, match="of another size"):
        materialize(rows, tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="missing or of another size"):
        materialize(rows, tmp_path)


def test_decoder_of_a_subclass(tmp_path):
    path = jpeg_file(tmp_path, "recordio")
    materialize(open_records(path, decode=Mine(8)), tmp_path / "b")
    with pytest.raises(ValueError, match="another source"):
        materialize(open_records(path, decode=Mine(9)), tmp_path / "b")
    with pytest.raises(TypeError, match="folder must be a path, got 5"):
        materialize(np.zeros(3), 5)
    with pytest.raises(NotADirectoryError, match=f"folder must be one, got the file '{path}'"):
        materialize(np.zeros(3), path)


def test_samples_of_varying_shapes_resume(tmp_path, monkeypatch):
    """Not again from the shape of the first sample."""
    rows = np.empty(60, object)
    rows[:] = [np.full(10_000 + number, number) for number in range(60)]
    monkeypatch.setattr(sys.modules["adapters.packing.materialize"], "_SHARD_BYTES", 10**6)
    write, lefts = RecordWriter.write_encoded, [50, 40]

    def stopping(*arguments: Any) -> None:
        lefts[0] -= 1
        if not lefts[0]:
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(RecordWriter, "write_encoded", stopping)
    with pytest.raises(KeyboardInterrupt):
        materialize((rows, np.arange(60)), tmp_path)
    del lefts[0]
    decoded = materialize((rows, np.arange(60)), tmp_path)
    assert [len(row) for row, _ in all_samples(decoded)] == [*range(10_000, 10_060)]


def test_data_set_that_grows_ends(tmp_path):
    class Grows(Own):
        lengths = 5

        def __len__(self) -> int:
            self.lengths += 1
            return self.lengths

    assert len(materialize(Grows(), tmp_path)) <= 20
