"""``adapters.diagnose`` finds the bottleneck that was planted."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, SafeSequence, diagnose, open_records, pack
from adapters.diagnosis import examination
from adapters.keras.diagnosed import FRONT_END
from tests.diagnosis import planted
from tests.diagnosis.planted import (
    BATCH_SIZE,
    SECONDS,
    SIZE,
    Batches,
    Breaking,
    Computing,
    Large,
    Numbers,
    Waiting,
    burning,
    burning_batch,
    found,
    quick_step,
    slow_copy,
    slow_step,
)
from tests.packing.materials import jpeg
from tests.plans import notes_of

INLINE = pytest.param({"workers": 0}, id="inline")
THREADS = pytest.param({"workers": 2}, id="threads")
AUTO = pytest.param({"workers": "auto"}, id="auto")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photographs") / "train.tfrecord"
    pack([(jpeg(number, 375, 500), number) for number in range(32)], path, format="tfrecord")
    return path


# --- planted bottlenecks ---


@pytest.mark.parametrize("workers", [INLINE, THREADS, AUTO])
def test_slow_storage_is_found(workers):
    assert found(Waiting(), **workers).bottleneck == "storage"


@pytest.mark.parametrize("workers", [INLINE, THREADS])
def test_a_slow_transform_is_found(workers):
    assert found(Numbers(), transform=burning, **workers).bottleneck == "transforms"


def test_a_slow_batch_transform_is_found():
    assert found(Numbers(), batch_transform=burning_batch).bottleneck == "transforms"


def test_a_data_set_that_computes_is_told_from_storage():
    diagnosis = found(Computing())
    assert diagnosis.fetch_computes > 0.3
    assert diagnosis.bottleneck == "transforms"


def test_large_samples_are_found_in_collation():
    assert found(Large()).bottleneck == "collation"


def test_large_rows_of_arrays_are_found_in_collation():
    rows = np.zeros((16, 1000, 1000, 3), np.uint8)
    assert found(rows, shuffle=True).bottleneck == "collation"


def test_a_slow_transform_of_rows_of_arrays_is_found():
    assert found(np.zeros((SIZE, 3)), transform=burning).bottleneck == "transforms"


def test_decoding_is_found_in_record_files(photographs):
    records = open_records(photographs, decode=ImageDecoder(64))
    diagnosis = found(records)
    assert diagnosis.bottleneck == "transforms"
    assert diagnosis.storage < diagnosis.memory / 5


def test_a_transform_of_decoded_records_is_told_from_collation(photographs):
    records = open_records(photographs, decode=ImageDecoder(64))
    diagnosis = found(records, transform=burning)
    assert diagnosis.collation < diagnosis.memory / 5


def test_a_busy_accelerator_is_found():
    """Its share of the time, which other programs lessen, is that of test_verdict.py."""
    assert found(Numbers(), lambda batch: time.sleep(0.06)).bottleneck == "step"


def test_a_slow_copy_to_the_device_is_found():
    with SafeSequence(Numbers(), BATCH_SIZE, workers=0) as sequence:
        diagnosis = diagnose(sequence, quick_step, to_device=slow_copy, seconds=SECONDS)
    assert diagnosis.bottleneck == "copy"
    assert diagnosis.copy >= 0.02  # It sleeps for that long; a busy machine adds to it.


def test_the_step_is_given_what_the_copy_returns():
    seen = set()
    with SafeSequence(Numbers(), BATCH_SIZE, workers=0) as sequence:
        diagnose(sequence, seen.add, to_device=lambda batch: "on the device", seconds=SECONDS)
    assert seen == {"on the device"}


def test_a_loader_without_a_step_is_examined_alone():
    diagnosis = found(Waiting(), None)
    assert (diagnosis.bottleneck, diagnosis.whole, diagnosis.same) == ("storage", None, None)


# --- what is told beside ---


def test_the_workers_that_auto_took_are_named():
    diagnosis = found(Waiting(), workers="auto")
    assert diagnosis.workers.kind == "threads"
    assert diagnosis.workers.count > 1


def test_waits_are_those_of_the_whole():
    diagnosis = found(Waiting())
    assert min(diagnosis.waits_seconds) >= BATCH_SIZE * planted.SLOW
    assert diagnosis.ready_share == 0


def test_every_batch_is_ready_for_a_step_that_takes_longer():
    with SafeSequence(Numbers(), BATCH_SIZE, workers=0) as sequence:
        diagnosis = diagnose(sequence, slow_step, t=10.0, seconds=SECONDS)
    assert diagnosis.ready_share == 1


def test_the_missing_kernel_is_told_where_images_are_decoded(photographs, monkeypatch):
    monkeypatch.setattr(examination, "load", lambda: None)
    assert found(open_records(photographs, decode=ImageDecoder(64))).kernel_missing
    assert not found(open_records(photographs), batch_transform=lambda batch: batch).kernel_missing


# --- loaders of other kinds ---


def test_a_py_dataset_on_slow_storage_is_found():
    diagnosis = diagnose(Batches(Waiting()), quick_step, seconds=SECONDS)
    assert (diagnosis.bottleneck, diagnosis.one_at_a_time) == ("storage", True)
    assert diagnosis.replaced == "SafeSequence in the place of the PyDataset"


def test_a_py_dataset_that_computes_is_found():
    diagnosis = diagnose(Batches(Computing()), quick_step, seconds=SECONDS)
    assert diagnosis.bottleneck == "transforms"


def test_the_workers_of_a_py_dataset_are_taken_over():
    diagnosis = diagnose(Batches(Waiting(), workers=2), quick_step, seconds=SECONDS)
    assert (diagnosis.workers.kind, diagnosis.workers.count) == ("threads", 2)


@pytest.mark.full
def test_copies_of_a_py_dataset_in_processes_are_not_asked_one_at_a_time():
    data = Batches(Waiting(), workers=2, use_multiprocessing=True)
    diagnosis = diagnose(data, seconds=SECONDS)
    assert (diagnosis.bottleneck, diagnosis.workers.kind) == ("storage", "processes")
    assert not diagnosis.one_at_a_time


class SlowList(list):
    def __iter__(self) -> Any:
        for item in list.__iter__(self):
            slow_step(item)
            yield item


def test_a_foreign_loader_is_told_from_the_step():
    batches = [np.zeros((4, 2))] * 5
    assert diagnose(SlowList(batches), quick_step, seconds=SECONDS).bottleneck == "loader"
    assert diagnose(batches, slow_step, seconds=SECONDS).bottleneck == "step"


def test_samples_are_counted_by_the_first_array():
    assert diagnose([{"a": np.zeros((4, 2))}], quick_step, seconds=SECONDS).samples == 4


# --- shapes of loaders ---


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": SIZE},
        {"batch_size": 48, "drop_remainder": True},
        {"shard": (1, 3), "shuffle": True},
        {"batch_transform": lambda batch: {"x": batch[0], "y": batch[1]}},
    ],
    ids=["one batch", "one batch and a remainder", "a shard", "batches that are dicts"],
)
def test_any_sequence_can_be_examined(options):
    assert found(Waiting(), **options).bottleneck == "storage"


@pytest.mark.parametrize("on_error", ["skip", lambda error, number: Numbers()[number]])
def test_samples_that_cannot_be_read_are_left_to_on_error(on_error):
    diagnosis = found(Breaking(), transform=burning, on_error=on_error)
    assert diagnosis.bottleneck == "transforms"


def test_a_data_set_without_a_readable_sample_is_left_to_on_error():
    def broken(sample: Any) -> Any:
        raise KeyError("no sample")

    diagnosis = found(Numbers(), transform=broken, on_error=lambda error, number: np.zeros(1))
    assert diagnosis.collation is None


# --- the loader and the process stay as they were ---


# Each examination starts them four times.
PROCESSES = pytest.param(
    {"workers": 1, "use_multiprocessing": True}, id="processes", marks=pytest.mark.full
)


def batches_of(sequence: SafeSequence) -> list[list[float]]:
    return [batch[0].ravel().tolist() for batch in sequence]


@pytest.mark.parametrize("workers", [INLINE, THREADS])
def test_the_sequence_goes_on_where_it_stood(workers):
    options = {"shuffle": True, **workers}
    with (
        SafeSequence(Numbers(), 8, **options) as sequence,
        SafeSequence(Numbers(), 8, **options) as untouched,
    ):
        state = {"epoch": 2, "batch": 3}
        for each in (sequence, untouched):
            each.load_state_dict(state)
        diagnose(sequence, quick_step, seconds=SECONDS)
        assert sequence.state_dict() == state
        assert batches_of(sequence) == batches_of(untouched)


def test_a_pass_that_is_under_way_goes_on():
    with SafeSequence(Numbers(), 8, shuffle=True, workers=2) as sequence:
        whole = batches_of(sequence)
        sequence.set_epoch(0)
        batches = iter(sequence)
        parts = [next(batches)[0].ravel().tolist() for _ in range(3)]
        diagnose(sequence, quick_step, seconds=SECONDS)
        assert sequence.state_dict() == {"epoch": 0, "batch": 3}
        assert parts + [batch[0].ravel().tolist() for batch in batches] == whole


def test_the_waits_of_the_sequence_are_its_own():
    with SafeSequence(Numbers(), 8, workers=0) as sequence:
        diagnose(sequence, quick_step, seconds=SECONDS)
        assert sequence.waits.batches == 0


def test_a_twin_stands_where_its_sequence_does():
    with SafeSequence(Numbers(), 8, workers=0, shuffle=True) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 2})
        with FRONT_END.twin(sequence) as twin:
            assert batches_of(twin) == batches_of(sequence)


def test_a_twin_that_is_closed_leaves_its_sequence_open():
    with SafeSequence(Numbers(), 8, workers=2) as sequence:
        FRONT_END.twin(sequence).close()
        assert len(batches_of(sequence)) == 8


def test_the_random_state_of_the_process_is_put_back():
    def draws(sample: Any) -> Any:
        return np.float32([random.random() + np.random.rand()])

    random.seed(1)
    np.random.seed(1)
    found(Numbers(), lambda batch: np.random.rand(), transform=draws)
    drawn = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    assert drawn == (random.random(), np.random.rand())


# --- what goes wrong ---


@pytest.mark.parametrize("workers", [INLINE, THREADS, PROCESSES])
def test_an_exception_arrives_as_its_own_type(workers):
    with pytest.raises(KeyError, match="sample 3") as caught:
        found(Breaking(), **workers)
    assert "in sample 3" in notes_of(caught.value)


@pytest.mark.parametrize("workers", [INLINE, THREADS, PROCESSES])
def test_ctrl_c_ends_the_examination(workers):
    """And leaves nothing behind, as after every test."""

    def interrupted(batch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found(Numbers(), interrupted, **workers)


def test_an_exception_of_the_step_arrives():
    with pytest.raises(ZeroDivisionError):
        found(Numbers(), lambda batch: 1 / 0)


@pytest.mark.parametrize("name", ["seconds", "t"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_times_must_be_above_nothing(name, value):
    with pytest.raises(ValueError, match=f"{name} must be > 0 seconds, got {value!r}"):
        diagnose([np.zeros(3)], quick_step, **{name: value})


def test_a_step_is_a_function_or_a_model():
    with pytest.raises(TypeError, match="step must be a function of a batch or a compiled Keras"):
        diagnose([np.zeros(3)], 7)


def test_a_copy_without_a_step_makes_no_sense():
    with pytest.raises(ValueError, match="to_device must be None unless step is a function"):
        diagnose([np.zeros(3)], to_device=lambda batch: batch)


def test_a_loader_must_be_one():
    with pytest.raises(TypeError, match=r"loader must be a SafeSequence, .* got int"):
        diagnose(7, quick_step)


@pytest.mark.parametrize("batches", [[], (np.zeros(3) for _ in range(4))], ids=["none", "once"])
def test_a_loader_must_have_batches_each_time(batches):
    with pytest.raises(ValueError, match="loader must give batches each time"):
        diagnose(batches, quick_step, seconds=SECONDS)
