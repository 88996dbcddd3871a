"""``batchify_fn``, ``batch_transform``, collates, and memory that is used again."""

from __future__ import annotations

import functools
import random
import time
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import Block
from mxnet.gluon.data import ArrayDataset, DataLoader, Dataset, SimpleDataset
from mxnet.gluon.data.vision.transforms import Cast, Compose, ToTensor

from adapters import Buckets, gluon_loader
from adapters import pad as pad_collate
from adapters.structure import as_array
from adapters.transforms import Chain, ColorJitter, MixUp, OneHot
from tests.gluon.data_sets import (
    IN_MEMORY,
    Pair,
    Triples,
    assert_same,
    labels,
    nd,
    numpy_semantics,
    outline,
    pixels,
    theirs,
)
from tests.gluon.executors import EXECUTORS, THREADS, every_executor, every_quick_executor, opened
from tests.gluon.test_parity import INLINE, SEMANTICS, WORKERS, ours
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind
from tests.plans import notes_of

# --- batchify_fn ---


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
    return {"rows": nd(rows), "lengths": rows.any(1), "pair": Pair(len(samples), None)}


def chosen(samples: Any, member: int) -> Any:
    return [sample[member] for sample in samples]


BATCHIFIES = {
    "stack to a tuple": stack,
    "pad to a dict": pad,
    "lambda to a number": lambda samples: len(samples),
    "lambda to the samples": lambda samples: samples,
    "partial": functools.partial(chosen, member=0),
    "nested": lambda samples: ((stack(samples), [pad(samples)]), samples[0][1]),
}


@SEMANTICS
@WORKERS
@pytest.mark.parametrize("name", BATCHIFIES)
def test_own_batchify_gives_the_same_batches(name, workers, semantics):
    with numpy_semantics(semantics):
        arguments = {"batch_size": 4, "batchify_fn": BATCHIFIES[name]}
        data = ArrayDataset(nd(pixels()), labels())
        assert_same(ours(data, **arguments, **workers), theirs(data, **arguments))


@pytest.mark.parametrize(
    "samples",
    [
        [Pair(i, i / 2) for i in range(5)],
        [tuple(range(i)) for i in range(5)],
        [(1, 2), None, 3, (4,)],
        [{"a": i} for i in range(5)],
        ["a", b"b", {1}],
        [np.zeros(i) for i in range(4)],
    ],
    ids=["named tuples", "tuples of any length", "mixed", "dicts", "objects", "ragged"],
)
@pytest.mark.parametrize("transformed", [False, True])
def test_batchify_gets_the_samples_as_they_are(samples, transformed):
    data = SimpleDataset([(sample,) for sample in samples]) if transformed else samples
    data = data.transform(lambda sample: sample) if transformed else data
    arguments = {"batch_size": 3, "batchify_fn": lambda samples: list(samples)}
    assert_same(ours(data, **arguments, **INLINE), theirs(data, **arguments))


def test_batchify_gets_an_empty_batch_as_it_is():
    arguments = {"batch_sampler": [[0], [], [1, 2]], "batchify_fn": len}
    assert ours(labels(), **arguments, **INLINE) == theirs(labels(), **arguments) == [1, 0, 2]
    assert ours(Triples(), **arguments, **INLINE) == theirs(Triples(), **arguments)


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


@every_quick_executor
@pytest.mark.parametrize("first", [False, True], ids=["transform", "transform_first"])
def test_blocks_of_a_compose_pass_tuples_on_as_they_are(executor, first):
    data = SimpleDataset(image_arrays())
    block = Compose([ToTensor(), TwoViews(), Both(), Both()])
    data = data.transform_first(block) if first else data.transform(block)
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(data, batch_size=4))


@every_quick_executor
@pytest.mark.parametrize("singles", [False, True])
def test_tuples_of_several_lengths_come_to_batchify(executor, singles):
    tuples = [(image, *range(number % 3)) for number, image in enumerate(image_arrays())]
    samples = [each[0] if singles and len(each) == 1 else each for each in tuples]
    data = SimpleDataset(samples).transform_first(Compose([ToTensor(), Cast("float64")]))
    with opened(data, executor, batchify_fn=first_and_count) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, batchify_fn=first_and_count))


