"""``batchify_fn``, ``batch_transform``, collates, and memory that is used again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import Block
from mxnet.gluon.data import ArrayDataset, DataLoader, Sampler, SimpleDataset
from mxnet.gluon.data.vision.transforms import Cast, Compose, ToTensor

from adapters import Buckets, gluon_loader
from adapters import pad as pad_collate
from tests.gluon import data_sets
from tests.gluon.data_sets import assert_same, labels, nd, numpy_semantics, outline, pixels, theirs
from tests.gluon.executors import THREADS as THREADS_2
from tests.gluon.executors import opened
from tests.gluon.test_parity import INLINE, ND_INLINE_AND_NP_ON_THREADS, ours
from tests.plans import notes_of


def stack(samples: Any) -> Any:
    """A tuple, as MXNet keeps it."""
    images, numbers = zip(*samples)
    return nd(np.stack([image.asnumpy() for image in images])), nd(np.array(numbers))


def pad(samples: Any) -> Any:
    """A dict, of arrays of MXNet's and NumPy's and of neither."""
    longest = max(int(label) % 4 for _, label in samples)
    rows = np.zeros((len(samples), longest + 1), np.float32)
    for row, (_, label) in zip(rows, samples):
        row[: int(label) % 4] = label
    return {"rows": nd(rows), "lengths": rows.any(1), "pair": data_sets.Pair(len(samples), None)}


BATCHIFIES = {
    "stack to a tuple": stack,
    "pad to a dict": pad,
    "nested": lambda samples: ((stack(samples), [pad(samples)]), samples[0][1]),
}


@ND_INLINE_AND_NP_ON_THREADS
@pytest.mark.parametrize("name", BATCHIFIES)
def test_own_batchify_gives_the_same_batches(name, workers, semantics):
    with numpy_semantics(semantics):
        arguments = {"batch_size": 4, "batchify_fn": BATCHIFIES[name]}
        data = ArrayDataset(nd(pixels()), labels())
        assert_same(ours(data, **arguments, **workers), theirs(data, **arguments))


@pytest.mark.parametrize(
    "samples",
    [
        [data_sets.Pair(i, i / 2) for i in range(5)],
        [tuple(range(i)) for i in range(5)],
        [(1, 2), None, 3, (4,)],
        [{"a": i} for i in range(5)],
        ["a", b"b", {1}],
        [np.zeros(i) for i in range(4)],
    ],
    ids=["named tuples", "tuples of any length", "mixed", "dicts", "objects", "ragged"],
)
def test_batchify_gets_the_samples_as_they_are(samples):
    transformed = SimpleDataset([(sample,) for sample in samples]).transform(lambda sample: sample)
    arguments = {"batch_size": 3, "batchify_fn": list}
    for data in (samples, transformed):
        assert_same(ours(data, **arguments, **INLINE), theirs(data, **arguments))


@pytest.mark.parametrize("executor", ["inline", "processes-1"])
def test_empty_arrays_arrive_as_they_are(executor):
    """The boxes of an image without objects, say."""
    boxes = SimpleDataset(range(6)).transform(lambda number: (number, nd(np.ones((number % 3, 5)))))
    with opened(boxes, executor, batchify_fn=list) as loader:
        assert_same(list(loader), theirs(boxes, batch_size=4, batchify_fn=list))


def test_batchify_gets_an_empty_batch_as_it_is():
    arguments = {"batch_sampler": [[0], [], [1, 2]], "batchify_fn": len}
    assert ours(labels(), **arguments, **INLINE) == theirs(labels(), **arguments) == [1, 0, 2]
    for data in (data_sets.triples(), SimpleDataset(nd(pixels())).transform(Cast("float16"))):
        assert ours(data, **arguments, **INLINE) == theirs(data, **arguments)
        with pytest.raises(IndexError, match="a batch must have a sample: the sampler gave none"):
            ours(data, batch_sampler=[[]], **INLINE)


# --- samples that are tuples, or become some ---


def image_arrays() -> list[Any]:
    return [nd(image) for image in pixels()]


def first_and_count(samples: list[Any]) -> Any:
    """The images, and how many members come with each."""
    pairs = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    return [mx.nd.stack(*[first for first, *_ in pairs]), nd(np.array([*map(len, pairs)]))]


class TwoViews(Block):
    def forward(self, image: Any) -> Any:
        return image, image + 1


class Both(Block):
    def forward(self, views: Any) -> Any:
        first, second = views
        return first * 2, second * 3


def test_blocks_of_a_compose_pass_tuples_on_as_they_are():
    block = Compose([ToTensor(), TwoViews(), Both(), Both()])
    data = SimpleDataset(image_arrays())
    for each in (data.transform_first(block), data.transform(block)):
        with opened(each, "inline") as loader:
            assert_same(list(loader), theirs(each, batch_size=4))


@pytest.mark.parametrize(("singles", "executor"), [(False, "inline"), (True, THREADS_2)])
def test_tuples_of_several_lengths_come_to_batchify(singles, executor):
    tuples = [(image, *range(number % 3)) for number, image in enumerate(image_arrays())]
    samples = [each[0] if singles and len(each) == 1 else each for each in tuples]
    data = SimpleDataset(samples).transform_first(Compose([ToTensor(), Cast("float64")]))
    with opened(data, executor, batchify_fn=first_and_count) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, batchify_fn=first_and_count))


ROWS = np.eye(7, 5, dtype=np.float64) * np.arange(1, 8)[:, None]


def csr(samples: list[Any]) -> Any:
    return mx.nd.sparse.csr_matrix(np.array(samples), dtype="float64")


def row_sparse(samples: list[Any]) -> Any:
    return mx.nd.array(np.array(samples), dtype="float32").tostype("row_sparse")


def beside_others(samples: list[Any]) -> Any:
    return {"x": (csr(samples), [row_sparse(samples)]), "y": mx.nd.array(samples), "n": 3}


@pytest.mark.parametrize(
    ("executor", "batchify"),
    [("inline", csr), (THREADS_2, row_sparse), *(("processes-1", f) for f in (csr, beside_others))],
)
def test_sparse_batch_arrives_as_mxnets_loader_gives_it(batchify, executor):
    # The last batches hold nothing but zeros.
    expected = [outline(batch) for batch in DataLoader(ROWS, 2, batchify_fn=batchify)]
    with opened(ROWS, executor, 2, batchify_fn=batchify) as loader:
        assert [outline(batch) for batch in loader] == expected


@pytest.mark.parametrize(("kind", "semantics"), [("nd", True), ("np", False), ("np", True)])
def test_process_gives_the_kind_of_array_of_a_batchify(kind, semantics):
    def batchify(samples: list[Any]) -> Any:
        return (mx.np if kind == "np" else mx.nd).array(np.array(samples))

    made = mx.np.ndarray if kind == "np" else mx.nd.NDArray
    with numpy_semantics(semantics), opened(ROWS, "processes-1", 4, batchify_fn=batchify) as loader:
        assert {type(batch) for batch in loader} == {made}


# --- collates of this package ---


def test_members_of_a_fixed_size_keep_it_beside_buckets():
    """Also where they are as long as all samples of a batch; draws are those of each batch."""
    lengths = [3, 3, 4, 4, 9, 9, 10, 10]
    data = SimpleDataset([(np.arange(n, dtype="f4"), np.eye(3, dtype="f4")[0]) for n in lengths])
    data = data.transform(lambda tokens, label: (tokens * np.random.rand(), label))
    options = {"batchify_fn": pad_collate(), "bucket_by": Buckets(lengths, shapes=2), "seed": 0}
    passes = []
    with gluon_loader(data, 2, **options, **INLINE) as loader:
        for _ in range(2):
            loader.set_epoch(0)
            passes.append(list(loader))
    shapes = [(tokens.shape[1], label.shape[1]) for tokens, label in passes[0]]
    assert shapes == [(4, 3), (4, 3), (10, 3), (10, 3)]
    assert type(passes[0][0][0]) is mx.nd.NDArray
    assert outline(passes[0]) == outline(passes[1])


def test_samples_that_share_memory_are_made_once():
    made, anchors = [], np.zeros(3, "float32")
    data = SimpleDataset(range(8)).transform(lambda n: (made.append(n) or np.float32(n), anchors))
    batches = list(gluon_loader(data, 4, num_workers=0))
    assert (made, batches[0][0].asnumpy().tolist()) == ([*range(8)], [0, 1, 2, 3])


def test_tuple_of_samples_is_a_data_set():
    (batch,) = gluon_loader(((0, 1), (2, 3), (4, 5)), np.int64(3), num_workers=0)
    assert [each.asnumpy().tolist() for each in batch] == [[0, 2, 4], [1, 3, 5]]


def test_peek_leaves_a_samplers_generator_alone():
    class Drawing(Sampler):
        def __iter__(self) -> Any:
            return iter(self.own.permutation(6).tolist())

    passes = []
    for peeks in (False, True):
        sampler = Drawing()
        sampler.own = np.random.RandomState(0)
        loader = gluon_loader(np.arange(6), 6, sampler=sampler, num_workers=0)
        if peeks:
            loader.peek()
        passes.append(next(iter(loader)).asnumpy().tolist())
    assert passes[0] == passes[1]


def test_peek_shows_a_passs_first_batches_and_begins_none():
    loader = gluon_loader((pixels(), labels()), 5, shuffle=True, seed=1, num_workers=0)
    peek = loader.peek(2)
    assert loader.state_dict() == {"epoch": 0, "batch": 0}
    first = next(iter(loader))
    assert peek.batches[0][0].tolist() == first[0].asnumpy().tolist()
    assert len(peek.batches) == 2
    assert peek.png().startswith(b"\x89PNG")


BATCHES_OF = 24
NUMBERS = np.arange(BATCHES_OF, dtype=np.float32)


def labelled_images() -> Any:
    data = ArrayDataset(nd(pixels(BATCHES_OF)), NUMBERS)
    return data.transform_first(ToTensor())


def mixed(batch: Any, rng: np.random.Generator) -> Any:
    """Mixup."""
    image, label = batch
    share = float(rng.beta(0.4, 0.4))
    order = rng.permutation(len(label))
    return [image * share + image[order] * (1 - share), label, share]


def drawn(batch: Any) -> Any:
    image, label = batch
    return [image + random.random(), label, np.random.rand(2)]


def passes(transform: Any, executor: str) -> list[Any]:
    arguments = {"shuffle": True, "seed": 3, "batch_transform": transform}
    with opened(labelled_images(), executor, **arguments) as loader:
        return [[outline(batch) for batch in loader] for _ in range(2)]


@pytest.mark.parametrize(
    ("name", "semantics"),
    [
        ("NumPy arrays", True),
        ("lists", False),
        ("SimpleDataset of nested tuples", True),
        ("triples of the user's own", False),
        ("ToTensor", True),
        ("transform", False),
    ],
)
def test_transform_gets_what_the_loop_would_get(name, semantics):
    seen: list[Any] = []

    def noting(batch: Any) -> Any:
        seen.append(outline(batch))
        return batch

    with numpy_semantics(semantics):
        with opened(data_sets.IN_MEMORY[name](), "inline") as loader:
            expected = [outline(batch) for batch in loader]
        with opened(data_sets.IN_MEMORY[name](), "inline", batch_transform=noting) as loader:
            assert [outline(batch) for batch in loader] == expected == seen


@pytest.mark.parametrize(
    ("transform", "executor", "semantics"),
    [(mixed, THREADS_2, False), (drawn, THREADS_2, True), (mixed, "processes-1", True)],
)
def test_every_executor_gives_the_same_bits(transform, executor, semantics):
    with numpy_semantics(semantics):
        expected = passes(transform, "inline")
        assert passes(transform, executor) == expected
        assert expected[0] != expected[1]


def test_batchify_after_a_stage_draws_for_each_batch():
    """No sample is asked for one by one there, which is when the generators are seeded."""

    def batchify(samples: list[Any]) -> Any:
        return [np.random.rand(), random.random()]

    def numbers(executor: str) -> list[Any]:
        with opened(labelled_images(), executor, seed=3, batchify_fn=batchify) as loader:
            return [batch for _ in range(2) for batch in loader]

    expected = numbers("inline")
    assert len({each for batch in expected for each in batch}) == 24
    assert numbers("inline") == numbers("processes-1") == expected


def fails(batch: Any) -> Any:
    raise KeyError("no")


@pytest.mark.parametrize(
    ("transform", "kind", "message", "executor"),
    [
        (fails, KeyError, "no", "processes-1"),
        (lambda batch: None, ValueError, "must return a batch, got None", "inline"),
    ],
)
def test_transform_error_names_the_batch(transform, kind, message, executor):
    loader = opened(NUMBERS, executor, batch_transform=transform, on_error="skip")
    with loader, pytest.raises(kind, match=message) as info:
        list(loader)
    assert "in batch_transform" in notes_of(info.value)
    assert "in batch 0 of epoch 0" in notes_of(info.value)


@pytest.mark.parametrize("wrong", [3, lambda: None, lambda batch, rng, more: None])
def test_wrong_transform_is_refused(wrong):
    with pytest.raises(TypeError, match="batch_transform must"):
        gluon_loader(NUMBERS, 2, batch_transform=wrong)


def one_buffer(values: list[float], unreadable: int | None = None) -> data_sets.Computed:
    """A data set that fills one buffer with each sample's value."""
    buffer = np.zeros(2, np.float32)

    def sample(number: int) -> Any:
        if number == unreadable:
            raise ValueError("unreadable")
        buffer[:] = values[number]
        return buffer

    return data_sets.Computed(sample, len(values))


