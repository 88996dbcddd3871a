"""``state_dict`` and ``load_state_dict``: a pass goes on elsewhere, batch by batch the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import (
    ArrayDataset,
    BatchSampler,
    FilterSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import gluon_loader
from tests.gluon.data_sets import nd, numpy_semantics, outline, pixels, values
from tests.gluon.executors import EXECUTORS, THREADS, arguments_of, opened
from tests.gluon.test_importing import output_of

SIZE = 23
NUMBERS = np.arange(SIZE)


class Seeded(Sampler):
    """A sampler of the user's own, whose order depends on its epoch."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)

    def __iter__(self) -> Iterator[int]:
        epoch = self.told[-1] if self.told else 0
        yield from np.random.default_rng(epoch).permutation(SIZE).tolist()

    def __len__(self) -> int:
        return SIZE


class Lists:
    """A batch sampler without a length."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([number, number + 1] for number in range(0, 12, 2))


def draws(number: Any) -> Any:
    return number + np.random.rand()


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    return batch + float(rng.random())


def flipped() -> Any:
    return ArrayDataset(nd(pixels(SIZE))).transform(RandomFlipLeftRight())


SEED = {"batch_size": 4, "shuffle": True, "seed": 5}
# What a pass can be continued of: how its loader is made.
LOADERS: dict[str, Any] = {
    "shuffled": lambda: (NUMBERS, SEED),
    "in order, without a seed": lambda: (NUMBERS, {"batch_size": 4}),
    "flips": lambda: (flipped(), SEED),
    "a transform that draws": lambda: (ArrayDataset(NUMBERS).transform(draws), SEED),
    "rollover": lambda: (NUMBERS, {**SEED, "last_batch": "rollover"}),
    "rollover of few": lambda: (NUMBERS[:3], {**SEED, "last_batch": "rollover"}),
    "discard": lambda: (NUMBERS, {**SEED, "last_batch": "discard"}),
    "rng": lambda: (NUMBERS, {**SEED, "batch_transform": noisy}),
    "rng of a sampler": lambda: (
        NUMBERS,
        {"batch_size": 4, "sampler": range(20), "seed": 5, "batch_transform": noisy},
    ),
    "a sampler": lambda: (NUMBERS, {"batch_size": 4, "sampler": [5, 4, 3, 2, 1, 0, 9, 9, 9]}),
    "a sampler with epochs": lambda: (NUMBERS, {"batch_size": 4, "sampler": Seeded()}),
    "a filter": lambda: (NUMBERS, {"batch_size": 4, "sampler": FilterSampler(bool, NUMBERS)}),
    "a batch sampler": lambda: (NUMBERS, {"batch_sampler": Lists()}),
}


def made(name: str, executor: str, **arguments: Any) -> Any:
    data, own = LOADERS[name]()
    return gluon_loader(data, **own, **arguments_of(executor), **arguments)


def passes_of(name: str, count: int = 3) -> list[Any]:
    with made(name, "inline") as loader:
        return [[outline(batch) for batch in loader] for _ in range(count)]


@pytest.mark.parametrize("semantics", [False, True])
@pytest.mark.parametrize("name", LOADERS)
def test_a_pass_goes_on_in_another_loader(name, semantics):
    """With other workers; and the passes after it are whole."""
    with numpy_semantics(semantics):
        expected = passes_of(name)
        place = min(2, len(expected[1]))
        with made(name, "inline") as loader:
            list(loader)
            assert len(list(itertools.islice(loader, place))) == place
            state = loader.state_dict()
        with made(name, THREADS) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            assert [outline(batch) for batch in loader] == expected[state["epoch"]][
                state["batch"] :
            ]
            if state["epoch"] == 1:
                assert [outline(batch) for batch in loader] == expected[2]


@pytest.mark.parametrize(
    "executor", ["processes-1", pytest.param(EXECUTORS[2], marks=pytest.mark.full)]
)
def test_processes_go_on(executor):
    for name in ("flips", "a transform that draws", "a sampler with epochs"):
        expected = passes_of(name)
        with made(name, executor) as loader:
            loader.load_state_dict({"epoch": 1, "batch": 1})
            assert [outline(batch) for batch in loader] == expected[1][1:]


def test_a_pass_goes_on_in_a_new_process():
    with made("a transform that draws", THREADS) as loader:
        list(loader)
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
    with made("a transform that draws", "inline") as loader:
        expected = [values(loader) for _ in range(3)]
    script = f"""
        import adapters.gluon
        from tests.gluon.data_sets import values
        from tests.gluon.test_resume import made
        loader = made("a transform that draws", "inline")
        loader.load_state_dict({state})
        print(values(loader), loader.state_dict())
        print(values(loader), loader.epoch)
        """
    after = {"epoch": 2, "batch": 0}
    assert output_of(script) == [f"{expected[1][3:]} {after}", f"{expected[2]} 3"]


# --- what the state is ---


def state(epoch: int, batch: int) -> dict[str, int]:
    return {"epoch": epoch, "batch": batch}


@pytest.mark.parametrize("executor", EXECUTORS[:2])
@pytest.mark.parametrize("name", ["shuffled", "a sampler"])
def test_the_state_is_the_batch_after_the_last_one_that_the_loop_was_given(name, executor):
    with made(name, executor) as loader:
        count = len(loader)
        seen = [loader.state_dict()]
        for _ in loader:
            seen.append(loader.state_dict())
        assert seen == [*(state(0, batch) for batch in range(count)), state(1, 0)]
        assert (loader.epoch, loader.state_dict()) == (1, state(1, 0))
        for _ in loader:
            break
        assert (loader.epoch, loader.state_dict()) == (1, state(1, 1))
        iterator = iter(loader)
        assert loader.state_dict() == state(1, 1)
        next(iterator)
        assert loader.state_dict() == state(2, 1)


def test_a_batch_that_is_on_its_way_to_a_device_was_not_given():
    with opened(NUMBERS, "inline", ctx=mx.cpu(1)) as loader:
        assert [loader.state_dict() for _ in loader] == [
            *(state(0, n) for n in range(1, 6)),
            state(1, 0),
        ]


def test_after_a_break_a_plain_pass_is_the_next_epoch():
    expected = passes_of("shuffled")
    with made("shuffled", "inline") as loader:
        next(iter(loader))
        assert [outline(batch) for batch in loader] == expected[1]


def test_without_a_length_the_end_is_known_when_it_is_there():
    with made("a batch sampler", "inline") as loader:
        assert [loader.state_dict()["batch"] for _ in loader] == [1, 2, 3, 4, 5, 6]
        assert loader.state_dict() == state(1, 0)
        loader.load_state_dict(state(0, 6))
        assert list(loader) == []
        assert loader.state_dict() == state(1, 0)


def test_of_two_passes_at_once_the_one_that_gave_a_batch_last_counts():
    with made("shuffled", "inline") as loader:
        one, two = iter(loader), iter(loader)
        list(itertools.islice(one, 3))
        next(two)
        assert loader.state_dict() == state(1, 1)
        next(one)
        assert loader.state_dict() == state(0, 4)


def test_a_pass_whose_first_batch_fails_stands_at_it():
    with opened(
        ArrayDataset(NUMBERS).transform(lambda n: 1 // (int(n) - 3)), "inline", seed=1
    ) as loader:
        for epoch in range(2):
            with pytest.raises(ZeroDivisionError):
                list(loader)
            assert loader.state_dict() == state(epoch, 0)


def test_the_length_of_what_rolls_over_is_that_of_the_pass():
    with made("rollover", THREADS) as loader:
        for _ in range(4):
            expected = len(loader)
            assert [len(loader) for _ in loader] == [expected] * expected


# --- by hand ---


@pytest.mark.parametrize("executor", EXECUTORS[:2])
def test_set_epoch_says_which_pass_is_next(executor):
    expected = passes_of("flips", 4)
    with made("flips", executor) as loader:
        for epoch in (3, 1, 1):
            loader.set_epoch(epoch)
            assert (loader.epoch, loader.state_dict()) == (epoch, state(epoch, 0))
            assert [outline(batch) for batch in loader] == expected[epoch]
        assert [outline(batch) for batch in loader] == expected[2]


def test_a_pass_that_is_under_way_is_not_changed():
    expected = passes_of("shuffled")
    with made("shuffled", "inline") as loader:
        iterator = iter(loader)
        first = outline(next(iterator))
        loader.set_epoch(2)
        assert [first, *map(outline, iterator)] == expected[0]
        assert [outline(batch) for batch in loader] == expected[2]


# --- what can't be continued ---


class Drawing(Sampler):
    """As people write it."""

    def __iter__(self):
        return iter(np.random.permutation(SIZE).tolist())

    def __len__(self) -> int:
        return SIZE


class Seeding(Drawing):
    def __iter__(self):
        np.random.seed(5)
        return super().__iter__()


OWN = ArrayDataset(NUMBERS).transform(draws)
REFUSED: dict[str, Any] = {
    "shuffle": (NUMBERS, {"shuffle": True}, "numpy.random: give seed"),
    "transform": (OWN, {}, "transforms draw is drawn from numpy.random: give seed"),
    "stage": (None, {}, "give seed"),
    "rng": (NUMBERS, {"batch_transform": noisy}, "give seed"),
    "RandomSampler": (
        NUMBERS,
        {"sampler": RandomSampler(SIZE), "seed": 3},
        "which seed has no say in: give batch_size=..., shuffle=True and seed",
    ),
    "a sampler that draws": (NUMBERS, {"sampler": Drawing(), "seed": 3}, "a sampler of your own"),
    "rollover of a sampler": (
        NUMBERS,
        {"last_batch": "rollover", "sampler": SequentialSampler(SIZE), "seed": 3},
        'rolls over .* or give "keep"',
    ),
}


def test_so_are_batches_of_a_sampler_that_draws():
    with gluon_loader(NUMBERS, batch_sampler=BatchSampler(Drawing(), 4, "keep")) as loader:
        next(iter(loader))
        with pytest.raises(ValueError, match="a sampler of your own"):
            loader.load_state_dict({"epoch": 0, "batch": 1})


def test_a_sampler_that_seeds_what_it_draws_from_can_be_continued():
    with opened(NUMBERS, "inline", sampler=Seeding()) as loader:
        rest = [*map(outline, loader)][1:]
        loader.load_state_dict({"epoch": 0, "batch": 1})
        assert [*map(outline, loader)] == rest


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_can_repeat_is_refused_with_the_remedy(name):
    data, arguments, message = REFUSED[name]
    data = flipped() if data is None else data
    with opened(data, "inline", **arguments) as loader:
        assert loader.state_dict() == state(0, 0)
        next(iter(loader))
        with pytest.raises(ValueError, match=f"^state_dict: .* batch 1 of epoch 0, as .*{message}"):
            loader.state_dict()
        with pytest.raises(ValueError, match=f"^load_state_dict: .*{message}"):
            loader.load_state_dict(state(0, 1))
        assert loader.epoch == 0


def test_where_an_epoch_begins_a_loader_without_a_seed_has_a_state():
    with opened(NUMBERS, "inline", shuffle=True) as loader:
        list(loader)
        loader.load_state_dict(loader.state_dict())
        assert loader.epoch == 1
        assert len(list(loader)) == 6


def test_a_batch_sampler_of_mxnets_that_rolls_over_is_refused():
    sampler = BatchSampler(SequentialSampler(SIZE), 4, "rollover")
    with opened(NUMBERS, "inline", None, batch_sampler=sampler) as loader:
        list(loader)
        with pytest.raises(ValueError, match="rolls over"):
            loader.state_dict()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epoch": 0}, "must be what state_dict"),
        ({"epoch": 0, "batch": "1"}, "must be what state_dict"),
        (None, "must be what state_dict"),
        (state(-1, 0), "epoch >= 0"),
        (state(0, -1), r"batch in range\(6\)"),
        (state(0, 6), r"batch in range\(6\), got .*: it belongs to a loader of another length"),
    ],
)
def test_a_wrong_state_is_refused(wrong, message):
    with made("shuffled", "inline") as loader:
        with pytest.raises(ValueError, match=message):
            loader.load_state_dict(wrong)
        assert loader.state_dict() == state(0, 0)


@pytest.mark.parametrize(("wrong", "error"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError)])
def test_a_wrong_epoch_is_refused(wrong, error):
    with made("shuffled", "inline") as loader, pytest.raises(error, match="epoch must be"):
        loader.set_epoch(wrong)
