"""``on_error``: what takes the place of a sample that can't be fetched or transformed."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, Dataset, SimpleDataset
from mxnet.gluon.data.vision import ImageFolderDataset, ImageRecordDataset
from mxnet.gluon.data.vision.transforms import CenterCrop, RandomFlipLeftRight, ToTensor

from adapters import ImageDecoder, RecordError, gluon_loader, open_records
from adapters.batch.key import BatchKey
from adapters.gluon.diagnosed import FRONT_END
from tests.gluon.data_sets import (
    IN_MEMORY,
    assert_same,
    folder_data_set,
    nd,
    numpy_semantics,
    outline,
    pixels,
    record_data_set,
    values,
)
from tests.gluon.executors import EXECUTORS, THREADS, every_executor, opened
from tests.plans import notes_of
from tests.sources.record_files import FORMATS, damage, jpeg_file, raw_file

SIZE = 12
BROKEN = {3, 4, 8, 11}
# With batches of 5, the first one has two, the last one wraps around.
SKIPPED = [0, 1, 2, 5, 5, 5, 6, 7, 9, 9, 10, 0]
NUMBERS = np.arange(SIZE)


class Broken(Dataset):
    """Gives numbers, and not all of them."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> int:
        return refuse(number)


def refuse(number: Any) -> Any:
    if int(number) in BROKEN:
        raise OSError(f"sample {int(number)} is broken")
    return number


def images() -> Any:
    """With labels; some are too small to be cropped, and of a shape of their own."""
    rows = [image[: 2 if number in BROKEN else 6] for number, image in enumerate(pixels(SIZE))]
    return SimpleDataset([(nd(row), number) for number, row in enumerate(rows)])


def needs_height(image: Any, label: Any) -> Any:
    assert image.shape[0] == 6
    return image, label


def numbers_of(batches: Any) -> list[int]:
    last = [batch[-1] if isinstance(batch, list) else batch for batch in batches]
    return [int(number) for batch in last for number in batch.asnumpy().ravel()]


DATA: dict[str, Any] = {
    "a data set": Broken,
    "a function over arrays": lambda: ArrayDataset(NUMBERS).transform(refuse),
    "before a stage": lambda: images().transform(needs_height).transform_first(ToTensor()),
    "after a stage": lambda: (
        ArrayDataset(nd(pixels(SIZE)), NUMBERS)
        .transform_first(ToTensor())
        .transform(lambda image, number: (image, refuse(number)))
    ),
    "take": lambda: Broken().take(SIZE),
}


def test_ctrl_c_is_no_sample_that_fails():
    class Interrupted:
        def __len__(self):
            return 2

        def __getitem__(self, name):
            raise KeyboardInterrupt

    data = Interrupted()
    with (
        gluon_loader(data, batch_sampler=[["a"]], on_error="skip", num_workers=0) as loader,
        pytest.raises(KeyboardInterrupt),
    ):
        next(iter(loader))


@every_executor
@pytest.mark.parametrize("name", DATA)
def test_skip_takes_the_next_sample_that_works(name, executor, caplog):
    with opened(DATA[name](), executor, 5, on_error="skip") as loader:
        assert numbers_of(loader) == SKIPPED
        assert [record.message for record in caplog.records] == [
            "epoch 0: on_error replaced 4 samples"
        ]
        assert numbers_of(loader) == SKIPPED


def test_batches_that_a_sampler_has_drawn_are_counted_too(caplog):
    data = ArrayDataset(NUMBERS).transform(refuse)
    with opened(data, "inline", 5, sampler=[3, -4, 1], on_error="skip") as loader:
        assert values(loader) == [[5, 9, 1]]
    assert [record.message for record in caplog.records] == ["epoch 0: on_error replaced 2 samples"]


