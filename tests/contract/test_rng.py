"""``rng`` is passed to a parameter of that name; ``source[i]`` draws by its place."""

from __future__ import annotations

import functools
import operator
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, SafeSequence, concatenate, open_images, open_records
from tests.contract.drawing import Fetched, Pairs, collated, number_and_draw
from tests.contract.front_ends import batches_of, loader_of
from tests.images.pictures import encoded, picture
from tests.sources.record_files import write, write_images

NUMBERS = list(range(8))
BATCHES = np.arange(8)


def read(function: Any, argument: str = "transform", front_end: str = "keras") -> Any:
    source = NUMBERS if argument == "transform" else BATCHES
    with loader_of(front_end, source, 4, **{argument: function}) as loader:
        return np.concatenate(list(batches_of(loader)))


# --- who has a parameter of that name ---


def given(sample: Any, rng: Any, also: bool = True) -> Any:
    """1 for each number if the loader has passed its generator."""
    return sample * 0 + (isinstance(rng, np.random.Generator) and also)


class Callable:
    """A transform that is an object, and has another as a method."""

    def __call__(self, sample: Any, rng: Any) -> Any:
        return given(sample, rng)

    def method(self, sample: Any, *, rng: Any = None) -> Any:
        return given(sample, rng)


@functools.wraps(lambda sample, rng: None)
def decorated(*arguments: Any, **named: Any) -> Any:
    return given(*arguments, **named)


THIRD = lambda x, scale=1, rng=None: given(x, rng, scale == 1)  # noqa: E731
TAKES_RNG = {
    "positional": lambda x, rng: given(x, rng),
    "keyword-only": lambda x, *, rng: given(x, rng),
    "with a default": lambda x, rng=None: given(x, rng),
    "positional-only": lambda x, rng, /: given(x, rng),
    "third": THIRD,
    "with **options": lambda x, rng, **options: given(x, rng, not options),
    "with *more": lambda x, *more, rng=None: given(x, rng, not more),
    "an object": Callable(),
    "a bound method": Callable().method,
    "a partial": functools.partial(lambda scale, x, rng: given(x, rng, scale == 3), 3),
    "a partial by name": functools.partial(THIRD, scale=1),
    "a decorated function": decorated,
}
QUICK = ("positional", "keyword-only", "with a default", "an object")


@pytest.mark.parametrize(
    ("function", "argument", "front_end"),
    [
        *((each, name, "keras") for each in TAKES_RNG for name in ("transform", "batch_transform")),
        *((each, "batch_transform", "gluon") for each in QUICK),
    ],
)
def test_rng_is_passed_to_its_name(function, argument, front_end):
    assert read(TAKES_RNG[function], argument, front_end).tolist() == [1] * 8


def rows_of(
    source: Any, batch_size: int, workers: str, front_end: str = "keras", **more: Any
) -> Any:
    with loader_of(front_end, source, batch_size, workers=workers, **more) as loader:
        return np.concatenate(list(batches_of(loader, 2)))


@pytest.mark.parametrize("workers", ["auto", "8 threads", "2 processes"])
def test_rng_is_of_sample_and_epoch(workers):
    options = {"transform": number_and_draw, "shuffle": True}
    rows = rows_of(NUMBERS, 3, workers, **options)
    assert sorted(rows.tolist()) == sorted(rows_of(NUMBERS, 8, "inline", **options).tolist())
    assert len({*rows[:, 1].tolist()}) == 16


@pytest.mark.parametrize("workers", ["auto", "8 threads", "2 processes"])
def test_rng_of_a_collate_is_of_batch_and_epoch(front_end, workers):
    rows = rows_of(NUMBERS, 4, workers, front_end, collate=collated)
    assert rows.tolist() == rows_of(NUMBERS, 4, "inline", front_end, collate=collated).tolist()
    assert len({*rows[:, 1].tolist()}) == 16


def drawn_from_bytes(data: bytes, rng: Any) -> Any:
    return np.array([data[0], rng.random()])


def drawn_by_keyword(data: bytes, *, rng: Any = None) -> Any:
    return drawn_from_bytes(data, rng)


@pytest.mark.parametrize("decode", [drawn_from_bytes, drawn_by_keyword])
def test_rng_of_a_decode_is_of_sample_and_epoch(decode, tmp_path):
    write(tmp_path / "a.tfrecord", "tfrecord", map(bytes, zip(NUMBERS)))
    source = open_records(tmp_path / "a.tfrecord", decode=decode)
    rows = rows_of(source, 4, "inline")
    assert rows.tolist() == rows_of(source, 3, "auto").tolist()
    assert rows.tolist() == rows_of(source, 8, "2 threads").tolist()
    assert len({*rows[:, 1].tolist()}) == 16


def test_second_parameter_of_a_collate_is_an_error(front_end):
    name = "collate" if front_end == "keras" else "batchify_fn"
    with pytest.raises(TypeError, match=f"{name} must take .*functools.partial"):
        loader_of(front_end, NUMBERS, 4, collate=lambda samples, scale: samples)


