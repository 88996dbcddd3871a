"""What raises, dies, hangs or can't be sent, and ``on_error``: what takes a sample's place."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, SimpleDataset
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight, ToTensor

from adapters import gluon_loader
from tests.engine.executors import within
from tests.engine.workloads import Numbers
from tests.gluon.data_sets import Computed, assert_same, folder_data_set, nd, pixels, values
from tests.gluon.executors import EXECUTORS, THREADS, opened
from tests.plans import notes_of

EXPECTED = [list(range(i, min(i + 4, 26))) for i in range(0, 26, 4)]


class Faulty(Numbers):
    """Raises at sample 9, once."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.errors = [error]

    def __getitem__(self, number: int) -> int:
        if number == 9 and self.errors:
            raise self.errors.pop()
        return number

    __call__ = __getitem__

    def batchify(self, samples: list[int]) -> Any:
        return mx.nd.array([self(sample) for sample in samples])


def numbers(count: int = 26) -> Any:
    return SimpleDataset(list(range(count)))


PLACES = {
    "data set": lambda faulty: (faulty, {}),
    "transform": lambda faulty: (numbers().transform(faulty), {}),
    "second transform": lambda faulty: (numbers().transform(int).transform(faulty), {}),
    "batchify": lambda faulty: (numbers(), {"batchify_fn": faulty.batchify}),
}
every_place = pytest.mark.parametrize(
    ("place", "executor"), [*zip(PLACES, itertools.cycle(["inline", THREADS]))]
)


def fail(loader: Any, kind: type[BaseException]) -> Any:
    """The error that ends a pass, after the batches before it."""
    iterator, batches = iter(loader), []
    with pytest.raises(kind) as caught:
        batches.extend(batch.asnumpy().tolist() for batch in iterator)
    assert batches == EXPECTED[:2]
    with pytest.raises(StopIteration):
        next(iterator)
    return caught.value


@every_place
def test_error_arrives_as_it_is(place, executor):
    error = KeyError("spoilt")
    data, arguments = PLACES[place](Faulty(error))
    with opened(data, executor, **arguments) as loader:
        assert fail(loader, KeyError) is error
        assert "in batch 2 of epoch 0" in notes_of(error)
        assert ("in sample 9" in notes_of(error)) == (place != "batchify")
        assert values(loader) == EXPECTED


@every_place
def test_stop_iteration_is_an_error_and_no_silent_end(place, executor):
    data, arguments = PLACES[place](Faulty(StopIteration("spoilt")))
    with opened(data, executor, **arguments) as loader:
        assert "raised StopIteration" in str(fail(loader, RuntimeError))
        assert len(values(loader)) == 7


def test_replay_names_the_samples_used():
    loader = gluon_loader(numbers(4).transform([0, 1].__getitem__), 4, on_error="skip", seed=0)
    replay = loader.replay(0, 0)
    assert (replay.numbers.tolist(), replay.replaced) == ([0, 1, 0, 0], {2: 2, 3: 3})


@pytest.mark.parametrize("show", [lambda loader: loader.peek(4), lambda each: each.replay(0, 2)])
def test_stop_iteration_is_an_error_where_batches_are_shown(show):
    with opened(Faulty(StopIteration("spoilt")), "inline") as loader:
        with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
            show(loader)
        assert "in sample 9" in notes_of(caught.value)


@pytest.mark.parametrize("executor", ["inline", "processes-1"])
def test_stage_that_fails_names_its_sample(executor):
    images = [np.zeros((4, 4, 3), np.uint8)] * 9 + [np.zeros(5, np.uint8)]
    data = SimpleDataset([mx.nd.array(image, dtype="uint8") for image in images])
    with opened(data.transform(ToTensor()), executor, 1) as loader:
        iterator = iter(loader)
        for _ in range(9):
            assert next(iterator).shape == (1, 3, 4, 4)
        with pytest.raises(mx.MXNetError) as caught:
            next(iterator)
        assert "sample 9" in notes_of(caught.value)


@pytest.mark.parametrize(
    ("make", "other", "executor"),
    [
        (np.zeros, (2, 4), "processes-1"),
        (mx.nd.zeros, (2, 4), "inline"),
        *((mx.nd.zeros, other, "inline") for other in [(3, 2), (6,), (2, 1, 3)]),
    ],
)
def test_ragged_samples_are_named_with_both_shapes(make, other, executor):
    """MXNet's own stack mixes those of one size: a portrait among landscapes becomes noise."""
    data = SimpleDataset([(make((2, 3)), 1), (make((2, 3)), 1), (make(other), 1)])
    with (
        opened(data, executor, 3) as loader,
        pytest.raises(ValueError, match="must have equal shapes") as caught,
    ):
        next(iter(loader))
    for part in ("sample 2 ", "sample 0 ", "(2, 3)", str(other)):
        assert part in str(caught.value)


def test_batch_that_takes_too_long_is_a_timeout_error():
    go_on = threading.Event()

    class Waiting(Numbers):
        def __getitem__(self, number: int) -> int:
            assert number != 9 or go_on.wait(20)
            return number

    with opened(Waiting(), THREADS, timeout=0.5) as loader, within(10):
        try:
            error = fail(loader, multiprocessing.TimeoutError)
            assert "batch 2 in 0.5 seconds" in str(error)
        finally:
            go_on.set()
        assert values(loader) == EXPECTED