@every_executor
def test_a_function_gives_a_finished_sample(executor):
    def instead(error: Exception, number: int) -> int:
        assert type(error) is OSError
        assert f"in sample {number}, batch {number // 5} of epoch 0" in notes_of(error)
        return 100 + number

    data = ArrayDataset(NUMBERS).transform(refuse)
    with opened(data, executor, 5, on_error=instead) as loader:
        expected = [100 + number if number in BROKEN else number for number in range(SIZE)]
        assert numbers_of(loader) == expected


def _raises(error: Exception, number: int) -> Any:
    raise KeyError("no other")


@pytest.mark.parametrize(
    ("on_error", "kind", "message"),
    [
        ("raise", OSError, "sample 3 is broken"),
        (_raises, KeyError, "no other"),
        (lambda error, number: None, ValueError, "on_error must return a sample, got None"),
    ],
)
def test_what_has_no_replacement_is_raised(on_error, kind, message):
    loader = opened(Broken(), THREADS, 5, on_error=on_error)
    with loader, pytest.raises(kind, match=message) as info:
        list(loader)
    assert "in batch 0 of epoch 0" in notes_of(info.value)


def test_skip_gives_up_where_nothing_works():
    data = ArrayDataset(NUMBERS).transform(lambda number: 1 / 0)
    with (
        opened(data, "inline", on_error="skip") as loader,
        pytest.raises(ZeroDivisionError) as info,
    ):
        list(loader)
    assert "found no other sample that works" in notes_of(info.value)


def test_errors_that_mxnet_puts_off_are_met(tmp_path):
    """It reads images in a thread of its own, and fails where they are used."""
    data = folder_data_set(tmp_path)
    path = sorted((tmp_path / "images" / "a").iterdir())[1]
    path.write_bytes(path.read_bytes()[:60])
    with opened(data, "inline", 3, on_error="skip") as loader:
        (first, *_), (_, expected, _) = next(iter(loader)), (data[0], data[2], data[3])
        np.testing.assert_array_equal(first[1].asnumpy(), expected[0].asnumpy())
    assert isinstance(data, ImageFolderDataset)


@every_executor
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8, crop="random", flip=True)])
def test_a_damaged_record_is_skipped(executor, format, decode, tmp_path):
    path = (raw_file if decode == "image" else jpeg_file)(tmp_path, format)
    arguments = {"batch_size": 4, "seed": 2}
    with opened(open_records(path, decode=decode), "inline", **arguments) as loader:
        whole = [outline(batch) for batch in loader]
        rows = [[member.asnumpy() for member in batch] for batch in loader]
    damage(path, path.stat().st_size - 100)
    with opened(
        open_records(path, decode=decode), executor, on_error="skip", **arguments
    ) as loader:
        found = list(loader)
        assert [outline(batch) for batch in found[:2]] == whole[:2]
        assert found[2][1].asnumpy().tolist() == [8, 9, 0]
        assert [(member.dtype, member.shape) for member in found[2]] == [
            (member.dtype, member.shape) for member in rows[2]
        ]
    loader = opened(open_records(path, decode=decode), "inline", **arguments)
    with loader, pytest.raises(RecordError):
        list(loader)


@pytest.mark.parametrize("executor", EXECUTORS[:2])
def test_a_damaged_record_is_skipped_where_records_come_one_by_one(executor, tmp_path):
    """Images of several sizes."""
    path = jpeg_file(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 100)
    data = SimpleDataset(open_records(path, decode="image")).transform(lambda image, label: label)
    with opened(data, executor, on_error="skip") as loader:
        assert numbers_of(loader) == [*range(10), 0]


@pytest.mark.parametrize("executor", EXECUTORS[:2])
def test_a_damaged_image_in_mxnets_own_data_set_is_skipped(executor, tmp_path):
    data = record_data_set(tmp_path)
    with opened(data, "inline") as loader:
        whole = [outline(batch) for batch in loader]
    content = (tmp_path / "a.rec").read_bytes()
    second = content.index(b"PNG", content.index(b"PNG") + 1)
    damage(tmp_path / "a.rec", second)
    with opened(ImageRecordDataset(str(tmp_path / "a.rec")), executor, on_error="skip") as loader:
        first, *rest = list(loader)
        assert first[1].asnumpy()[:, 0].tolist() == [0, 2, 2, 3]
        assert [outline(batch) for batch in rest] == whole[1:]


