"""``rng`` is passed to a parameter of that name, and to no other."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest

from adapters import RecordWriter, SafeSequence, open_records
from tests.contract.drawing import number_and_draw
from tests.contract.front_ends import (
    ALL_WORKERS,
    FRONT_ENDS,
    GLUON,
    INLINE,
    KERAS,
    NEEDS_MXNET,
    TWO_THREADS,
    batches_of,
    loader_of,
)

NUMBERS = list(range(8))
BATCHES = np.arange(8)


def is_generator(rng: Any) -> bool:
    """Whether the loader has passed its generator."""
    return isinstance(rng, np.random.Generator)


def read(function: Any, argument: str = "transform", front_end: str = KERAS) -> Any:
    """All that the batches hold, with that function."""
    source = NUMBERS if argument == "transform" else BATCHES
    with loader_of(front_end, source, 4, **{argument: function}) as loader:
        return np.concatenate(list(batches_of(loader)))


# --- who has a parameter of that name ---


def positional(sample: Any, rng: Any) -> Any:
    return sample * 0 + is_generator(rng)


def keyword_only(sample: Any, *, rng: Any) -> Any:
    return sample * 0 + is_generator(rng)


def with_default(sample: Any, rng: Any = None) -> Any:
    return sample * 0 + is_generator(rng)


def keyword_only_with_default(sample: Any, *, rng: Any = None) -> Any:
    return sample * 0 + is_generator(rng)


def positional_only(sample: Any, rng: Any, /) -> Any:
    return sample * 0 + is_generator(rng)


def third(sample: Any, scale: float = 1, rng: Any = None) -> Any:
    return sample * 0 + (is_generator(rng) and scale == 1)


def before_an_option(sample: Any, rng: Any, scale: float = 1) -> Any:
    return sample * 0 + (is_generator(rng) and scale == 1)


def with_options(sample: Any, rng: Any, **options: Any) -> Any:
    return sample * 0 + (is_generator(rng) and not options)


def with_more(sample: Any, *more: Any, rng: Any = None) -> Any:
    return sample * 0 + (is_generator(rng) and not more)


class Callable:
    """A transform that is an object, and has more of them as methods."""

    def __call__(self, sample: Any, rng: Any) -> Any:
        return positional(sample, rng)

    def method(self, sample: Any, rng: Any) -> Any:
        return positional(sample, rng)

    def keyword_method(self, sample: Any, *, rng: Any = None) -> Any:
        return positional(sample, rng)

    @classmethod
    def of_the_class(cls, sample: Any, rng: Any) -> Any:
        return positional(sample, rng)

    @staticmethod
    def static(sample: Any, rng: Any) -> Any:
        return positional(sample, rng)


def strong(strength: float, sample: Any, rng: Any) -> Any:
    return sample * 0 + (is_generator(rng) and strength == 3)


@functools.wraps(positional)
def decorated(*arguments: Any, **named: Any) -> Any:
    return positional(*arguments, **named)


TAKES_RNG = {
    "positional": positional,
    "keyword-only": keyword_only,
    "with a default": with_default,
    "keyword-only with a default": keyword_only_with_default,
    "positional-only": positional_only,
    "third": third,
    "before an option": before_an_option,
    "with **options": with_options,
    "with *more": with_more,
    "a lambda": lambda sample, rng: sample * 0 + is_generator(rng),
    "an object": Callable(),
    "a bound method": Callable().method,
    "a bound method with a keyword": Callable().keyword_method,
    "a class method": Callable.of_the_class,
    "a static method": Callable.static,
    "a partial": functools.partial(strong, 3),
    "a partial by name": functools.partial(third, scale=1),
    "a partial of an object": functools.partial(Callable()),
    "a decorated function": decorated,
}


@pytest.mark.parametrize("argument", ["transform", "batch_transform"])
@pytest.mark.parametrize("function", TAKES_RNG.values(), ids=TAKES_RNG)
def test_a_parameter_of_that_name_gets_a_generator(function, argument):
    assert read(function, argument).tolist() == [1] * 8


@NEEDS_MXNET
@pytest.mark.parametrize("name", ["positional", "keyword-only", "with a default", "an object"])
def test_a_batch_transform_of_gluon_gets_a_generator(name):
    assert read(TAKES_RNG[name], "batch_transform", GLUON).tolist() == [1] * 8


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_what_is_drawn_depends_on_the_sample_and_the_epoch_alone(workers):
    def drawn(batch_size: int, workers: str) -> Any:
        with loader_of(
            KERAS,
            NUMBERS,
            batch_size,
            workers=workers,
            transform=number_and_draw,
            shuffle=True,
        ) as loader:
            return np.concatenate(list(batches_of(loader, 2)))

    rows = drawn(3, workers)
    assert sorted(rows.tolist()) == sorted(drawn(8, INLINE).tolist())
    assert len({*rows[:, 1].tolist()}) == 16


def collated(samples: Any, rng: Any) -> Any:
    return np.array([[sample, rng.random()] for sample in samples])


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_a_collate_draws_by_the_batch_and_the_epoch(front_end, workers):
    def rows(workers: str) -> Any:
        with loader_of(front_end, NUMBERS, 4, workers=workers, collate=collated) as loader:
            return np.concatenate([np.asarray(each) for each in batches_of(loader, 2)])

    assert rows(workers).tolist() == rows(INLINE).tolist()
    assert len({*rows(workers)[:, 1].tolist()}) == 16


def test_a_decode_draws_by_the_sample_and_the_epoch(tmp_path):
    with RecordWriter(tmp_path / "a.tfrecord", format="tfrecord") as writer:
        for number in NUMBERS:
            writer.write(bytes([number]))
    for function in (drawn_from_bytes, drawn_by_keyword):
        source = open_records(tmp_path / "a.tfrecord", decode=function)
        found = []
        for size, workers in ((4, INLINE), (3, "auto"), (8, TWO_THREADS)):
            with loader_of(KERAS, source, size, workers=workers) as loader:
                found.append(np.concatenate(list(batches_of(loader, 2))).tolist())
        assert found[0] == found[1] == found[2]
        assert len({draw for _, draw in found[0]}) == 16


def drawn_from_bytes(data: bytes, rng: Any) -> Any:
    return np.array([data[0], rng.random()])


def drawn_by_keyword(data: bytes, *, rng: Any = None) -> Any:
    return drawn_from_bytes(data, rng)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_second_parameter_of_a_collate_is_an_error(front_end):
    name = "collate" if front_end == KERAS else "batchify_fn"
    with pytest.raises(TypeError, match=f"{name} must take .*functools.partial"):
        loader_of(front_end, NUMBERS, 4, collate=lambda samples, scale: samples)


def test_a_second_parameter_of_a_decode_is_an_error(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with pytest.raises(TypeError, match=r"decode must take .*functools.partial"):
        open_records(tmp_path / "a.tfrecord", format="tfrecord", decode=lambda data, scale: data)


# --- and who has none ---


def another_name(sample: Any, generator: Any = 1) -> Any:
    return sample * 0 + (generator == 1)


def optional(x: Any, y: Any = 1) -> Any:
    return x * 0 + (y == 1)


def two_options(x: Any, y: Any = 1, *, z: Any = 2) -> Any:
    return x * 0 + ((y, z) == (1, 2))


def variadic(*samples: Any) -> Any:
    return samples[0] * 0 + (len(samples) == 1)


def more(sample: Any, *rest: Any) -> Any:
    return sample * 0 + (not rest)


def options(sample: Any, **named: Any) -> Any:
    return sample * 0 + (not named)


def nearly(sample: Any, rng_seed: Any = 1, rng2: Any = 1) -> Any:
    return sample * 0 + (rng_seed == rng2 == 1)


TAKES_NONE = {
    "another name": another_name,
    "an option": optional,
    "two options": two_options,
    "*samples": variadic,
    "*rest": more,
    "**named": options,
    "a similar name": nearly,
    "a lambda": lambda sample, scale=1: sample * 0 + scale,
    "a partial": functools.partial(lambda y, x: x * 0 + y, 1),
    "a partial by name": functools.partial(lambda x, y: x * 0 + y, y=1),
}


@pytest.mark.parametrize("argument", ["transform", "batch_transform"])
@pytest.mark.parametrize("function", TAKES_NONE.values(), ids=TAKES_NONE)
def test_no_other_parameter_gets_one(function, argument):
    assert read(function, argument).tolist() == [1] * 8


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (abs, NUMBERS),
        (int, NUMBERS),
        (float, NUMBERS),
        (np.float32, NUMBERS),
        (operator.neg, [-n for n in NUMBERS]),
        (np.negative, [-n for n in NUMBERS]),
        (np.square, [n * n for n in NUMBERS]),
        (np.asarray, NUMBERS),
        (np.sqrt, np.sqrt(NUMBERS).tolist()),
        (bool, [bool(n) for n in NUMBERS]),
        (complex, NUMBERS),
        (np.vectorize(abs), NUMBERS),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_builtins_and_ufuncs_get_the_sample_alone(function, expected):
    assert read(function).tolist() == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (np.negative, (-BATCHES).tolist()),
        (np.sqrt, np.sqrt(BATCHES).tolist()),
        (np.asarray, NUMBERS),
        (np.flip, [3, 2, 1, 0, 7, 6, 5, 4]),
        (operator.methodcaller("astype", "float32"), NUMBERS),
        (operator.itemgetter(slice(1, 2)), [1, 5]),
    ],
    ids=["negative", "sqrt", "asarray", "flip", "methodcaller", "itemgetter"],
)
def test_builtins_and_ufuncs_get_the_batch_alone(function, expected):
    assert read(function, "batch_transform").tolist() == expected


# --- a second parameter that is required ---


def two(x: Any, y: Any) -> Any:
    return x, y


def two_and_rng(x: Any, y: Any, rng: Any) -> Any:
    return x, y


def required_keyword(x: Any, *, y: Any) -> Any:
    return x, y


class TwoArguments:
    """An object that is called with two."""

    def __call__(self, x: Any, y: Any) -> Any:
        return x, y

    def method(self, x: Any, y: Any) -> Any:
        return x, y


REQUIRES = {
    "two": two,
    "a generator by another name": lambda sample, generator: sample,
    "a lambda": lambda x, y: (x, y),
    "three": lambda x, y, z: (x, y),
    "two and rng": two_and_rng,
    "a keyword": required_keyword,
    "an object": TwoArguments(),
    "a bound method": TwoArguments().method,
    "a partial": functools.partial(lambda scale, x, y: (x, y), 1),
}


@pytest.mark.parametrize("argument", ["transform", "batch_transform"])
@pytest.mark.parametrize("function", REQUIRES.values(), ids=REQUIRES)
def test_a_second_required_parameter_is_an_error(function, argument):
    """At construction, before any sample is read."""
    with pytest.raises((TypeError, ValueError)) as raised:
        SafeSequence((BATCHES, BATCHES), 4, **{argument: function})
    assert argument in str(raised.value)
    assert "rng" in str(raised.value)


@pytest.mark.parametrize("function", [two, TwoArguments()], ids=["a function", "an object"])
def test_the_error_says_what_to_write(function):
    with pytest.raises((TypeError, ValueError)) as raised:
        SafeSequence((BATCHES, BATCHES), 4, transform=function)
    assert "lambda sample: " in str(raised.value)
    assert "(*sample)" in str(raised.value)
    assert "'y'" in str(raised.value) or "`y`" in str(raised.value) or " y" in str(raised.value)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_the_error_of_a_batch_transform_says_what_to_write(front_end):
    with pytest.raises((TypeError, ValueError)) as raised:
        loader_of(front_end, (BATCHES, BATCHES), 4, batch_transform=two)
    assert "batch_transform" in str(raised.value)
    assert "(*batch)" in str(raised.value)


def test_what_to_write_is_right():
    with SafeSequence(
        (BATCHES, BATCHES + 1), 4, transform=lambda sample: two(*sample), workers=0
    ) as sequence:
        x, y = next(iter(sequence))
    assert (x.tolist(), y.tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4])
