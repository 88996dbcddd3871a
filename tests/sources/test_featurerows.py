"""Typed features gathered a batch at a time: what they are one by one, in any file."""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, RecordError, open_records
from adapters.images import kernel
from tests.forking import forks
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.example_files import (
    assembled,
    encoded,
    entry,
    file_of,
    listed,
    message,
    outcome,
    sample,
    shuffled,
)
from tests.sources.record_files import damage, write

SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int32"),
    "weight": Feature("float32"),
    "marks": Feature("int64", (3,)),
}
SIZE, BATCH = 90, 16
pytestmark = pytest.mark.usefixtures("gatherer")


def usual(number: int) -> bytes:
    return encoded(sample(number))


def in_any_order(number: int) -> bytes:
    return encoded(shuffled(sample(number), number))


def with_others(number: int) -> bytes:
    """Beside features that nobody asked for, of several lengths."""
    return encoded({**sample(number), "name": [b"n" * (number % 7)], "size": [number]})


def not_packed(number: int) -> bytes:
    return encoded(sample(number), packed=False)


def names_last(number: int) -> bytes:
    features = sample(number).items()
    return assembled(entry(name, listed(values), True) for name, values in features)


def in_two(number: int) -> bytes:
    """Each of several ``Features`` has some."""
    items = list(sample(number).items())
    return encoded(dict(items[:2])) + encoded(dict(items[2:]))


def twice(number: int) -> bytes:
    """Of which the last one counts."""
    again = sample(number)
    entries = [entry("label", listed([7])), *(entry(k, listed(v)) for k, v in again.items())]
    return assembled(entries)


def unknown_fields(number: int) -> bytes:
    return usual(number) + message(9, b"xyz")


def long_sizes(number: int) -> bytes:
    """A size in more bytes than it needs."""
    features = b"".join(entry(name, listed(values)) for name, values in sample(number).items())
    return b"\x0a" + bytes([len(features) & 127 | 128, len(features) >> 7 | 128, 0]) + features


WAYS = [usual, in_any_order, with_others, not_packed, names_last]
WAYS += [in_two, twice, unknown_fields, long_sizes]


def mixed(number: int) -> bytes:
    return WAYS[number * 7 % len(WAYS)](number)


def one_in_thirty(number: int) -> bytes:
    return twice(number) if number % 30 == 5 else usual(number)


def source_of(folder: Path, payloads: Iterable[bytes], spec: Any = None, **options: Any) -> Any:
    return open_records(file_of(folder, payloads), decode=spec or SPEC, **options)


def assert_gathered(source: Any, epochs: int = 2) -> None:
    """Batches are what the samples are, in the first epoch and in the next."""
    plan = plan_of(source, BATCH, shuffle=True)
    for epoch in range(epochs):
        for index, batch in enumerate(epoch_of(plan, epoch)):
            for row, number in enumerate(plan.order.batch(epoch, index).tolist()):
                for name, value in source[number].items():
                    np.testing.assert_array_equal(batch[name][row], value)
                    assert batch[name].dtype == value.dtype


def count_reads(monkeypatch: pytest.MonkeyPatch, source: Any) -> list[int]:
    """The records that are read one by one."""
    reads: list[int] = []
    read = type(source._files).read

    def counted(files: Any, number: int) -> Any:
        reads.append(number)
        return read(files, number)

    monkeypatch.setattr(type(source._files), "read", counted)
    return reads


@pytest.mark.parametrize("way", [*WAYS, mixed, one_in_thirty], ids=lambda way: way.__name__)
def test_a_batch_holds_what_its_samples_are(tmp_path, way):
    source = source_of(tmp_path, map(way, range(SIZE)))
    for number, found in enumerate(source):
        expected = sample(number)
        assert found["image"].tobytes() == expected["image"][0]
        assert found["marks"].tolist() == expected["marks"]
        assert (found["label"], found["weight"]) == (*expected["label"], *expected["weight"])
    assert_gathered(source)


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built, or switched off")
@pytest.mark.parametrize("way", [*WAYS, mixed, one_in_thirty], ids=lambda way: way.__name__)
def test_no_way_of_writing_records_has_them_read_one_by_one(tmp_path, monkeypatch, way):
    monkeypatch.undo()
    source = source_of(tmp_path, map(way, range(SIZE)))
    reads = count_reads(monkeypatch, source)
    epoch_of(plan_of(source, BATCH, shuffle=True))
    assert reads == []


