"""A batch is a pure function of (source, seed, epoch, batch index); samples that can't be had."""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, open_records, pad
from adapters.batch.sourceplan import SourcePlan
from adapters.sources import ArraySource, SequenceSource
from adapters.transforms.transform import BatchTransform
from tests.plans import batch_of, epoch_of, notes_of, plan_of
from tests.sources.example_files import encoded, file_of

# --- transforms ---


class Stored:
    """A data set that hands out what it stores."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return self.samples[number]


@pytest.mark.parametrize("only_reads", [True, False])
def test_stored_samples_are_copied_for_a_collate_that_may_write(only_reads):
    class First:
        def __call__(self, samples):
            is_stored.append(samples[0] is data[0])
            return samples[0] * 1

    is_stored: list[bool] = []
    data, First.only_reads = [np.ones(2)], only_reads
    batch_of(plan_of(data, batch_size=1, collate=First()))
    assert is_stored == [only_reads]


def double(sample: Any) -> Any:
    """Write into the sample."""
    for member in sample if isinstance(sample, tuple) else (sample,):
        member[:] = [2 * value for value in member]
    return sample


@pytest.mark.parametrize(
    ("samples", "argument"),
    [
        (Stored(np.ones((8, 2))), "transform"),
        (Stored([([1, 1],)] * 8), "transform"),
        (Stored([(np.ones(2),)] * 8), "transform"),
        ([np.ones(2) for _ in range(8)], "transform"),
        (np.array([np.ones(2), np.ones(1)], object), "transform"),
        (SequenceSource([(np.ones((4, 2)),)] * 3, False), "batch_transform"),
        (np.ones((8, 2)), "transform"),
        ((np.ones((8, 2)), np.ones((8, 2))), "transform"),
    ],
    ids=["views", "lists", "pairs", "a list", "objects", "a sequence", "an array", "arrays"],
)
def test_functions_may_write_into_what_is_stored(samples, argument):
    plan = plan_of(samples, 1, **{argument: double})
    assert {float(np.max(batch)) for _ in range(2) for batch in epoch_of(plan)} == {2.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transform": lambda sample: None}, "transform must return a sample, got None"),
        ({"transform": lambda sample, rng: None}, "transform must return a sample, got None"),
        ({"batch_transform": lambda batch: None}, "batch_transform must return a batch, got None"),
        ({"collate": pad}, r"collate must return a batch, got pad\("),
        ({"transform": [].pop, "on_error": print}, "on_error must return a sample, got None"),
    ],
)
def test_none_is_no_sample_and_no_batch(arguments, message):
    with pytest.raises(ValueError, match=message):
        batch_of(plan_of(list(range(8)), **arguments))
    with pytest.raises(ValueError, match="source must return a sample, got None") as info:
        batch_of(plan_of([1, None, 2], transform=None))
    assert notes_of(info.value) == "in sample 1, batch 0 of epoch 0"


# --- exceptions carry the sample's number ---


def fail(*_: Any) -> Any:
    raise KeyError("spoilt")


class Spoilt:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> int:
        return number if number != 5 else fail()


class SpoiltAtOnce(Spoilt):
    def __getitems__(self, numbers: list[int]) -> list[int]:
        return [self[number] for number in numbers]


@pytest.mark.parametrize(
    ("data", "arguments", "notes"),
    [
        (Spoilt(), {}, "in sample 5, batch 1 of epoch 3"),
        (SpoiltAtOnce(), {}, "in samples 4, 5, 6, 7, batch 1 of epoch 3"),
        ([0] * 8, {"transform": fail}, "in sample 4, batch 1 of epoch 3"),
        ([0] * 8, {"batch_transform": fail}, "in batch_transform, batch 1 of epoch 3"),
    ],
    ids=["source", "at once", "transform", "batch_transform"],
)
def test_exception_is_its_own_and_says_where(data, arguments, notes):
    with pytest.raises(KeyError, match="spoilt") as info:
        batch_of(plan_of(data, **arguments), 3, 1)
    assert notes_of(info.value) == notes


# --- memory of batches ---


def test_batch_transform_has_the_only_reference():
    """It may resize the array in place, and a batch that it replaces is freed at once."""
    freed: list[bool] = []

    def transform(batch: Any) -> Any:
        batch.resize((len(batch), 3))
        gone = weakref.ref(batch)
        batch = batch + 1
        freed.append(gone() is None)
        return batch

    for collate in (None, np.stack):
        plan = plan_of(np.zeros((8, 2)), 4, batch_transform=transform, collate=collate)
        assert batch_of(plan).shape == (4, 3)
    assert freed == [True, True]


def test_batch_transform_may_reuse_its_buffer():
    buffer = np.zeros((4, 2))

    class Own(BatchTransform):
        def on_own_batch(self, batch: Any, rng: Any) -> Any:
            buffer[:] = batch
            return buffer

    for collate in (None, np.stack):
        data = np.arange(16.0).reshape(8, 2)
        first, second = epoch_of(plan_of(data, 4, batch_transform=Own(), collate=collate))
        assert (first[0, 0], second[0, 0]) == (0.0, 8.0)


# --- samples that can't be had: raise, skip, or ask the user ---

BROKEN = {3, 4, 9, 19}


class Data:
    """Samples are pairs of their number, some broken."""

    def __init__(self, size: int = 20, broken: set[int] | range = frozenset(BROKEN)) -> None:  # type: ignore[assignment]
        self.size = size
        self.broken = broken

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        if number in self.broken:
            raise OSError(f"sample {number} is broken")
        return number, number


class DataAtOnce(Data):
    def __getitems__(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [self[number] for number in numbers]


class Damaged(ArraySource):
    """Arrays, some of whose rows can't be read."""

    def gather(self, numbers, allocate):
        if broken := BROKEN.intersection(numbers.tolist()):
            raise OSError(f"sample {min(broken)} is broken")
        return super().gather(numbers, allocate)


