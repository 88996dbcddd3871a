"""Random generator of a sample or a batch: a function of its place, in every worker the same."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

# Streams of random numbers of one sample: no two may share their draws.
TRANSFORM, BATCH_TRANSFORM = 0, 1
COLLATE = 2  # A run for a batch, see ``Place``.
GLOBAL, GLOBAL_BATCH = 2, 3  # Seeds of the process's generators, for code that draws from those.
# Above the streams that gluon/samples.py counts up.
DECODE, OF_COLLATE = 1 << 48, (1 << 48) + 1
_OF_SAMPLE, _OF_BATCH = 1 << 49, 1 << 50  # Draws of user code that reads a source itself.

RngOf = Callable[[int], np.random.Generator]
Places = Sequence[int] | NDArray[np.int64]


def generator(seed: int, epoch: int, number: int, stream: int) -> np.random.Generator:
    """Make the generator of one sample or batch; ``stream`` is the purpose of the draws."""
    words = np.array([0, epoch, number, stream], np.uint64)
    key: Any = _Key(seed, epoch, number, stream)  # NumPy accepts it, its type stubs don't.
    return np.random.Generator(np.random.Philox(key, counter=words))


class _Key(ISpawnableSeedSequence):
    """Seed sequence that gives Philox its key.

    With ``key=...``, Philox would request entropy from the system to seed spawned generators, which
    takes three times as long and needs the GIL. Here, spawned generators depend on the place too.
    """

    def __init__(self, *place: int) -> None:
        self._place = place

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return the key; for another length or type, words derived from the place."""
        if n_words == 2 and dtype == np.uint64:
            return _key(self._place[0])
        return self._seed.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[Any]:
        """Spawn children, different from those spawned before."""
        return self._seed.spawn(n_children)

    @functools.cached_property
    def _seed(self) -> np.random.SeedSequence:
        seed, *spawned_by = self._place
        return np.random.SeedSequence(seed, spawn_key=spawned_by)


class Generators:
    """Generators of samples, by their places among ``numbers``.

    Takes a fifth of the time of ``generator``. Each one is valid until the next call in the same
    thread, which resets the same generator. ``key`` and ``counters`` give the initial states, for
    code that draws for many samples at once.
    """

    def __init__(self, seed: int, epoch: int, stream: int, numbers: NDArray[np.int64]) -> None:
        self.key = _key(seed)
        self._place = seed, epoch, stream
        self._numbers = numbers
        self._state: dict[str, Any] | None = None

    def __call__(self, place: int) -> np.random.Generator:
        """Return the generator of the sample in this place."""
        rng = getattr(_own, "rng", None)
        if rng is None:
            # Only once: it requests entropy from the system, and then waits for the GIL.
            rng = _own.rng = np.random.Generator(np.random.Philox(key=0))
        if self._state is None:
            _, epoch, stream = self._place
            counter = np.array([0, epoch, 0, stream], np.uint64)
            self._state = {**_BEFORE_DRAWING, "state": {"counter": counter, "key": self.key}}
        self._state["state"]["counter"][2] = self._numbers[place]
        rng.bit_generator.state = self._state
        return rng

    def chosen(self, places: Places) -> Generators:
        """Select the generators of the samples in these places."""
        return Generators(*self._place, self._numbers[places])

    @property
    def counters(self) -> NDArray[np.uint64]:
        """Initial counters of the samples' generators, uint64 ``(samples, 4)``."""
        _, epoch, stream = self._place
        counters = np.zeros((len(self._numbers), 4), np.uint64)
        counters[:, 1], counters[:, 2], counters[:, 3] = epoch, self._numbers, stream
        return counters


def chosen(rng_of: RngOf | None, places: Places) -> RngOf | None:
    """Select the generators of the samples in these places."""
    if rng_of is None or isinstance(rng_of, Generators):
        return rng_of and rng_of.chosen(places)
    return lambda place: rng_of(int(places[place]))


_own = threading.local()
_BEFORE_DRAWING = np.random.Philox(key=0).state


@functools.lru_cache(maxsize=64)
def _key(seed: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64)


class Place:
    """Sample or batch that a plan is running user code for.

    A context around the computation of a batch, in one thread. Within it, ``source_generator``
    returns generators that depend on the seed, the epoch, the sample and the number of earlier
    calls for it, and therefore not on the worker. User code runs for batch ``index`` until
    ``sample`` is called.
    """

    __slots__ = ("_count", "_index", "_number", "_outer", "_place", "_stream", "skipped")

    def __init__(self, seed: int, epoch: int, index: int) -> None:
        self._place = seed, epoch
        self._index = index
        self.skipped = 0
        """Number of the batch's samples that ``on_error`` replaced."""
        self.batch()

    def __enter__(self) -> Place:
        self._outer = getattr(_own, "place", None)
        _own.place = self
        return self

    def __exit__(self, *_: object) -> None:
        _own.place = self._outer

    def sample(self, number: int, run: int = 0) -> None:
        """Declare that user code runs for this sample from now on; ``run`` counts such calls."""
        self._number, self._stream, self._count = number, _OF_SAMPLE + (run << 32), 0

    def batch(self, run: int = 0) -> None:
        """Declare that user code runs for the whole batch from now on."""
        self._number, self._stream, self._count = self._index, _OF_BATCH + (run << 32), 0

    def generator(self) -> np.random.Generator:
        """Make the next generator."""
        count, self._count = self._count, self._count + 1
        return generator(*self._place, self._number % 2**63, self._stream + count)


def current_place() -> Place | None:
    """Place that this thread runs user code for; None outside of a plan."""
    return getattr(_own, "place", None)


def source_generator() -> np.random.Generator:
    """Make the generator for a sample that the program, or user code in a plan, reads itself.

    Within a plan it depends on the place; elsewhere it is unseeded.
    """
    place = current_place()
    return np.random.default_rng() if place is None else place.generator()


def generator_argument(function: Callable[..., Any] | None) -> Literal["second", "rng"] | None:
    """Tell how ``function`` takes its random generator: ``"rng"``, by keyword; None, not at all.

    ``"second"``: as its second parameter, positional-only.
    """
    if function is None:
        return None
    try:
        parameters = inspect.signature(function).parameters
        # A decorated function may supply ``rng`` itself.
        own = inspect.signature(function, follow_wrapped=False).parameters
    except (TypeError, ValueError):  # Some callables written in C have no signature.
        return None
    rng = parameters.get("rng")
    first = next(iter(parameters.values()), None)
    if rng is None or rng.kind in (rng.VAR_POSITIONAL, rng.VAR_KEYWORD):
        return None
    if rng is first and rng.kind is not rng.KEYWORD_ONLY:  # It is the sample.
        return None
    if "rng" not in own and all(each.kind is not each.VAR_KEYWORD for each in own.values()):
        return None
    return "second" if rng.kind is rng.POSITIONAL_ONLY else "rng"


def call_with(
    rng_of: Callable[[], np.random.Generator],
    argument: str | None,
    function: Callable[..., Any],
    item: Any,
) -> Any:
    """Call ``function(item)``, with a generator if it takes one by ``generator_argument``."""
    if argument is None:
        return function(item)
    return function(item, rng_of()) if argument == "second" else function(item, rng=rng_of())