def test_floats_may_be_packed_or_not(tmp_path):
    payloads = [encoded({"a": [0.5, float(n)]}, packed=n % 2 == 0) for n in range(SIZE)]
    assert_gathered(source_of(tmp_path, payloads, {"a": Feature("float32", 2)}))


def test_files_written_in_several_orders_are_one_source(tmp_path):
    for place in range(3):
        features = (
            shuffled(sample(number), place) for number in range(place * 30, place * 30 + 30)
        )
        file_of(tmp_path, map(encoded, features), f"{place}.tfrecord")
    source = open_records(str(tmp_path / "*.tfrecord"), decode=SPEC)
    assert len(source) == 90
    assert_gathered(source)
    assert_gathered(source.select(np.arange(80, 5, -3)))


def test_what_is_missing_in_some_records_has_its_default(tmp_path):
    def payload(number: int) -> bytes:
        features = sample(number)
        return encoded({k: v for k, v in features.items() if k != "marks" or number % 3})

    spec = {**SPEC, "marks": Feature("int64", (3,), default=(1, -1, 0))}
    source = source_of(tmp_path, map(payload, range(SIZE)), spec)
    assert source[3]["marks"].tolist() == [1, -1, 0]
    assert_gathered(source)


def test_a_feature_that_no_record_has(tmp_path):
    spec = {"label": Feature("int64"), "none": Feature("float32", 2, default=0.5)}
    assert_gathered(source_of(tmp_path, map(usual, range(SIZE)), spec))
    assert_gathered(source_of(tmp_path, map(usual, range(SIZE)), {"none": spec["none"]}))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "uint64", "float64", "float16"])
def test_numbers_of_other_dtypes(tmp_path, dtype):
    value = 0.1 if "float" in dtype else 1
    payloads = [encoded({"a": [value] * (number % 2 + 1)}) for number in range(4)]
    source = open_records(file_of(tmp_path, payloads), decode={"a": Feature(dtype)})
    assert_gathered(source.select([0, 2]))


def test_a_value_that_does_not_fit_is_an_error_in_a_batch_too(tmp_path):
    path = file_of(tmp_path, [encoded({"a": [value]}) for value in (1, 300, 255, -1)])
    source = open_records(path, decode={"a": Feature("uint8")})
    with pytest.raises(RecordError, match=r"record 1, .*values of uint8, found 300"):
        batch_of(plan_of(source, 4))
    assert batch_of(plan_of(source, 2, on_error="skip"), 0, 0)["a"].tolist() == [1, 255]
    assert batch_of(plan_of(source, 2, on_error=lambda error, number: {"a": 9}), 0, 1)[
        "a"
    ].tolist() == [255, 9]


@pytest.mark.parametrize("sample", [(1, 2), {"a": 1, "c": 2}])
def test_on_error_gives_a_sample_of_the_same_names(tmp_path, sample):
    path = file_of(tmp_path, [encoded({"a": [300], "b": [2]})])
    source = open_records(path, decode={"b": Feature("uint8"), "a": Feature("uint8")})
    plan = plan_of(source, 1, on_error=lambda error, number: sample)
    with pytest.raises(ValueError, match=r"of the structure \{'b': 1, 'a': 0\}, got"):
        batch_of(plan)


@pytest.mark.parametrize("verify", [True, False])
def test_a_damaged_record_is_noticed_as_one_by_one(tmp_path, verify):
    path = file_of(tmp_path, map(usual, range(8)))
    open_records(path)  # Writes the index.
    source = open_records(path, decode=SPEC)
    start = int(source._files.shards[0].offsets[3])
    place = path.read_bytes().index(sample(3)["image"][0], start)
    source.close()
    damage(path, place)
    source = open_records(path, decode=SPEC, verify=verify)
    if verify:
        with pytest.raises(RecordError, match=r"record 3, .* the CRC of the data"):
            batch_of(plan_of(source, 8))
        return
    batch = batch_of(plan_of(source, 8))
    assert batch["image"][3].ravel()[0] == sample(3)["image"][0][0] ^ 255