@pytest.mark.parametrize(
    ("rest", "first", "kind", "message"),
    [((3,), False, TypeError, "positional arguments"), (None, True, ValueError, "empty tuple")],
)
def test_tuple_that_a_stage_cant_take_is_refused_beside_others(rest, first, kind, message):
    image = image_arrays()[0]
    data = SimpleDataset([(image,), () if rest is None else (image, *rest)])
    data = data.transform_first(ToTensor()) if first else data.transform(ToTensor())
    with opened(data, "inline", batchify_fn=list) as loader:
        with pytest.raises(kind, match=message) as caught:
            list(loader)
        assert "1" in str(notes_of(caught.value)) + str(caught.value)


# --- sparse batches ---


ROWS = np.eye(7, 5, dtype=np.float64) * np.arange(1, 8)[:, None]


def csr(samples: list[Any]) -> Any:
    return mx.nd.sparse.csr_matrix(np.array(samples), dtype="float64")


def row_sparse(samples: list[Any]) -> Any:
    return mx.nd.array(np.array(samples), dtype="float32").tostype("row_sparse")


def beside_others(samples: list[Any]) -> Any:
    return {"x": (csr(samples), [row_sparse(samples)]), "y": mx.nd.array(samples), "n": 3}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("batchify", [csr, row_sparse, beside_others])
def test_sparse_batch_arrives_as_mxnets_loader_gives_it(batchify, executor):
    # The last batches hold nothing but zeros.
    expected = [outline(batch) for batch in DataLoader(ROWS, 2, batchify_fn=batchify)]
    with opened(ROWS, executor, 2, batchify_fn=batchify) as loader:
        assert [outline(batch) for batch in loader] == expected


@pytest.mark.parametrize("semantics", [False, True])
@pytest.mark.parametrize("kind", ["nd", "np"])
def test_process_gives_the_kind_of_array_of_a_batchify(kind, semantics):
    def batchify(samples: list[Any]) -> Any:
        return (mx.np if kind == "np" else mx.nd).array(np.array(samples))

    with numpy_semantics(semantics), opened(ROWS, "processes-1", 4, batchify_fn=batchify) as loader:
        assert {type(batch) for batch in loader} == {
            mx.np.ndarray if kind == "np" else mx.nd.NDArray
        }


# --- collates and transforms of this package ---


X = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
Y = np.arange(24) % 4
ALL = Chain([OneHot(4), ColorJitter(0.4, 0.4, 0.4, 0.1), MixUp()])


def test_ndarrays_of_a_data_set_are_left_alone():
    data = nd(X.astype(np.float32) / 255)
    before = data.asnumpy()
    loader = gluon_loader(
        ArrayDataset(data, nd(np.eye(24, dtype="f4"))), 8, batch_transform=MixUp(), num_workers=0
    )
    batch = next(iter(loader))
    assert (batch[0].asnumpy() != before[:8]).any()
    assert (data.asnumpy() == before).all()


@pytest.mark.parametrize("transform", [None, ALL, lambda batch: (batch[0] * 2, batch[1])])
def test_pad_and_a_transform_after_it(transform):
    data = SimpleDataset([(X[number, : 1 + number % 7], number % 4) for number in range(24)])
    for semantics in (False, True):
        with numpy_semantics(semantics):
            loader = gluon_loader(
                data, 8, batchify_fn=pad_collate(), batch_transform=transform, num_workers=0
            )
            images, labels = next(iter(loader))
            kind = mx.np.ndarray if semantics else mx.nd.NDArray
            assert type(images) is type(labels) is kind
            assert images.shape == (8, 7, 8, 3)


def test_batches_of_buckets_are_padded_to_their_bounds():
    lengths = np.random.default_rng(2).integers(1, 60, 200)
    buckets = Buckets(lengths, shapes=4)
    samples = [np.full(n, n, "float32") for n in lengths.tolist()]
    options = {"batchify_fn": pad_collate(), "bucket_by": buckets, "num_workers": 0, "seed": 1}
    with gluon_loader(samples, 8, True, shard=(1, 2), **options) as loader:
        seen = {batch.shape[1] for batch in loader}
    assert len(seen) > 1
    assert seen <= set(buckets.bounds)


