"""``select`` of every kind of source."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from adapters.batch.key import BatchKey
from adapters.engine.serialization import SerializedPlan
from adapters.sources import MapSource, SequenceSource, Source, Subset, as_source
from adapters.sources.source import _IF_ALL, _IF_ANY, Composite
from tests.batches import exact
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.every_kind import KINDS, SIZE, X, Y, all_samples

every_kind = pytest.mark.parametrize("kind", KINDS)
CHOSEN = [7, 2, 2, -1, 0, 9]


@pytest.fixture
def source(kind, tmp_path):
    return KINDS[kind](tmp_path)


@every_kind
def test_it_has_the_chosen_samples_in_their_order(source):
    selected = source.select(CHOSEN)
    assert len(selected) == len(CHOSEN)
    if not source.draws:
        assert exact(selected[:]) == exact([source[number] for number in CHOSEN])
        assert exact(list(selected)) == exact(selected[:])


@every_kind
def test_a_mask_chooses_too(source):
    mask = np.arange(len(source)) % 3 == 1
    samples = all_samples(source.select(mask))
    assert exact(samples) == exact(all_samples(source.select(np.flatnonzero(mask))))


@every_kind
def test_a_batch_is_that_of_the_same_samples_of_the_whole(source):
    """Made the same way: gathered, filled, fetched at once, or asked for."""
    chosen = np.array([9, 3, 4, 5, 0, 10])
    plan = plan_of(source.select(chosen), 6)
    whole = plan_of(source, len(source))
    whole.order = _Fixed(chosen)
    if source.draws:
        return  # What is drawn is another's: see below.
    assert exact(batch_of(plan)) == exact(batch_of(whole))


class _Fixed:
    """An order of one batch."""

    def __init__(self, numbers):
        self.numbers, self.size, self.batch_size = numbers, len(numbers), len(numbers)

    def batch(self, epoch, index, origin=0):
        return self.numbers

    def prefetch(self, place, will_read, asked=False):
        """Nothing."""


@every_kind
def test_it_says_of_itself_what_the_whole_says(source):
    selected = source.select(np.arange(len(source)))
    traits = [
        *("gathers", "leaves", "skeleton", "pads", "users_code", "python_numbers", "makes_samples"),
        *("stored", "fetches_many", "draws", "decodes", "holds_images"),
        *("whole_batches", "endless"),
    ]
    assert {name: getattr(selected, name) for name in traits} == {
        name: getattr(source, name) for name in traits
    }


def test_every_trait_of_a_source_is_known_here():
    """A new one has to be forwarded, too, and looked at in the test before."""
    properties = {name for name, value in vars(Source).items() if isinstance(value, property)}
    assert properties - {*vars(Subset), *vars(Composite)} == {"endless"}
    traits = {name for name, value in vars(Source).items() if isinstance(value, bool)}
    assert traits == {*_IF_ANY, *_IF_ALL, "whole_batches", "changes_between_epochs"}


@every_kind
def test_what_is_selected_may_be_selected_from_without_a_chain(source):
    selected = source.select(range(1, 9)).select([0, -1, 3]).select([2, 1])
    assert exact(all_samples(selected)) == exact(all_samples(source.select([4, 8])))
    if isinstance(selected, Subset):
        assert (type(selected.whole), selected.numbers.tolist()) == (type(source), [4, 8])


@every_kind
def test_it_travels_to_another_process(source):
    selected = source.select(CHOSEN)
    received = pickle.loads(pickle.dumps(selected))
    assert exact(batch_of(plan_of(received, 6))) == exact(batch_of(plan_of(selected, 6)))


@pytest.mark.parametrize("kind", ["arrays", "random boxes"])
def test_worker_processes_share_the_numbers(source):
    def pickled_bytes(selected):
        serialized = SerializedPlan(selected)
        try:
            *_, (_, length) = _places(serialized)
            return length
        finally:
            serialized.close()

    few, many = source.select([0, 1]), source.select(np.arange(200_000) % len(source))
    assert pickled_bytes(many) < pickled_bytes(few) + 200


def _places(serialized):
    with serialized._file.map() as memory:
        return np.frombuffer(bytes(memory[serialized.address.places :]), np.int64).reshape(-1, 2)


@every_kind
def test_none_may_be_chosen(source):
    assert source.select([])[:] == []


@every_kind
@pytest.mark.parametrize(
    ("wrong", "kind_of_error", "said"),
    [
        ([0, 100], IndexError, "got 100 in place 1"),
        ([True] * 9, ValueError, "got 9"),
        ([1.0], TypeError, "integers or a boolean mask, got float64"),
    ],
)
def test_what_is_no_choice_is_refused(source, wrong, kind_of_error, said):
    with pytest.raises(kind_of_error, match=said):
        source.select(wrong)


@every_kind
@pytest.mark.parametrize(
    ("index", "error"), [(100, IndexError), (-101, IndexError), ("a", TypeError)]
)
def test_an_index_that_is_none_is_refused(source, index, error):
    with pytest.raises(error, match="number must be"):
        source.select([1, 2])[index]
    with pytest.raises(error, match="number must be"):
        source[index]


# --- what is random ---


@pytest.fixture
def boxes(tmp_path):
    """Images whose crops are random, once as records select and once as any source does."""
    whole = KINDS["random boxes"](tmp_path)
    return whole.select, lambda numbers: Subset(whole, np.asarray(numbers))


def test_what_is_drawn_depends_on_the_new_number(boxes):
    """As in a file that holds these samples only; chosen twice, it is drawn for twice."""
    for numbers in ([4, 9, 2], [4, 4, 9, 4, 2, 2]):
        by_records, by_any = (select(numbers) for select in boxes)
        expected = [exact(batch) for batch in epoch_of(plan_of(by_records, 4, shuffle=True), 3)]
        found = [exact(batch) for batch in epoch_of(plan_of(by_any, 4, shuffle=True), 3)]
        assert found == expected
        assert exact(all_samples(by_any)) == exact(all_samples(by_records))
    images, _ = batch_of(plan_of(boxes[1]([4, 4]), 2))
    assert (images[0] != images[1]).any()


def test_a_damaged_sample_is_replaced_in_its_own_row(tmp_path):
    class Odd(MapSource):
        """Fails for one number, as it fills."""

        leaves = (((), np.dtype(np.int64)),)
        skeleton = 0
        draws = True

        def fill(self, numbers, rng_of, columns, rows=None):
            columns[0][... if rows is None else rows] = numbers
            return [(row, ValueError("odd")) for row in np.flatnonzero(numbers == 3).tolist()]

    source = Odd(list(range(10))).select([3, 5, 5, 3])
    batch = batch_of(plan_of(source, 4, on_error=lambda error, number: np.int64(100 + number)))
    assert batch.tolist() == [100, 5, 5, 103]


# --- others ---


def test_whole_batches_cannot_be_selected_from():
    source = SequenceSource([np.zeros(3)] * 4, changes_between_epochs=False)
    with pytest.raises(TypeError, match=r"single samples .* whole batches: select from the arrays"):
        source.select([0])


def test_it_says_which_way_samples_come():
    assert (
        as_source((X, Y)).select([1]).way(False)
        == f"1 of {SIZE}: arrays, gathered a batch at a time"
    )


def test_the_array_of_numbers_may_change_afterwards():
    chosen = np.array([3, 4])
    selected = as_source(Y).select(chosen)
    chosen[:] = 0
    assert [int(y) for y in selected] == [30, 40]


def test_looking_up_does_not_depend_on_how_many_were_chosen():
    """Nothing is asked of the source but the samples of the batch."""
    asked = []

    class Noting:
        def __len__(self):
            return 10**9

        def __getitem__(self, number):
            asked.append(number)
            return number

    selected = as_source(Noting()).select(np.arange(0, 10**6, 2)).select(np.arange(10**5)[::-1])
    plan = plan_of(selected, 3)
    assert plan.batch(BatchKey(0, 1), np.empty).batch.tolist() == [199992, 199990, 199988]
    assert asked == [199992, 199990, 199988]
