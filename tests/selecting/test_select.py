"""``source.select``, of every kind of source: the chosen samples, in their order."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.batch.key import BatchKey
from adapters.errors import ClosedError
from adapters.records import irheader
from adapters.sources import MapSource, SequenceSource, Subset, as_source
from tests.batches import exact
from tests.images.pictures import encoded, picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.every_kind import KINDS, Y, all_samples
from tests.sources.record_files import FORMATS, write

every_kind = pytest.mark.parametrize("kind", KINDS)
CHOSEN = [7, 2, 2, -1, 0, 9]


@pytest.fixture
def source(kind, tmp_path):
    return KINDS[kind](tmp_path)


@every_kind
def test_select_takes_samples_in_order(source):
    selected = source.select(CHOSEN)
    assert len(selected) == len(CHOSEN)
    assert source.select([])[:] == []
    mask = np.arange(len(source)) % 3 == 1
    by_mask, by_number = source.select(mask), source.select(np.flatnonzero(mask))
    assert exact(all_samples(by_mask)) == exact(all_samples(by_number))
    if not source.draws:
        assert exact(selected[:]) == exact([source[number] for number in CHOSEN])
        assert exact(list(selected)) == exact(selected[:])


@every_kind
def test_select_batches_are_those_of_the_whole(source):
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
def test_select_of_a_selection(source):
    selected = source.select(range(1, 9)).select([0, -1, 3]).select([2, 1])
    assert exact(all_samples(selected)) == exact(all_samples(source.select([4, 8])))


@every_kind
def test_select_pickles(source):
    selected = source.select(CHOSEN)
    received = pickle.loads(pickle.dumps(selected))
    assert exact(batch_of(plan_of(received, 6))) == exact(batch_of(plan_of(selected, 6)))


@pytest.mark.parametrize("kind", ["arrays", "images"])
@pytest.mark.parametrize(
    ("index", "error"), [(100, IndexError), (-101, IndexError), ("a", TypeError)]
)
def test_index_out_of_range(source, index, error):
    with pytest.raises(error, match="number must be"):
        source.select([1, 2])[index]
    with pytest.raises(error, match="number must be"):
        source[index]


@pytest.fixture
def boxes(tmp_path):
    """Images whose crops are random, once as records select and once as any source does."""
    whole = KINDS["random boxes"](tmp_path)
    return whole.select, lambda numbers: Subset(whole, np.asarray(numbers))


def test_select_draws_by_the_new_number(boxes):
    """As in a file that holds these samples only; chosen twice, it is drawn for twice."""
    for numbers in ([4, 9, 2], [4, 4, 9, 4, 2, 2]):
        by_records, by_any = (select(numbers) for select in boxes)
        expected = [exact(batch) for batch in epoch_of(plan_of(by_records, 4, shuffle=True), 3)]
        found = [exact(batch) for batch in epoch_of(plan_of(by_any, 4, shuffle=True), 3)]
        assert found == expected
        assert exact(all_samples(by_any)) == exact(all_samples(by_records))
    images, _ = batch_of(plan_of(boxes[1]([4, 4]), 2))
    assert (images[0] != images[1]).any()


def test_select_replaces_a_failed_row(tmp_path):
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


def test_select_refuses_whole_batches():
    source = SequenceSource([np.zeros(3)] * 4, changes_between_epochs=False)
    with pytest.raises(TypeError, match=r"single samples .* whole batches: select from the arrays"):
        source.select([0])


def test_select_copies_the_numbers():
    chosen = np.array([3, 4])
    selected = as_source(Y).select(chosen)
    chosen[:] = 0
    assert [int(y) for y in selected] == [30, 40]


def test_select_reads_only_its_samples():
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


@pytest.fixture(params=FORMATS)
def numbers(request, tmp_path):
    """Ten records in two files, each its number."""
    names = [
        write(tmp_path / name, request.param, [str(n).encode() for n in part])
        for name, part in (("a", range(4)), ("b", range(4, 10)))
    ]
    return open_records(names, decode=int)


@pytest.mark.parametrize(
    ("chosen", "samples"),
    [
        ([7, 2, 2, -1], [7, 2, 2, 9]),
        (range(3, 6), [3, 4, 5]),
        (np.array([9, 0], np.uint8), [9, 0]),
        ((np.arange(10) % 3 == 1).tolist(), [1, 4, 7]),
        ([], []),
    ],
)
def test_select_takes_numbers_ranges_and_masks(numbers, chosen, samples):
    selected = numbers.select(chosen)
    assert (len(selected), selected[:], list(selected)) == (len(samples), samples, samples)
    assert [selected.read(place) for place in range(len(samples))] == [b"%d" % n for n in samples]


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        ([0, 10], IndexError, r"in range\(-10, 10\), got 10 in place 1"),
        ([True] * 9, ValueError, "each of the 10 samples, got 9"),
        ([[1], [2]], ValueError, r"one axis, got 2: shape \(2, 1\)"),
        ([1.0], TypeError, "integers or a boolean mask, got float64"),
        ({1, 2}, TypeError, "sequence of sample numbers .* set; make a list"),
        (3, TypeError, "sequence of sample numbers"),
    ],
)
def test_select_refuses_what_is_no_choice(numbers, wrong, kind, said):
    for source in (numbers, as_source(np.arange(10)), as_source(list(range(10)))):
        with pytest.raises(kind, match=said):
            source.select(wrong)


def test_select_is_closed_by_itself(numbers):
    selected = numbers.select([5])
    numbers.close()
    assert selected[0] == 5
    with pytest.raises(ClosedError):
        numbers.select([5])
    selected.close()
    with pytest.raises(ClosedError):
        selected[0]


def test_select_names_a_damaged_record_as_in_its_file(tmp_path):
    contents = [
        irheader.pack(n, n, encoded(picture(9, 9), "JPEG")[: -5 if n == 4 else None])
        for n in range(6)
    ]
    path = write(tmp_path / "a.rec", "recordio", contents)
    source = open_records(path, decode=ImageDecoder(8)).select([5, 4])
    for ask in (lambda: source[1], lambda: batch_of(plan_of(source, 2))):
        with pytest.raises(RecordError, match="record 4, ") as caught:
            ask()
        assert caught.value.offset == sum(len(c) + 8 + (-len(c) % 4) for c in contents[:4])


@pytest.fixture
def faces(tmp_path):
    """A header, seven images, three identities."""
    jpeg = encoded(picture(9, 9), "JPEG")
    records = [irheader.pack([8.0, 11.0], 0, b"")]
    records += [irheader.pack(n // 2, n, jpeg) for n in range(1, 8)]
    records += [irheader.pack([n, n + 2], n, b"") for n in range(3)]
    return write(tmp_path / "train.rec", "recordio", records)


def test_insightface_header_says_which_are_images(faces):
    label = open_records(faces, decode={"label": Feature("float32", (None,))})[0]["label"]
    source = open_records(faces, decode=ImageDecoder(8)).select(range(1, int(label[0])))
    images, labels = batch_of(plan_of(source, 7))
    assert (images.shape, labels.tolist()) == ((7, 8, 8, 3), [0, 1, 1, 2, 2, 3, 3])


def test_insightface_file_is_taken_for_images(faces):
    assert as_source(faces).holds_images