def test_a_replacement_is_what_it_is_in_its_own_place():
    """Its random numbers too, of a stage and of the user's own."""

    def drawn(image: Any, number: Any) -> Any:
        return image, np.random.rand(), refuse(number)

    data = ArrayDataset(nd(pixels(SIZE)), NUMBERS).transform_first(RandomFlipLeftRight())
    arguments = {"batch_size": 5, "seed": 3, "on_error": "skip"}
    passes = []
    for executor in EXECUTORS:
        with opened(data.transform(drawn), executor, **arguments) as loader:
            passes.append([*loader, *loader])
        assert_same(passes[-1], passes[0])
    rows = [row for b in passes[0][:3] for row in zip(*(each.asnumpy().tolist() for each in b))]
    assert [int(number) for *_, number in rows] == SKIPPED
    by_number = {int(row[2]): row for row in rows}
    assert all(row == by_number[int(row[2])] for row in rows)
    assert len({row[1] for row in rows}) == len(set(SKIPPED))


@pytest.mark.parametrize("semantics", [False, True])
def test_nothing_changes_where_nothing_fails(semantics):
    with numpy_semantics(semantics):
        for name, make in IN_MEMORY.items():
            with (
                opened(make(), "inline") as plain,
                opened(make(), "inline", on_error="skip") as ours,
            ):
                assert outline(list(ours)) == outline(list(plain)), name


def test_samples_by_name_need_a_function():
    class Named(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> Any:
            raise OSError(key)

    data, batches = Named(a=1, b=2), [["a", "x"], ["b"]]
    loader = opened(data, "inline", None, batch_sampler=batches, on_error="skip")
    with pytest.raises(ValueError, match="names this one 'x': give a function") as info:
        list(loader)
    assert isinstance(info.value.__cause__, OSError)
    seen: list[Any] = []
    loader = opened(
        data,
        "inline",
        None,
        batch_sampler=batches,
        on_error=lambda error, key: seen.append(key) or 7,
    )
    assert values(loader) == [[1, 7], [2]]
    assert seen == ["x"]


def test_samples_that_do_not_fit_together_are_no_samples_that_failed():
    loader = opened([np.zeros(2), np.zeros(3)], "inline", on_error="skip")
    with loader, pytest.raises(ValueError, match="must have equal shapes"):
        list(loader)


def test_a_diagnosis_leaves_out_what_fails():
    with opened(Broken(), "inline", 5, on_error="skip") as loader:
        parts = FRONT_END.ablations(loader)
        for plan in (parts.whole, parts.storage, parts.memory, parts.collation):
            plan.batch(BatchKey(0, 0), np.empty)


def test_explain_names_it(capsys):
    for on_error in ("skip", _raises):
        with opened(Broken(), "inline", on_error=on_error) as loader:
            loader.explain()
    said = capsys.readouterr().out
    assert "on_error: the next sample that works" in said
    assert "on_error: _raises (test_on_error.py:" in said


@pytest.mark.parametrize("wrong", ["ignore", None, 3])
def test_anything_else_is_refused(wrong):
    with pytest.raises(ValueError, match='on_error must be "raise", "skip" or callable'):
        gluon_loader(NUMBERS, 2, on_error=wrong)


def test_a_crop_that_does_not_fit_is_skipped():
    data = images().transform(needs_height).transform_first(CenterCrop((4, 4)))
    with opened(data, "inline", 5, on_error="skip") as loader:
        assert numbers_of(loader) == SKIPPED
        assert isinstance(next(iter(loader))[0], mx.nd.NDArray)