@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
def test_members_of_a_fixed_size_keep_it_beside_buckets(last_batch):
    """Also where they are as long as all samples of a batch; draws are those of each batch."""
    lengths = [3, 3, 4, 4, 9, 9, 10, 10]
    data = SimpleDataset([(np.arange(n, dtype="f4"), np.eye(3, dtype="f4")[0]) for n in lengths])
    data = data.transform(lambda tokens, label: (tokens * np.random.rand(), label), lazy=True)
    options = {"batchify_fn": pad_collate(), "bucket_by": Buckets(lengths, shapes=2), "seed": 0}
    passes = []
    with gluon_loader(data, 2, last_batch=last_batch, num_workers=0, **options) as loader:
        for _ in range(2):
            loader.set_epoch(0)
            passes.append(list(loader))
    shapes = [(tokens.shape[1], label.shape[1]) for tokens, label in passes[0]]
    assert shapes == [(4, 3), (4, 3), (10, 3), (10, 3)]
    assert outline(passes[0]) == outline(passes[1])


def test_peek_shows_a_passs_first_batches_and_begins_none():
    loader = gluon_loader((X, Y), 8, shuffle=True, seed=1, num_workers=0)
    peek = loader.peek(2)
    assert loader.state_dict() == {"epoch": 0, "batch": 0}
    first = next(iter(loader))
    assert peek.batches[0][0].tolist() == first[0].asnumpy()[:8].tolist()
    assert len(peek.batches) == 2
    assert peek.png().startswith(b"\x89PNG")


# --- batch_transform ---


BATCHES_OF = 24
NUMBERS = np.arange(BATCHES_OF, dtype=np.float32)


def labelled_images() -> Any:
    data = ArrayDataset(nd(pixels(BATCHES_OF)), NUMBERS)
    return data.transform_first(ToTensor())


def same(batch: Any) -> Any:
    return batch


def mixed(batch: Any, rng: np.random.Generator) -> Any:
    """Mixup."""
    image, label = batch
    share = float(rng.beta(0.4, 0.4))
    order = rng.permutation(len(label))
    return [image * share + image[order] * (1 - share), label, share]


def drawn(batch: Any) -> Any:
    image, label = batch
    return [image + random.random(), label, np.random.rand(2)]


def passes(transform: Any, executor: str, data: Any = None, **arguments: Any) -> list[Any]:
    arguments = {"shuffle": True, "seed": 3, "batch_transform": transform, **arguments}
    with opened(labelled_images() if data is None else data, executor, **arguments) as loader:
        return [[outline(batch) for batch in loader] for _ in range(2)]


@pytest.mark.parametrize("semantics", [False, True])
def test_transform_gets_what_the_loop_would_get(semantics):
    with numpy_semantics(semantics):
        for name, make in IN_MEMORY.items():
            seen: list[Any] = []

            def noting(batch: Any, seen: list[Any] = seen) -> Any:
                seen.append(outline(batch))
                return batch

            with opened(make(), "inline") as loader:
                expected = [outline(batch) for batch in loader]
            with opened(make(), "inline", batch_transform=noting) as loader:
                assert [outline(batch) for batch in loader] == expected == seen, name


@every_executor
@pytest.mark.parametrize("semantics", [False, True])
def test_every_executor_gives_the_same_bits(executor, semantics):
    with numpy_semantics(semantics):
        for transform in (same, mixed, drawn):
            expected = passes(transform, "inline")
            assert passes(transform, executor) == expected
            assert expected[0] != expected[1]


def test_rng_depends_on_epoch_and_index_alone():
    def number(batch: Any, rng: np.random.Generator) -> Any:
        return float(rng.random())

    with opened(NUMBERS, "inline", 4, seed=1, batch_transform=number) as loader:
        small = [list(loader) for _ in range(2)]
    with opened(NUMBERS, THREADS, 8, seed=1, batch_transform=number) as loader:
        assert [list(loader) for _ in range(2)] == [epoch[:3] for epoch in small]
    assert len({*small[0], *small[1]}) == 12


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


