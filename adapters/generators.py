"""The random generator of a sample or a batch: a function of its place, whoever computes it."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

# Which of a sample's streams of numbers: what one draws must not repeat in another.
TRANSFORM, BATCH_TRANSFORM = 0, 1
COLLATE = 2  # A run for a batch, see ``Place``.
GLOBAL, GLOBAL_BATCH = 2, 3  # Of what seeds the process's generators for code that draws there.
DECODE = 1 << 48  # Beyond the streams that gluon/randomness.py counts up.
_OF_SAMPLE, _OF_BATCH = 1 << 49, 1 << 50  # What code of the user's own draws by reading a source.

RngOf = Callable[[int], np.random.Generator]
Places = Sequence[int] | NDArray[np.int64]


def generator(seed: int, epoch: int, number: int, stream: int) -> np.random.Generator:
    """The generator of one sample, or of one batch.

    Args:
        seed: Of all that is random.
        epoch: From 0.
        number: Of the sample or the batch.
        stream: What it is for.
    """
    words = np.array([0, epoch, number, stream], np.uint64)
    key: Any = _Key(seed, epoch, number, stream)  # NumPy takes it, its types don't.
    return np.random.Generator(np.random.Philox(key, counter=words))


class _Key(ISpawnableSeedSequence):
    """Gives Philox its key.

    Given as ``key``, it would have the system asked for entropy, for a seed of what is spawned,
    which takes three times as long, and a turn at the GIL. So what is spawned is of the place, too.

    Args:
        place: The seed, the epoch, the number and the stream.
    """

    def __init__(self, *place: int) -> None:
        self._place = place
        self._spawning: np.random.SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """The key; of another length or type, what belongs to the place."""
        if n_words == 2 and dtype == np.uint64:
            return _key(self._place[0])
        return self._seed.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[Any]:
        """Others than those that were spawned before."""
        return self._seed.spawn(n_children)

    @property
    def _seed(self) -> np.random.SeedSequence:
        if self._spawning is None:
            seed, *spawned_by = self._place
            self._spawning = np.random.SeedSequence(seed, spawn_key=spawned_by)
        return self._spawning


class Generators:
    """Gives the generators of samples by their places among ``numbers``.

    It takes a fifth of the time of ``generator``; each is good until the next one is asked for.

    That is in one thread: it is the same generator, set anew. ``key`` and ``counters`` say where
    each begins, for who draws the numbers of many at once.

    Args:
        seed: Of all that is random.
        epoch: From 0.
        stream: What they are for.
        numbers: Of the samples.
    """

    def __init__(self, seed: int, epoch: int, stream: int, numbers: NDArray[np.int64]) -> None:
        self.key = _key(seed)
        self._place = seed, epoch, stream
        self._numbers = numbers
        self._state: dict[str, Any] | None = None

    def __call__(self, place: int) -> np.random.Generator:
        """The generator of the sample in this place."""
        rng = getattr(_own, "rng", None)
        if rng is None:
            # Once only, as it asks the system for entropy, and then has to wait for the GIL.
            rng = _own.rng = np.random.Generator(np.random.Philox(key=0))
        if self._state is None:
            _, epoch, stream = self._place
            counter = np.array([0, epoch, 0, stream], np.uint64)
            self._state = {**_BEFORE_DRAWING, "state": {"counter": counter, "key": self.key}}
        self._state["state"]["counter"][2] = self._numbers[place]
        rng.bit_generator.state = self._state
        return rng

    def chosen(self, places: Places) -> Generators:
        """Those of the samples in these places, by the places among these."""
        return Generators(*self._place, self._numbers[places])

    @property
    def counters(self) -> NDArray[np.uint64]:
        """Of the samples' generators, before the first number is drawn, ``(samples, 4)``."""
        _, epoch, stream = self._place
        counters = np.zeros((len(self._numbers), 4), np.uint64)
        counters[:, 1], counters[:, 2], counters[:, 3] = epoch, self._numbers, stream
        return counters