def test_second_parameter_of_a_decode_is_an_error(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(b"")
    with pytest.raises(TypeError, match=r"decode must take .*functools.partial"):
        open_records(tmp_path / "a.tfrecord", format="tfrecord", decode=lambda data, scale: data)


# --- and who has none ---


TAKES_NONE = {
    "another name": lambda x, generator=1: x * 0 + (generator == 1),
    "two options": lambda x, y=1, *, z=2: x * 0 + ((y, z) == (1, 2)),
    "*samples": lambda *samples: samples[0] * 0 + (len(samples) == 1),
    "*rest": lambda x, *rest: x * 0 + (not rest),
    "**named": lambda x, **named: x * 0 + (not named),
    "a similar name": lambda x, rng_seed=1, rng2=1: x * 0 + (rng_seed == rng2 == 1),
    "a partial": functools.partial(lambda y, x: x * 0 + y, 1),
    "a partial by name": functools.partial(lambda x, y: x * 0 + y, y=1),
}


@pytest.mark.parametrize("argument", ["transform", "batch_transform"])
@pytest.mark.parametrize("function", TAKES_NONE.values(), ids=TAKES_NONE)
def test_rng_is_passed_to_no_other_name(function, argument):
    assert read(function, argument).tolist() == [1] * 8


NEGATIVE = [-n for n in NUMBERS]


@pytest.mark.parametrize(
    ("argument", "function", "expected"),
    [
        *(("transform", each, NUMBERS) for each in (abs, float, np.asarray, np.vectorize(abs))),
        *(("transform", each, NEGATIVE) for each in (operator.neg, np.negative)),
        ("transform", bool, [bool(n) for n in NUMBERS]),
        ("batch_transform", np.negative, NEGATIVE),
        ("batch_transform", np.asarray, NUMBERS),
        ("batch_transform", np.flip, [3, 2, 1, 0, 7, 6, 5, 4]),
        ("batch_transform", operator.methodcaller("astype", "float32"), NUMBERS),
        ("batch_transform", operator.itemgetter(slice(1, 2)), [1, 5]),
    ],
)
def test_builtins_and_ufuncs_get_no_rng(argument, function, expected):
    assert read(function, argument).tolist() == expected


# --- a second parameter that is required ---


def two(x: Any, y: Any) -> Any:
    return x, y


class TwoArguments:
    def __call__(self, x: Any, y: Any) -> Any:
        return x, y


REQUIRES = {
    "two": two,
    "a generator by another name": lambda sample, y: sample,
    "two and rng": lambda x, y, rng: (x, y),
    "an object": TwoArguments(),
    "a bound method": TwoArguments().__call__,
    "a partial": functools.partial(lambda scale, x, y: (x, y), 1),
}


@pytest.mark.parametrize(
    ("argument", "front_end"),
    [("transform", "keras"), ("batch_transform", "keras"), ("batch_transform", "gluon")],
)
@pytest.mark.parametrize("function", REQUIRES.values(), ids=REQUIRES)
def test_second_required_parameter_is_an_error_with_a_remedy(function, argument, front_end):
    """At construction, before any sample is read."""
    item = "sample" if argument == "transform" else "batch"
    with pytest.raises((TypeError, ValueError), match=argument) as raised:
        loader_of(front_end, (BATCHES, BATCHES), 4, **{argument: function})
    said = str(raised.value)
    assert "rng" in said
    assert f"lambda {item}: " in said
    assert f"(*{item})" in said
    assert re.search("['` ]y", said)


@pytest.mark.parametrize("argument", ["transform", "batch_transform"])
def test_second_required_keyword_is_an_error(argument):
    with pytest.raises(TypeError, match=rf"{argument} must take .*\brng\b.*'y'"):
        SafeSequence((BATCHES, BATCHES), 4, **{argument: lambda x, *, y: (x, y)})


# --- what is random in ``source[i]`` ---

COUNT = 8
DECODER = ImageDecoder(8, crop="random_resized", flip=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    contents = [encoded(picture(20, 30 + n)[:, :30], "JPEG") for n in range(COUNT)]
    write_images(folder / "a.tfrecord", "tfrecord", contents)
    (folder / "photos" / "x").mkdir(parents=True)
    for number, content in enumerate(contents):
        (folder / "photos" / "x" / f"{number}.jpg").write_bytes(content)
    return folder


def sources_of(files: Path) -> dict[str, Any]:
    records = open_records(files / "a.tfrecord", decode=DECODER)
    photos = open_images(files / "photos", decode=DECODER)
    return {
        "records": records,
        "photos": photos,
        "selected": photos.select(range(COUNT)),
        "concatenated": concatenate([records.select(range(4)), photos.select(range(4, COUNT))]),
    }


def views_of(loader: Any, epochs: int = 2) -> list[dict[int, tuple[bytes, bytes]]]:
    found = []
    for _ in range(epochs):
        views = {}
        for one, other, numbers in batches_of(loader):
            for row, number in enumerate(numbers.tolist()):
                views[number] = one[row].tobytes(), other[row].tobytes()
        found.append(views)
    return found


def different(first: Any, second: Any) -> int:
    """How many of the samples differ; two crops of a small image may be alike."""
    return sum(first[number] != second[number] for number in first)


def drawn_views(front_end: str, source: Any, batch_size: int = 3, **arguments: Any) -> list[Any]:
    """The views of two epochs; both views of a sample differ, and so do epochs."""
    with loader_of(front_end, source, batch_size, **arguments) as loader:
        first, second = views_of(loader)
    assert sum(one != other for one, other in first.values()) > COUNT / 2
    assert different(first, second) > COUNT / 2
    return [first, second]


KINDS = ("records", "photos", "selected", "concatenated")


def draws_anew(read: Any) -> bool:
    return len({read().tobytes() for _ in range(9)}) > 4


@pytest.mark.parametrize("kind", KINDS)
def test_program_draws_again_each_time(files, kind):
    source = sources_of(files)[kind]
    assert draws_anew(lambda: source[2][0])
    assert draws_anew(lambda: source[2:3][0][0])
    assert draws_anew(lambda: next(iter(source))[0])
    assert not hasattr(source, "__getitems__") or draws_anew(
        lambda: source.__getitems__([2, 5])[1][0]
    )


def test_program_keeps_its_generators(files):
    source = sources_of(files)["records"]
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]
    source[0], source[:3]
    assert (random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]) == before