@every_executor
def test_transform_comes_after_batchify(executor):
    def batchify(samples: list[Any]) -> Any:
        return {"sum": np.float32(sum(samples)), "all": np.array(samples)}

    def changed(batch: Any) -> Any:
        return {**batch, "nd": mx.nd.array(batch["all"]) * 2}

    with opened(NUMBERS, executor, batchify_fn=batchify, batch_transform=changed) as loader:
        batch = next(iter(loader))
    assert batch["sum"] == 6
    assert batch["nd"].asnumpy().tolist() == [0, 2, 4, 6]
    assert type(batch["all"]) is np.ndarray


def fails(batch: Any) -> Any:
    raise KeyError("no")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("transform", "kind", "message"),
    [(fails, KeyError, "no"), (lambda batch: None, ValueError, "must return a batch, got None")],
)
def test_transform_error_names_the_batch(executor, transform, kind, message):
    loader = opened(NUMBERS, executor, batch_transform=transform, on_error="skip")
    with loader, pytest.raises(kind, match=message) as info:
        list(loader)
    notes = notes_of(info.value)
    assert "in batch_transform" in notes
    assert "in batch 0 of epoch 0" in notes


@pytest.mark.parametrize("wrong", [3, lambda: None, lambda batch, rng, more: None])
def test_wrong_transform_is_refused(wrong):
    with pytest.raises(TypeError, match="batch_transform must"):
        gluon_loader(NUMBERS, 2, batch_transform=wrong)


# --- memory that is used again ---


class OneBuffer(Dataset):  # type: ignore[misc]
    """Fills one buffer with each sample's value."""

    def __init__(self, values: list[float], unreadable: int | None = None) -> None:
        self.values = values
        self.unreadable = unreadable
        self.buffer = np.zeros(2, np.float32)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Any:
        if number == self.unreadable:
            raise ValueError("unreadable")
        self.buffer[:] = self.values[number]
        return self.buffer


def held_one(loader: Any) -> list[list[float]]:
    """The first number of each sample, batch by batch."""
    return [batch.asnumpy()[:, 0].tolist() for batch in loader]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("on_error", ["skip", lambda error, number: np.full(2, -1, np.float32)])
def test_samples_of_one_buffer_are_right_beside_one_that_fails(on_error, executor):
    with opened(OneBuffer([0, 1, 2, 3], unreadable=1), executor, on_error=on_error) as loader:
        (batch,) = held_one(loader)
    assert batch == [0, 2 if on_error == "skip" else -1, 2, 3]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_samples_of_one_buffer_are_right_after_a_batch_of_equals(executor):
    with opened(OneBuffer([5, 5, 5, 5, 6, 7, 8, 9]), executor) as loader:
        assert held_one(loader) == [[5, 5, 5, 5], [6, 7, 8, 9]]


class Masked:
    """A batchify whose batches have what can't lie in a slot, in memory that it uses again."""

    def __init__(self) -> None:
        self.array = np.ma.zeros((4,), np.float32)
        self.objects = np.empty(4, object)

    def __call__(self, samples: list[Any]) -> Any:
        self.array[:] = self.objects[:] = [float(sample) for sample in samples]
        return [self.array, self.objects]


def test_process_delivers_each_of_several_batches_as_it_was():
    numbers = mx.gluon.data.SimpleDataset(list(range(4000)))
    with opened(numbers, "processes-1", batchify_fn=Masked(), prefetch=40) as loader:
        for first, (array, objects) in zip(range(0, 4000, 4), loader):
            if first % 100 == 0:
                time.sleep(0.01)  # As many as may be are ready, or under way.
            np.testing.assert_array_equal(array, range(first, first + 4))
            np.testing.assert_array_equal(objects, range(first, first + 4))


# --- memory that is used again, in every way that people hand out ---


