"""``adapters.diagnose`` finds the bottleneck that was planted."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, SafeSequence, diagnose, open_records, pack
from adapters.diagnosis import examination
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
    Remote,
    Waiting,
    burning,
    burning_batch,
    found,
    quick_step,
    slow_copy,
    slow_step,
)
from tests.packing.materials import jpeg

INLINE = pytest.param({"workers": 0}, id="inline")
THREADS = pytest.param({"workers": 2}, id="threads")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photographs") / "train.tfrecord"
    pack([(jpeg(number, 375, 500), number) for number in range(32)], path, format="tfrecord")
    return path


# --- planted bottlenecks ---


@pytest.mark.parametrize(
    ("source", "workers"),
    [
        pytest.param(Waiting(), 0, id="inline"),
        pytest.param(Waiting(), 2, id="threads"),
        pytest.param(Remote(), "auto", id="auto"),  # Dozens of threads wait at once.
    ],
)
def test_slow_storage_is_found(source, workers):
    assert found(source, workers=workers).bottleneck == "storage"


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
    """Where other programs run, all else takes 2 ms of each batch."""
    diagnosis = found(Numbers(), lambda batch: time.sleep(0.06))
    assert diagnosis.bottleneck == "step"
    assert diagnosis.busy_share > 0.9


def test_a_slow_copy_to_the_device_is_found():
    planted.SLEPT.clear()
    with SafeSequence(Numbers(), BATCH_SIZE, workers=0) as sequence:
        diagnosis = diagnose(sequence, quick_step, to_device=slow_copy, seconds=SECONDS)
    assert diagnosis.bottleneck == "copy"
    assert diagnosis.copy == pytest.approx(statistics.median(planted.SLEPT), rel=0.5)


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
