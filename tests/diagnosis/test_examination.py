"""``adapters.diagnose`` finds the bottleneck that was planted, and leaves all else as it was."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adapters
from adapters import ImageDecoder, SafeSequence, diagnose, open_records, pack
from adapters.diagnosis import examination
from adapters.diagnosis.sweep import sweep
from adapters.remote import clients
from adapters.sources import as_source
from tests.diagnosis import planted
from tests.diagnosis.planted import SECONDS, SHORT_SECONDS, Numbers, Waiting, found, quick_step
from tests.packing.materials import jpeg
from tests.plans import notes_of
from tests.remote.rangeserver import RangeServer
from tests.sources.record_files import jpeg_file

# A short queue, as the next measurement begins when it is full.
INLINE, THREADS = {"workers": 0}, {"workers": 2, "max_queue_size": 2}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photographs") / "train.tfrecord"
    pack([(jpeg(number, 375, 500), number) for number in range(32)], path, format="tfrecord")
    return path


def planting(name: str, source: Any, bottleneck: str, **options: Any) -> Any:
    return pytest.param(source, options, bottleneck, id=name)


@pytest.mark.parametrize(
    ("source", "options", "bottleneck"),
    [
        planting("slow storage by threads", Waiting(), "storage", **THREADS),
        planting("a slow transform", Numbers(), "transforms", transform=planted.burning),
        planting("a data set that computes", planted.Computing(), "transforms"),
        planting("rows", np.zeros((planted.SIZE, 3)), "transforms", transform=planted.burning),
        planting("large samples", planted.Large(), "collation"),
        planting("large rows", np.zeros((16, 600, 600, 3), np.uint8), "collation", shuffle=True),
    ],
)
def test_planted_bottleneck_is_found(source, options, bottleneck):
    assert found(source, **options).bottleneck == bottleneck


def test_decoding_of_records_is_found(photographs):
    records = open_records(photographs, decode=ImageDecoder(64))
    diagnosis = found(records)
    assert diagnosis.bottleneck == "transforms"
    assert diagnosis.storage < diagnosis.memory / 5


def test_transform_of_decoded_records_is_no_collation(photographs):
    records = open_records(photographs, decode=ImageDecoder(64))
    diagnosis = found(records, seconds=SHORT_SECONDS, transform=planted.burning)
    assert diagnosis.collation < diagnosis.memory / 5


@pytest.mark.serial
def test_busy_accelerator_is_found():
    diagnosis = found(Numbers(), lambda batch: time.sleep(0.06))
    assert diagnosis.bottleneck == "step"
    assert diagnosis.busy_share > 0.9


def test_slow_copy_is_found():
    planted.SLEPT.clear()
    with SafeSequence(Numbers(), planted.BATCH_SIZE, workers=0) as sequence:
        diagnosis = diagnose(sequence, quick_step, to_device=planted.slow_copy, seconds=SECONDS)
        seen: set[Any] = set()
        diagnose(sequence, seen.add, to_device=lambda batch: "on the device", seconds=0.03)
    assert seen == {"on the device"}
    assert diagnosis.bottleneck == "copy"
    assert diagnosis.copy == pytest.approx(statistics.median(planted.SLEPT), rel=0.5)


def test_loader_without_a_step():
    diagnosis = found(Waiting(), None)
    assert (diagnosis.bottleneck, diagnosis.whole, diagnosis.same) == ("storage", None, None)


# --- what is told beside ---


def test_workers_that_auto_took_are_named():
    """Dozens of threads wait at once."""
    diagnosis = found(planted.Remote(), seconds=SHORT_SECONDS, workers="auto")
    assert (diagnosis.bottleneck, diagnosis.workers.kind) == ("storage", "threads")
    assert diagnosis.workers.count > 1


def test_other_programs_are_noticed(monkeypatch):
    seconds = itertools.count(step=10)
    monkeypatch.setattr("adapters.clock._queued_seconds", lambda: next(seconds))
    diagnosis = found(Numbers(), seconds=SHORT_SECONDS, transform=planted.burning)
    assert diagnosis.queued_share > 0.9
    assert "noise: other programs had the CPUs for " in str(diagnosis)


def test_kernel_that_is_missing_is_told_for_images(photographs, monkeypatch):
    monkeypatch.setattr(examination, "load", lambda: None)
    for decode in (ImageDecoder(64), None):
        records = open_records(photographs, decode=decode)
        diagnosis = found(records, seconds=SHORT_SECONDS, batch_transform=lambda batch: batch)
        assert diagnosis.kernel_missing is (decode is not None)


# --- loaders of other kinds ---


def test_py_dataset_on_slow_storage_keeps_its_workers():
    diagnosis = diagnose(planted.Batches(Waiting(), **THREADS), quick_step, seconds=SECONDS)
    assert (diagnosis.workers.kind, diagnosis.workers.count) == ("threads", 2)
    assert (diagnosis.bottleneck, diagnosis.one_at_a_time) == ("storage", True)
    assert diagnosis.replaced == "SafeSequence in the place of the PyDataset"


class SlowList(list):
    def __iter__(self) -> Any:
        for item in list.__iter__(self):
            planted.slow_step(item)
            yield item


def test_foreign_loader_is_told_from_the_step():
    batches = [np.zeros((4, 2))] * 5
    assert diagnose(SlowList(batches), quick_step, seconds=SECONDS).bottleneck == "loader"
    diagnosis = diagnose(batches, planted.slow_step, seconds=SECONDS)
    assert (diagnosis.bottleneck, diagnosis.samples) == ("step", 4)


class OneBatch(Waiting):
    def __len__(self) -> int:
        return planted.BATCH_SIZE


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (OneBatch(), {}),
        (Waiting(), {"shard": (1, 3), "shuffle": True}),
        (Waiting(), {"batch_transform": lambda batch: {"x": batch[0], "y": batch[1]}}),
    ],
    ids=["one batch", "a shard", "batches that are dicts"],
)
def test_sequence_of_any_shape(source, options):
    assert found(source, seconds=SHORT_SECONDS, **options).bottleneck == "storage"


def test_unreadable_samples_are_left_to_on_error():
    options = {"seconds": SHORT_SECONDS, "on_error": "skip"}
    assert (
        found(planted.Breaking(), transform=planted.burning, **options).bottleneck == "transforms"
    )
    options["on_error"] = lambda error, number: Numbers()[number]
    assert found(planted.Breaking(), **options).collation is not None


COUNT = 64


@pytest.fixture
def server() -> Any:
    """Pictures, a record file, and no latency yet."""
    pytest.importorskip("obstore", reason="remote files are read by obstore: the extra remote")
    with RangeServer({f"a/{number}.jpg": jpeg(number) for number in range(COUNT)}) as serving:
        yield serving
    clients.forget()


def pictures(server: Any, **options: Any) -> Any:
    return adapters.open_images([server.url(f"a/{n}.jpg") for n in range(COUNT)], **options)


def test_store_of_a_source(server, tmp_path):
    path, cache = jpeg_file(tmp_path, "tfrecord", 20), tmp_path / "cache"
    server.objects[path.name] = path.read_bytes()
    here, there = open_records(path), open_records(server.url(path.name))
    decoded = adapters.materialize(pictures(server, decode=ImageDecoder(16)), tmp_path / "decoded")
    for source in (here, open_records(path, cache=cache), as_source([1, 2]), decoded):
        assert source.store_is_cached is None
    uncached = [there, pictures(server), pictures(server).select([1]), adapters.mix([here, there])]
    for source in (*uncached, there.select([1]), adapters.concatenate([here, there])):
        assert source.store_is_cached is False
    for source in (open_records(server.url(path.name), cache=cache), pictures(server, cache=cache)):
        assert source.store_is_cached is True


def test_store_that_is_slow_is_found_and_a_cache_advised(server):
    source = pictures(server, decode=ImageDecoder(16))
    server.settings.latency_seconds = 0.03
    with SafeSequence(source, 8, shuffle=True, workers=1, max_queue_size=1) as loader:
        found = diagnose(loader, lambda batch: time.sleep(0.0005), seconds=SECONDS)
    source.close()
    assert (found.bottleneck, found.store) == ("storage", "uncached"), str(found)
    if found.certain:
        assert "bottleneck: storage: fetching the samples over the network" in str(found)
        assert any(each.startswith("cache=") for each in found.advice)


def batches_of(sequence: SafeSequence) -> list[list[float]]:
    return [batch[0].ravel().tolist() for batch in sequence]


@pytest.fixture(params=["diagnose", "sweep"])
def look(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What reads a sequence beside its passes."""
    if request.param == "diagnose":
        return lambda sequence: diagnose(
            sequence, lambda batch: np.random.rand(), seconds=SHORT_SECONDS
        )
    monkeypatch.setattr("adapters.diagnosis.sweep.obstacle_to_processes", lambda plan: "slow here")
    return lambda sequence: sweep(sequence, seconds=0.01, rounds=1)