IN_A_BATCH = 4
BATCHES = 6
OF_NUMPY = [way for way in WAYS if way not in FRAMEWORKS]
# All but that of a sample which its author writes into later: MXNet's loader fails there.
OF_SAMPLES = [way for way in OF_NUMPY if way != "a kept new one"]


def _one_ndarray(giver: Giver, new: Any) -> Any:
    array = giver.kept.setdefault("NDArray", mx.nd.zeros(new.shape, dtype=new.dtype))
    array[:] = nd(new)
    return array


def _ring_of_ndarrays(giver: Giver, new: Any) -> Any:
    rows = giver.kept.setdefault("NDArrays", mx.nd.zeros((3, *new.shape), dtype=new.dtype))
    rows[giver.calls % 3] = nd(new)
    return rows[giver.calls % 3]


OF_MXNET = {
    "one NDArray": _one_ndarray,
    "part of an NDArray": lambda giver, new: _one_ndarray(giver, new)[: len(new)],
    "a ring of NDArrays": _ring_of_ndarrays,
}


class Samples(Dataset):  # type: ignore[misc]
    """Arrays, one or more; with whose memory, the kinds say."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.givers = [Giver(kind) for kind in kinds]

    def __len__(self) -> int:
        return IN_A_BATCH * BATCHES

    def __getitem__(self, number: int) -> Any:
        found = tuple(giver.give(number) for giver in self.givers)
        return found if len(found) > 1 else found[0]


class BatchifyInWays:
    """Stacks, and gives memory as the ways say."""

    def __init__(self, ways: list[str]) -> None:
        self.ways = ways
        self.givers: list[Giver] = []

    def __call__(self, batch: list[Any]) -> Any:
        columns = zip(*batch) if isinstance(batch[0], tuple) else [batch]
        stacked = [np.stack([*map(as_array, column)]) for column in columns]
        return [self.given(place, array) for place, array in enumerate(stacked)]

    def given(self, place: int, array: Any) -> Any:
        if place == len(self.givers):
            kind = Kind(self.ways[place % len(self.ways)], array.dtype.name, array.shape)
            self.givers.append(Giver(kind))
        giver = self.givers[place]
        giver.calls += 1
        return WAYS[giver.kind.way](giver, array)


def check(kinds: tuple[Kind, ...], executor: str, **options: Any) -> None:
    """Two passes, all of whose batches are kept."""
    with opened(Samples(kinds), executor, **options) as loader:
        passes = [list(loader), list(loader)]
    for batches in passes:
        assert len(batches) == BATCHES
        for number, batch in enumerate(batches):
            columns = batch if isinstance(batch, list) else [batch]
            for kind, column in zip(kinds, columns, strict=True):
                expected = [kind.content(number * IN_A_BATCH + row) for row in range(IN_A_BATCH)]
                found = column.asnumpy() if hasattr(column, "asnumpy") else column
                np.testing.assert_array_equal(found, np.stack(expected), f"{number} {kind}")


@pytest.mark.parametrize("executor", ["inline", "processes-2"])
@pytest.mark.parametrize("way", OF_SAMPLES)
def test_memory_of_samples_is_right(way, executor):
    check((Kind(way, "float32", (40,)),), executor)
    check((Kind("new", "int32", (3, 5)), Kind(way, "uint8", (40,))), executor)


@pytest.mark.parametrize("executor", ["inline", "processes-2"])
@pytest.mark.parametrize("way", OF_NUMPY)
def test_memory_of_a_batchify_is_right(way, executor):
    kinds = Kind("a ring", "float32", (40, 2)), Kind("one buffer", "int32", (1,))
    check(kinds, executor, batchify_fn=BatchifyInWays([way, "a ring"]))


@pytest.mark.parametrize("executor", ["inline", THREADS])
@pytest.mark.parametrize("way", OF_MXNET)
def test_memory_of_mxnets_arrays_is_right(way, executor, monkeypatch):
    monkeypatch.setitem(WAYS, way, OF_MXNET[way])
    # Long enough for another thread to come between.
    kinds = (Kind(way, "float32", (20_000,)),)
    check(kinds, executor, thread_safe=False)
    check(kinds, executor, thread_safe=False, batchify_fn=BatchifyInWays([way]))