def test_any_damaged_byte_is_noticed_or_makes_what_it_makes_one_by_one(tmp_path):
    """Without a CRC: what is gathered is what is read by itself, or both are errors."""
    payload = usual(1)
    for place in range(len(payload)):
        for mask in (1, 8, 128):
            changed = bytearray(payload)
            changed[place] ^= mask
            path = file_of(tmp_path, [payload, bytes(changed), payload], f"{place}.{mask}")
            source = open_records(path, decode=SPEC, verify=False)
            expected = outcome(source, 1)
            if isinstance(expected, str):
                with pytest.raises(RecordError) as raised:
                    batch_of(plan_of(source, 3))
                assert str(raised.value) == expected
                continue
            batch = batch_of(plan_of(source, 3))
            for name, value in expected.items():
                np.testing.assert_array_equal(batch[name][1], value)


def test_a_damaged_record_is_an_error_whenever_it_is_asked_for(tmp_path):
    path = file_of(tmp_path, map(usual, range(SIZE)))
    place = path.read_bytes().index(sample(SIZE - 1)["image"][0])
    open_records(path).close()  # Writes the index.
    damage(path, place)
    plan = plan_of(open_records(path, decode=SPEC), 6)
    for index in range(plan.num_batches - 1):
        batch_of(plan, 0, index)
    for _ in range(2):
        with pytest.raises(RecordError, match=rf"record {SIZE - 1}, .* the CRC of the data"):
            batch_of(plan, 0, plan.num_batches - 1)


@pytest.mark.parametrize(("workers", "processes"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("outputs", [None, ("image", "label")])
def test_every_executor_gives_the_same_batches(
    tmp_path, workers, processes, outputs, safe_sequence
):
    source = source_of(tmp_path, map(one_in_thirty, range(SIZE)), outputs=outputs)
    options = {"workers": workers, "use_multiprocessing": processes}
    with safe_sequence(source, BATCH, shuffle=True, **options) as sequence:
        found = [copy.deepcopy(batch) for batch in sequence]
    expected = epoch_of(plan_of(source, BATCH, shuffle=True))
    assert len(found) == len(expected)
    for own, theirs in zip(found, expected):
        assert type(own) is type(theirs) is (tuple if outputs else dict)
        for name in range(2) if outputs else SPEC:
            np.testing.assert_array_equal(own[name], theirs[name])


@forks
def test_a_forked_process_goes_on(tmp_path):
    source = open_records(file_of(tmp_path, map(usual, range(SIZE))), decode=SPEC)
    batch_of(plan_of(source, BATCH))
    child = multiprocessing.get_context("fork").Process(
        target=batch_of, args=(plan_of(source, BATCH), 0, 1)
    )
    child.start()
    child.join(20)
    child.kill()
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize("asked", ["label", "another"])
def test_a_name_whose_last_entry_is_empty_is_refused(tmp_path, asked):
    """TensorFlow passes over that entry, and Protocol Buffers takes it; whoever asked for it."""
    twice = assembled([entry("label", listed([7])), entry("label", b"")])
    source = open_records(file_of(tmp_path, [twice]), decode={asked: Feature("int64", default=5)})
    with pytest.raises(RecordError, match="values in the last entry of b'label'"):
        source[0]
    with pytest.raises(RecordError, match="values in the last entry of b'label'"):
        batch_of(plan_of(source, 1))


def test_an_index_that_names_places_outside_of_the_file(tmp_path):
    path = file_of(tmp_path, map(usual, range(4)))
    source = open_records(path, decode=SPEC)
    source._files.shards[0].offsets = np.array([0, -50, 2**62, path.stat().st_size - 20])
    with pytest.raises(RecordError, match="record 1"):
        batch_of(plan_of(source, 4))


def test_a_recordio_file_of_examples_is_read_one_by_one(tmp_path):
    path = write(tmp_path / "a.rec", "recordio", map(usual, range(5)))
    source = open_records(path, decode=SPEC)
    assert batch_of(plan_of(source, 5))["label"].tolist() == [
        sample(number)["label"][0] for number in range(5)
    ]