def test_sequence_goes_on_where_it_stood(look):
    options = {"shuffle": True, **INLINE}
    with (
        SafeSequence(Numbers(), 8, **options) as sequence,
        SafeSequence(Numbers(), 8, **options) as untouched,
    ):
        state = {"epoch": 2, "batch": 3}
        for each in (sequence, untouched):
            each.load_state_dict(state)
        look(sequence)
        assert sequence.state_dict() == state
        assert sequence.waits.batches == 0
        assert batches_of(sequence) == batches_of(untouched)


def test_pass_that_is_under_way_goes_on():
    with SafeSequence(Numbers(), 8, shuffle=True, workers=2) as sequence:
        whole = batches_of(sequence)
        sequence.set_epoch(0)
        batches = iter(sequence)
        parts = [next(batches)[0].ravel().tolist() for _ in range(3)]
        diagnose(sequence, quick_step, seconds=SHORT_SECONDS)
        assert sequence.state_dict() == {"epoch": 0, "batch": 3}
        assert parts + [batch[0].ravel().tolist() for batch in batches] == whole


def test_random_state_is_put_back(look):
    def draws(sample: Any) -> Any:
        return np.float32([random.random() + np.random.rand()])

    before = random.getstate(), np.random.get_state(legacy=False)
    with SafeSequence(Numbers(), 8, transform=draws, **INLINE) as sequence:
        look(sequence)
    np.testing.assert_equal((random.getstate(), np.random.get_state(legacy=False)), before)