WAYS = {
    "a data set": lambda source: {"source": Pairs(source)},
    "__getitems__": lambda source: {"source": Fetched(source)},
    "a transform": lambda source: {"source": NUMBERS, "transform": lambda n: Pairs(source)[int(n)]},
}


@pytest.mark.parametrize(
    ("kind", "way", "batch_size", "workers"),
    [
        ("records", "a data set", 5, "inline"),
        ("selected", "a data set", 5, "auto"),
        ("concatenated", "a data set", 3, "8 threads"),
        ("photos", "a data set", 3, "2 processes"),
        ("records", "__getitems__", 3, "8 threads"),
        ("photos", "__getitems__", 3, "2 processes"),
        ("records", "a transform", 5, "2 threads"),
    ],
)
def test_code_over_a_source_draws_by_samples(files, front_end, kind, way, batch_size, workers):
    """Whatever the workers are; and the batches, if each sample is asked for by itself."""
    arguments = WAYS[way](sources_of(files)[kind])
    expected = drawn_views(front_end, **arguments, shuffle=True)
    options = {"batch_size": batch_size, "workers": workers, "shuffle": True}
    assert drawn_views(front_end, **arguments, **options) == expected


def test_collate_over_a_source_draws_by_batches(files, front_end):
    source = sources_of(files)["records"]

    def collate(numbers: list[Any]) -> Any:
        rows = [source[int(number)][0] for number in numbers]
        return np.stack(rows), np.stack(rows), np.array([int(number) for number in numbers])

    def batch_transform(batch: Any) -> Any:
        numbers = batch[2]
        taken = numbers.asnumpy() if hasattr(numbers, "asnumpy") else numbers
        return batch[0], np.stack([source[int(number)][0] for number in taken]), numbers

    arguments: Any = {"collate": collate, "batch_transform": batch_transform}
    expected = drawn_views(front_end, NUMBERS, **arguments)
    assert drawn_views(front_end, NUMBERS, **arguments) == expected


def test_loader_within_a_sample_leaves_its_draws(files, front_end):
    source = sources_of(files)["records"]

    class Within(Pairs):
        within: Any = None

        def __getitem__(self, number: int) -> Any:
            first = source[number][0]
            if self.within is not None:
                for _ in loader_of(front_end, self.within, 2):
                    pass
            return first, source[number][0], number

    data = Within(source)
    with loader_of(front_end, data, 3) as loader:
        expected = views_of(loader)
    data.within = Pairs(source)
    with loader_of(front_end, data, 3) as loader:
        assert views_of(loader) == expected


def test_pydataset_over_a_source_draws_by_batches(files):
    import keras

    source = sources_of(files)["records"]

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return COUNT // 2

        def __getitem__(self, index: int) -> Any:
            numbers = np.arange(2 * index, 2 * index + 2)
            one, other = (np.stack([source[n][0] for n in numbers]) for _ in range(2))
            return one, other, numbers

    with loader_of("keras", Batches(), None) as loader:
        first, second = views_of(loader)
    assert different(first, second) > COUNT / 2
    with loader_of("keras", Batches(), None, workers="2 threads") as loader:
        assert views_of(loader) == [first, second]


def test_program_draws_by_nothing_after_a_loader(files, front_end):
    source = sources_of(files)["records"]

    class Fails(Pairs):
        def __getitem__(self, number: int) -> Any:
            if number == 3:
                source[number]
                raise ValueError("broken")
            return super().__getitem__(number)

    with loader_of(front_end, Fails(source), 4, workers="inline") as loader:
        with pytest.raises(ValueError, match="broken") as caught:
            next(iter(loader))
        assert draws_anew(lambda: source[2][0])
        del caught