DAMAGED = Damaged((np.arange(20), np.arange(20)))


def refuse(sample: tuple[int, int]) -> tuple[int, int]:
    if sample[0] in BROKEN:
        raise OSError(f"sample {sample[0]} is refused")
    return sample


def draw(sample: tuple[int, int], rng: np.random.Generator) -> tuple[int, int]:
    return sample[0], int(rng.integers(2**62))


def replacements(plan: SourcePlan, epoch: int = 0) -> dict[int, int]:
    """Sample number -> number of the sample that came in its place."""
    asked = [plan.order.batch(epoch, index).tolist() for index in range(plan.num_batches)]
    given = [batch[0].tolist() for batch in epoch_of(plan, epoch)]
    pairs = zip(itertools.chain(*asked), itertools.chain(*given), strict=True)
    return {number: other for number, other in pairs if number != other}


SKIPPED = {3: 5, 4: 5, 9: 10, 19: 0}


@pytest.mark.parametrize("data", [Data(), DataAtOnce(), DAMAGED], ids=type)
@pytest.mark.parametrize(("batch_size", "shuffle"), [(1, False), (3, True), (8, False), (20, True)])
def test_skip_takes_the_next_sample_that_works(data, batch_size, shuffle):
    how: dict[str, Any] = {"shuffle": shuffle, "on_error": "skip"}
    assert replacements(plan_of(data, batch_size, **how)) == SKIPPED
    refused = plan_of(Data(broken=set()), batch_size, transform=refuse, **how)
    assert replacements(refused) == SKIPPED
    shards = [replacements(plan_of(data, 4, shard=(index, 2), **how)) for index in range(2)]
    assert shards[0] | shards[1] == SKIPPED


@pytest.mark.parametrize("data", [DataAtOnce(), DAMAGED])
def test_error_of_samples_read_at_once_names_them(data):
    with pytest.raises(OSError, match="sample 9 is broken") as info:
        batch_of(plan_of(data, 4), index=2)
    assert notes_of(info.value) == "in samples 8, 9, 10, 11, batch 2 of epoch 0"


def test_skip_leaves_a_sample_as_it_is():
    """Its random numbers, too."""
    drawn = [
        dict(zip(*map(np.ndarray.tolist, batch_of(plan)), strict=True))
        for plan in (
            plan_of(Data(), 20, transform=draw, on_error="skip"),
            plan_of(Data(broken=set()), 20, transform=draw),
        )
    ]
    assert drawn[0] == {n: number for n, number in drawn[1].items() if n not in BROKEN}