# --- what goes wrong ---


EXECUTORS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(THREADS, id="threads"),
    # Each examination starts them four times.
    pytest.param(
        {"workers": 1, "use_multiprocessing": True}, id="processes", marks=pytest.mark.full
    ),
]


@pytest.mark.parametrize("workers", EXECUTORS)
def test_exception_arrives_as_its_own_type(workers):
    with pytest.raises(KeyError, match="sample 3") as caught:
        found(planted.Breaking(), **workers)
    assert "in sample 3" in notes_of(caught.value)


@pytest.mark.parametrize("workers", EXECUTORS)
def test_ctrl_c_ends_it(workers):
    """And leaves nothing behind, as after every test."""

    def interrupted(batch: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found(Numbers(), interrupted, **workers)


@pytest.mark.parametrize("name", ["seconds", "t"])
@pytest.mark.parametrize("value", [0, float("nan")])
def test_times_are_above_nothing(name, value):
    with pytest.raises(ValueError, match=f"{name} must be > 0 seconds, got {value!r}"):
        diagnose([np.zeros(3)], quick_step, **{name: value})


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([np.zeros(3)], 7), {}, TypeError, "step must be a function of a batch or a compiled"),
        (([np.zeros(3)],), {"seconds": None}, TypeError, "seconds must be a number > 0 seconds"),
        (([np.zeros(3)],), {"to_device": abs}, ValueError, "to_device must be None unless step"),
        ((7, quick_step), {}, TypeError, r"loader must be a SafeSequence, .* got int"),
        (([np.zeros(3)], lambda batch: 1 / 0), {}, ZeroDivisionError, "division by zero"),
    ],
)
def test_arguments_and_errors_of_the_step(arguments, options, error, message):
    with pytest.raises(error, match=message):
        diagnose(*arguments, **options)


@pytest.mark.parametrize("batches", [[], (np.zeros(3) for _ in range(4))], ids=["none", "once"])
def test_loader_has_batches_each_time(batches):
    with pytest.raises(ValueError, match="loader must give batches each time"):
        diagnose(batches, quick_step, seconds=SECONDS)
