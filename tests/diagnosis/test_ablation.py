"""What is left of a plan without a part of its work."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ClosedError, ImageDecoder, open_images, open_records, pack
from adapters.batch.order import Order
from adapters.batch.sourceplan import SourcePlan
from adapters.diagnosis.ablation import Ablations, Repeated, ablations_of
from adapters.sources import ArraySource, SequenceSource
from tests.packing.materials import folder, jpeg
from tests.plans import batch_of, plan_of

SIZE, BATCH_SIZE = 26, 4


class Counted:
    """A data set, or a sequence of batches, that knows what it was asked for."""

    thread_safe = False

    def __init__(self, size: int = SIZE, broken: tuple[int, ...] = ()) -> None:
        self.asked: list[int] = []
        self.size = size
        self.broken = broken

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        self.asked.append(number)
        if number in self.broken:
            raise KeyError(number)
        return np.float32([number])


class Unending(Counted):
    """The same without a length."""

    num_batches = None


def batches_of(plan: SourcePlan, count: int = 9) -> list[Any]:
    return [batch_of(plan, 0, index) for index in range(count)]


def doubled(sample: Any) -> Any:
    return 2 * sample


def test_the_whole_is_the_plan_itself():
    plan = plan_of(Counted())
    assert ablations_of(plan, 0).whole is plan


def test_storage_fetches_each_sample_and_transforms_none():
    def never(sample: Any) -> Any:
        raise AssertionError("transformed")

    data = Counted()
    storage = ablations_of(plan_of(data), 0).storage
    data.asked.clear()
    storage.transform = never
    batches_of(storage, 7)
    assert data.asked == list(range(SIZE))


def test_memory_transforms_without_asking_for_a_sample():
    data = Counted()
    memory = ablations_of(plan_of(data, transform=doubled), 0).memory
    data.asked.clear()
    batches = batches_of(memory)
    assert data.asked == []
    assert batches[1].ravel().tolist() == [8, 10, 12, 14]


def test_memory_repeats_the_first_four_batches():
    batches = batches_of(ablations_of(plan_of(Counted()), 0).memory)
    assert [batch[0, 0] for batch in batches] == [0, 4, 8, 12, 0, 4, 8, 12, 0]


def test_collation_gives_what_was_transformed_before():
    calls = itertools.count()

    def counted(sample: Any) -> Any:
        next(calls)
        return 2 * sample

    collation = ablations_of(plan_of(Counted(), transform=counted), 0).collation
    before = next(calls)
    assert batches_of(collation)[1].ravel().tolist() == [8, 10, 12, 14]
    assert next(calls) == before + 1


def test_the_samples_that_are_kept_are_those_of_the_epoch():
    plan = plan_of(Counted(), shuffle=True)
    memory = ablations_of(plan, 3).memory
    np.testing.assert_array_equal(batches_of(memory, 1)[0], batch_of(plan, 3, 0))


def test_a_plan_of_one_batch_repeats_it():
    memory = ablations_of(plan_of(Counted(3)), 0).memory
    assert [len(batch) for batch in batches_of(memory, 3)] == [3, 3, 3]


def test_what_is_left_can_be_sent_to_worker_processes():
    ablations = ablations_of(plan_of(Counted(), transform=doubled), 0)
    for plan in (ablations.storage, ablations.memory, ablations.collation):
        copy = pickle.loads(pickle.dumps(plan))
        np.testing.assert_array_equal(batches_of(copy)[5], batches_of(plan)[5])


# --- samples that can't be had ---


def test_a_broken_sample_is_an_error():
    with pytest.raises(KeyError):
        ablations_of(plan_of(Counted(broken=(2,))), 0)


@pytest.mark.parametrize("broken", [(2,), tuple(range(16))], ids=["one", "all"])
def test_broken_samples_are_left_to_on_error(broken):
    ablations = ablations_of(plan_of(Counted(broken=broken), on_error="skip"), 0)
    for plan in (ablations.storage, ablations.memory, ablations.collation):
        if plan is not None:
            batches_of(plan)


def test_samples_that_cannot_be_transformed_are_left_to_on_error():
    def picky(sample: Any) -> Any:
        return 1 / 0 if sample[0] == 2 else sample

    plan = plan_of(Counted(), transform=picky, on_error="skip")
    assert batches_of(ablations_of(plan, 0).collation)[0].ravel().tolist() == [0, 1, 3]


# --- other sources ---


def arrays_of(**arguments: Any) -> Ablations:
    source = ArraySource((np.arange(SIZE), np.arange(SIZE)))
    return ablations_of(SourcePlan(source, Order(SIZE, BATCH_SIZE), **arguments), 0)


def test_rows_of_arrays_are_fetched_and_collated_at_once():
    assert arrays_of().gathers
    assert not ablations_of(plan_of(Counted()), 0).gathers


def test_collation_of_arrays_is_gathering_without_batch_transform():
    collation = arrays_of(batch_transform=lambda batch: 1 / 0).collation
    assert [column.tolist() for column in batches_of(collation)[5]] == [[4, 5, 6, 7]] * 2


def test_a_batch_of_a_sequence_is_not_taken_apart():
    data = Counted()
    ablations = ablations_of(
        SourcePlan(SequenceSource(data, changes_between_epochs=False), Order(SIZE, 1)), 0
    )
    assert ablations.collation is None
    data.asked.clear()
    assert [batch[0] for batch in batches_of(ablations.memory, 5)] == [0, 1, 2, 3, 0]
    assert data.asked == []
    batches_of(ablations.storage, 2)
    assert data.asked == [0, 1]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "train.rec"
    pack([(jpeg(number), number) for number in range(6)], path, format="recordio")
    return path


def records_of(path: Path, decode: Any, transform: Any = None) -> Ablations:
    source = open_records(path, decode=decode)
    return ablations_of(SourcePlan(source, Order(len(source), 2), transform), 0)


def test_records_that_are_decoded_into_the_batch_have_no_collation(images):
    ablations = records_of(images, ImageDecoder(16))
    assert ablations.decodes
    assert ablations.collation is None
    assert batches_of(ablations.memory, 1)[0][0].shape == (2, 16, 16, 3)


def test_records_that_are_transformed_have_one(images):
    collation = records_of(images, ImageDecoder(16), lambda sample: sample[0]).collation
    assert batches_of(collation, 1)[0].shape == (2, 16, 16, 3)


def test_storage_reads_records_without_decoding_them(images):
    def never(payload: bytes) -> Any:
        raise AssertionError("decoded")

    source = open_records(images, decode=never)
    storage = ablations_of(
        SourcePlan(source, Order(len(source), 2), on_error=lambda error, number: np.zeros(1)), 0
    ).storage
    storage.on_error = "raise"
    batches_of(storage, 3)


def test_records_without_images_decode_none(images):
    assert not records_of(images, None).decodes


def test_files_of_images_are_read_as_storage_and_decoded_into_the_batch(tmp_path):
    source = open_images(folder(tmp_path), decode=ImageDecoder(16))
    ablations = ablations_of(SourcePlan(source, Order(len(source), 2)), 0)
    assert (ablations.decodes, ablations.collation) == (True, None)
    assert batches_of(ablations.memory, 1)[0][0].shape == (2, 16, 16, 3)
    source.close()
    with pytest.raises(ClosedError):
        batches_of(ablations.storage, 1)


# --- an order without an end ---


def test_a_source_without_an_end_is_taken_apart():
    data = Unending()
    plan = SourcePlan(SequenceSource(data, changes_between_epochs=False), Order(None, 1))
    ablations = ablations_of(plan, 0)
    data.asked.clear()
    assert [batch[0] for batch in batches_of(ablations.memory, 5)] == [0, 1, 2, 3, 0]
    assert data.asked == []


def test_batches_are_repeated_without_an_end():
    order = Repeated.of([np.array([4, 5]), np.array([1])])
    assert [order.batch(9, index).tolist() for index in range(3)] == [[4, 5], [1], [4, 5]]
    assert order.num_batches is None
    with pytest.raises(TypeError, match="an order without an end has no length"):
        len(order)
    assert order.first(0, 1) == 1
    assert (order.batch_size, order.shuffled_batch(0, 7)) == (2, 7)


def test_an_order_of_repeated_batches_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Repeated.of([[4, 5]]).batches = [[1, 2]]


def test_the_sample_after_the_last_one_is_the_first():
    """For ``on_error``, as in the plan itself."""
    broken = {SIZE - 1: True}

    def picky(sample: Any) -> Any:
        if broken.get(int(sample[0])):
            raise KeyError("the last")
        return sample

    plan = plan_of(list(np.arange(SIZE)[:, None]), SIZE, transform=picky, on_error="skip")
    memory = ablations_of(plan, 0).memory
    np.testing.assert_array_equal(batches_of(memory, 1)[0], batch_of(plan, 0, 0))
    assert batches_of(memory, 1)[0].ravel().tolist() == [*range(SIZE - 1), 0]