def chosen(rng_of: RngOf | None, places: Places) -> RngOf | None:
    """The generators of the samples in these places, by the places among these."""
    if rng_of is None or isinstance(rng_of, Generators):
        return rng_of and rng_of.chosen(places)
    return lambda place: rng_of(int(places[place]))


_own = threading.local()
_BEFORE_DRAWING = np.random.Philox(key=0).state


@functools.lru_cache(maxsize=64)
def _key(seed: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64)


class Place:
    """The sample, or the batch, that a plan runs the user's code for.

    A context around the computation of a batch, in one thread. In it, ``source_generator`` gives
    generators that depend on the seed, the epoch, the sample and how many were given for it before,
    and so on nothing that differs between workers.

    Args:
        seed: Of the plan.
        epoch: From 0.
        index: Of the batch, which the code is run for until ``sample`` says otherwise.
    """

    __slots__ = ("_count", "_index", "_number", "_outer", "_place", "_stream", "batch_draws")

    def __init__(self, seed: int, epoch: int, index: int) -> None:
        self._place = seed, epoch
        self._index = index
        self.batch_draws = 0
        """Generators that were given for the whole batch."""
        self.batch()

    def __enter__(self) -> Place:
        self._outer = getattr(_own, "place", None)
        _own.place = self
        return self

    def __exit__(self, *_: object) -> None:
        _own.place = self._outer

    def sample(self, number: int, run: int = 0) -> None:
        """The user's code is run for this sample from now on.

        Args:
            number: Of the sample.
            run: Tells several calls for one sample apart.
        """
        self._number, self._stream, self._count = number, _OF_SAMPLE + (run << 32), 0

    def batch(self, run: int = 0) -> None:
        """The user's code is run for the whole batch from now on."""
        self._number, self._stream, self._count = self._index, _OF_BATCH + (run << 32), 0

    def generator(self) -> np.random.Generator:
        """The next generator."""
        count, self._count = self._count, self._count + 1
        self.batch_draws += self._stream >= _OF_BATCH
        return generator(*self._place, self._number % 2**63, self._stream + count)


def current_place() -> Place | None:
    """What this thread runs the user's code for; None outside of any plan."""
    return getattr(_own, "place", None)


def run_for_batch(run: int) -> None:
    """This thread runs the user's code for its whole batch from now on; see ``Place``."""
    place = current_place()
    if place is not None:
        place.batch(run)


def source_generator() -> np.random.Generator:
    """The generator of a sample that a program, or code of its own in a plan, reads of a source.

    In a plan it depends on the place of that code's sample in the epoch, elsewhere on nothing.
    """
    place = current_place()
    return np.random.default_rng() if place is None else place.generator()


def generator_argument(function: Callable[..., Any] | None) -> Literal["second", "rng"] | None:
    """How ``function`` takes its random generator: by the name ``rng``, or not at all.

    ``"second"``: its second parameter is ``rng``, and can only be given by its place.
    """
    if function is None:
        return None
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # Some callables written in C don't tell.
        return None
    rng = parameters.get("rng")
    first = next(iter(parameters.values()), None)
    if rng is None or rng.kind in (rng.VAR_POSITIONAL, rng.VAR_KEYWORD):
        return None
    if rng is first and rng.kind is not rng.KEYWORD_ONLY:  # It takes the sample.
        return None
    return "second" if rng.kind is rng.POSITIONAL_ONLY else "rng"


def call_with(
    rng_of: Callable[[], np.random.Generator],
    argument: str | None,
    function: Callable[..., Any],
    item: Any,
) -> Any:
    """``function(item)``, with a generator where it takes one.

    Args:
        rng_of: Makes the generator.
        argument: How it takes it: what ``generator_argument`` says.
        function: Of the user's own.
        item: A sample or a batch.
    """
    if argument is None:
        return function(item)
    return function(item, rng_of()) if argument == "second" else function(item, rng=rng_of())