# --- on_error ---


SIZE = 12
BROKEN = {3, 4, 8, 11}
# With batches of 5, the first one has two, the last one wraps around.
SKIPPED = [0, 1, 2, 5, 5, 5, 6, 7, 9, 9, 10, 0]
NUMBERS = np.arange(SIZE)


def refuse(number: Any) -> Any:
    if int(number) in BROKEN:
        raise OSError(f"sample {int(number)} is broken")
    return number


def images() -> Any:
    """With labels; some are too small to be cropped, and of a shape of their own."""
    rows = [image[: 2 if number in BROKEN else 6] for number, image in enumerate(pixels(SIZE))]
    return SimpleDataset([(nd(row), number) for number, row in enumerate(rows)])


def needs_height(image: Any, label: Any) -> Any:
    assert image.shape[0] == 6
    return image, label


def numbers_of(batches: Any) -> list[int]:
    last = [batch[-1] if isinstance(batch, list) else batch for batch in batches]
    return [int(number) for batch in last for number in batch.asnumpy().ravel()]


DATA: dict[str, Any] = {
    "a data set": lambda: Computed(refuse, SIZE),
    "a function over arrays": lambda: ArrayDataset(NUMBERS).transform(refuse),
    "before a stage": lambda: images().transform(needs_height).transform_first(ToTensor()),
    "after a stage": lambda: (
        ArrayDataset(nd(pixels(SIZE)), NUMBERS)
        .transform_first(ToTensor())
        .transform(lambda image, number: (image, refuse(number)))
    ),
    "take": lambda: Computed(refuse, SIZE + 3).take(SIZE),
}


@pytest.mark.parametrize(("name", "executor"), [*zip(DATA, itertools.cycle(["inline", THREADS]))])
def test_skip_takes_the_next_sample_that_works(name, executor, caplog):
    with opened(DATA[name](), executor, 5, on_error="skip") as loader:
        assert numbers_of(loader) == SKIPPED
        assert caplog.messages == ["epoch 0: on_error replaced 4 samples"]
        assert numbers_of(loader) == SKIPPED


def test_skipped_samples_of_a_sampler_are_counted(caplog):
    data = ArrayDataset(NUMBERS).transform(refuse)
    with opened(data, "inline", 5, sampler=[3, -4, 1], on_error="skip") as loader:
        assert values(loader) == [[5, 9, 1]]
    assert caplog.messages == ["epoch 0: on_error replaced 2 samples"]


def test_function_gives_a_finished_sample():
    def instead(error: Exception, number: int) -> int:
        assert type(error) is OSError
        assert f"in sample {number}, batch {number // 5} of epoch 0" in notes_of(error)
        return 100 + number

    data = ArrayDataset(NUMBERS).transform(refuse)
    with opened(data, THREADS, 5, on_error=instead) as loader:
        expected = [100 + number if number in BROKEN else number for number in range(SIZE)]
        assert numbers_of(loader) == expected


def test_errors_that_mxnet_puts_off_are_met(tmp_path):
    """It reads images in a thread of its own, and fails where they are used."""
    data = folder_data_set(tmp_path)
    path = sorted((tmp_path / "images" / "a").iterdir())[1]
    path.write_bytes(path.read_bytes()[:60])
    with opened(data, "inline", 3, on_error="skip") as loader:
        (first, *_), (_, expected, _) = next(iter(loader)), (data[0], data[2], data[3])
        np.testing.assert_array_equal(first[1].asnumpy(), expected[0].asnumpy())


def test_replacement_is_what_it_is_in_its_own_place():
    """Its random numbers too, of a stage and of the user's own."""

    def drawn(image: Any, number: Any) -> Any:
        return image, np.random.rand(), refuse(number)

    data = ArrayDataset(nd(pixels(SIZE)), NUMBERS).transform_first(RandomFlipLeftRight())
    arguments = {"batch_size": 5, "seed": 3, "on_error": "skip"}
    passes = []
    for executor in EXECUTORS:
        with opened(data.transform(drawn), executor, **arguments) as loader:
            passes.append([*loader, *loader])
        assert_same(passes[-1], passes[0])
    rows = [row for b in passes[0][:3] for row in zip(*(each.asnumpy().tolist() for each in b))]
    assert [int(number) for *_, number in rows] == SKIPPED
    by_number = {int(row[2]): row for row in rows}
    assert all(row == by_number[int(row[2])] for row in rows)
    assert len({row[1] for row in rows}) == len(set(SKIPPED))


def test_samples_by_name_need_a_function():
    arguments = {"batch_sampler": [["a", "x"], ["b"]], "num_workers": 0}
    loader = gluon_loader({"a": 1, "b": 2}, on_error="skip", **arguments)
    with pytest.raises(ValueError, match="names this one 'x': give a function") as info:
        list(loader)
    assert isinstance(info.value.__cause__, KeyError)
    loader = gluon_loader({"a": 1, "b": 2}, on_error=lambda error, key: ord(key), **arguments)
    assert values(loader) == [[1, ord("x")], [2]]


@pytest.mark.parametrize("wrong", ["ignore", lambda error: 3])
def test_wrong_on_error_is_refused(wrong):
    with pytest.raises((TypeError, ValueError), match="on_error must"):
        gluon_loader(NUMBERS, 2, on_error=wrong)