@pytest.mark.parametrize("data", [Data(5, range(5)), Data(1, {0}), Data(300, range(299))])
def test_skip_gives_up_if_all_are_broken(data):
    with pytest.raises(OSError, match="sample 0 is broken") as info:
        batch_of(plan_of(data, 2, on_error="skip"))
    assert notes_of(info.value).startswith("in sample 0, batch 0 of epoch 0\nand on_error='skip' ")


def test_on_error_gets_the_exception_and_the_number():
    asked: list[Any] = []

    def answer(error: Exception, number: int) -> tuple[int, int]:
        asked.append((type(error), str(error), number))
        return -number, 0

    plan = plan_of(Data(), 20, on_error=answer)
    assert replacements(plan) == {3: -3, 4: -4, 9: -9, 19: -19}
    assert asked == [(OSError, f"sample {n} is broken", n) for n in sorted(BROKEN)]


@pytest.mark.parametrize("kind", [LookupError, StopIteration])
def test_on_error_may_raise(kind):
    def refuse_too(error: Exception, number: int) -> Any:
        raise kind(f"no answer for {number}")

    with pytest.raises((LookupError, RuntimeError), match=r"for 3|StopIteration") as info:
        batch_of(plan_of(Data(), on_error=refuse_too))
    assert isinstance((info.value.__cause__ or info.value).__context__, OSError)
    assert "in on_error, for sample 3" in notes_of(info.value)


@pytest.mark.parametrize("on_error", ["skip", lambda *_: (0, 0)], ids=["skip", "function"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_on_error_is_not_asked_of_exits(error, on_error):
    def leave(sample: Any) -> Any:
        raise error

    with pytest.raises(error):
        batch_of(plan_of(Data(), transform=leave, on_error=on_error))


@pytest.mark.parametrize("on_error", ["skip", lambda *_: (0, 0)], ids=["skip", "function"])
def test_on_error_is_not_asked_of_shapes(on_error):
    with pytest.raises(ValueError, match="samples of a batch must have equal shapes"):
        batch_of(plan_of([np.zeros(2), np.zeros(3)], on_error=on_error))


# --- batches that show which axes differ: those of unequal lengths ---


def shapes(plan):
    """Of the members' samples, in each batch that is lengthened."""

    return [tuple(member.shape[1:] for member in batch) for batch in plan.longer(0)]


def texts(lengths, label=(1,)):
    return [(np.ones(length, int), np.full(label, 2)) for length in lengths]


@pytest.mark.parametrize(
    ("lengths", "collate", "expected"),
    [
        ([3, 5, 4, 4], pad(0), [((6,), (1,)), ((4,), (1,))]),  # One member has a fixed size.
        ([3, 5, 4, 4], pad(0, 16, max_length=16), 2 * [((16,), (16,))]),  # As long as it may.
        ([3] * 6, pad(0), 3 * [((4,), (1,))]),  # None varies: all may but those of 1.
        ([3, 5, 4, 4], pad((0, 0)), [((6,), (2,)), ((5,), (2,))]),  # A value says that it varies.
        ([3] * 8 + [3, 7], pad(0), [((3,), (1,)), ((3,), (1,)), ((8,), (1,))]),
    ],
)
def test_longer_batches(lengths, collate, expected):
    assert shapes(plan_of(texts(lengths), 2, collate=collate)) == expected
    assert plan_of(np.zeros((4, 3))).longer(0) == []
    assert plan_of(texts([1, 1]), collate=list).longer(0) == []


def test_longer_batches_that_fail_are_left_out():
    def fixed(batch):
        return batch[0] + np.zeros(3), batch[1]

    assert shapes(plan_of(texts([3] * 6), 2, collate=pad(0), batch_transform=fixed)) == []


def test_longer_batches_of_features(tmp_path: Path):
    payloads = [encoded({"t": [1] * 5, "y": [1]}) for _ in range(4)]
    decode = {"t": Feature("int64", (None,), default=0), "y": Feature("int64", (1,))}
    source = open_records(file_of(tmp_path, payloads), decode=decode, outputs=("t", "y"))
    assert shapes(plan_of(source, 2)) == 2 * [((6,), (1,))]
    assert plan_of(source, 2, transform=lambda sample: sample).longer(0) == []