def held_one(loader: Any) -> list[list[float]]:
    """The first number of each sample, batch by batch."""
    return [batch.asnumpy()[:, 0].tolist() for batch in loader]


def minus_ones(error: Exception, number: int) -> Any:
    return np.full(2, -1, np.float32)


@pytest.mark.parametrize(
    ("on_error", "executor"), [("skip", "inline"), ("skip", "processes-1"), (minus_ones, THREADS_2)]
)
def test_samples_of_one_buffer_are_right_beside_one_that_fails(on_error, executor):
    with opened(one_buffer([0, 1, 2, 3], unreadable=1), executor, on_error=on_error) as loader:
        (batch,) = held_one(loader)
    assert batch == [0, 2 if on_error == "skip" else -1, 2, 3]


# Of memory with room for three.
WAYS: dict[str, Callable[[Any, int], Any]] = {
    "one": lambda memory, call: memory[0],
    "a part": lambda memory, call: memory[0][: memory.shape[1]],
    "a ring": lambda memory, call: memory[call % 3],
}


@pytest.mark.parametrize("executor", ["inline", THREADS_2, "processes-1"])
@pytest.mark.parametrize("make", [np.zeros, mx.nd.zeros], ids=["NumPy", "MXNet"])
@pytest.mark.parametrize("way", WAYS)
def test_memory_that_is_used_again(way, make, executor):
    """For samples and for batches, all of which are kept."""
    width, calls = 20_000, itertools.count()  # Long enough for another thread to come between.
    samples, batches = make((3, width)), make((3, 4, width))

    def sample(number: int) -> Any:
        row = WAYS[way](samples, next(calls))
        row[:] = number
        return row

    def batchify(rows: list[Any]) -> Any:
        batch = WAYS[way](batches, next(calls))
        for place, row in enumerate(rows):
            batch[place] = row
        return batch

    for options in ({}, {"batchify_fn": batchify}):
        data = data_sets.Computed(sample, 24)
        with opened(data, executor, thread_safe=False, **options) as loader:
            kept = [*loader, *loader]
        found = np.stack([each.asnumpy() if hasattr(each, "asnumpy") else each for each in kept])
        np.testing.assert_array_equal(found.min(2).ravel(), [*range(24)] * 2)
        np.testing.assert_array_equal(found.max(2).ravel(), [*range(24)] * 2)
