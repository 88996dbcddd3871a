"""Random numbers: a sample's own, and the global generators that a user's code may draw from.

``uniforms`` is what the random transforms that run a batch at a time draw from: a function of the
seed, the epoch and the number of the sample alone.

Code of the user's own draws from ``random``, ``numpy.random`` or MXNet's generator. Where it runs
inline or in a worker process, ``Seeding`` makes these functions of the same things, and puts back
afterwards what was there before. MXNet's generator can't be read: it is seeded again with a number
that was drawn from it, and only where the code is found to use it. Seeding it takes 1.2 ms (MXNet
1.9.1 fills 1,024 states), so it is done once per batch, where the others are seeded per sample.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import dataset as _dataset
from numpy.typing import NDArray

from adapters.generators import generator

# The stream of the generators that seed others; 0 and 1 are for transforms, see ``assemble``.
_SEEDS = 2
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic)
# Modules that draw nothing, or only from a generator that they are given.
_QUIET_MODULES = frozenset(sys.stdlib_module_names) | {"adapters", "cv2", "mxnet", "numpy", "PIL"}
_DEEPEST = 8
# What MXNet makes data sets and transforms of.
_PARTS = (mx.gluon.Block, mx.gluon.data.Dataset, _dataset._TransformFirstClosure)
# NumPy's stubs don't know all of it.
_numpy: Any = np.random


def uniforms(
    seed: int, epoch: int, numbers: NDArray[np.int64], stream: int, count: int
) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) for each sample.

    SplitMix64 [1]_ over a counter, from a start that the arguments determine.

    Args:
        seed: Of the loader.
        epoch: Of the batch.
        numbers: int64 ``(batch,)``, the samples.
        stream: Which transform draws.
        count: How many for each sample.

    Returns:
        float64 ``(batch, count)``.

    .. [1] G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    start = np.random.SeedSequence((seed, epoch, stream)).generate_state(2, np.uint64)
    state = _mixed(np.asarray(numbers, np.uint64) * _GOLDEN + start[0]) ^ start[1]
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    drawn: NDArray[np.float64] = (_mixed(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53
    return drawn


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


class Seeding:
    """The global generators, seeded for a batch and for each of its samples.

    One thread at a time: the generators are the process's.

    Args:
        used: Of ``"random"``, ``"numpy"`` and ``"mxnet"``, those that the code may draw from.
        seed: Of the loader.
        restore: Put back what was there before; not in a worker process, where nobody minds.
    """

    def __init__(self, used: frozenset[str], seed: int, restore: bool) -> None:
        self._used = used
        self._seed = seed
        self._restore = restore

    @contextlib.contextmanager
    def batch(self, epoch: int, index: int) -> Iterator[None]:
        """Seed what is seeded per batch."""
        undo = self._kept() if self._restore else []
        if "numpy" in self._used:
            # A generator of our own in the place of the user's, so that his isn't even copied.
            _numpy.set_bit_generator(np.random.MT19937(0))
        if "mxnet" in self._used:
            mx.random.seed(self._drawn(epoch, index))
        try:
            yield
        finally:
            for function, argument in undo:
                function(argument)

    def of_samples(
        self, epoch: int, numbers: NDArray[np.int64], place: int
    ) -> Callable[[int], None]:
        """What seeds the generators for a row; ``place`` tells several calls for one apart."""

        def seed(row: int) -> None:
            drawn = self._drawn(epoch, int(numbers[row]), place)
            if "random" in self._used:
                random.seed(drawn)
            if "numpy" in self._used:
                np.random.seed(drawn)

        return seed

    def _kept(self) -> list[Any]:
        undo: list[Any] = []
        if "random" in self._used:
            undo.append((random.setstate, random.getstate()))
        if "numpy" in self._used:
            undo.append((_numpy.set_bit_generator, _numpy.get_bit_generator()))
        if "mxnet" in self._used:
            undo.append((mx.random.seed, _draw_seed()))
        return undo

    def _drawn(self, epoch: int, number: int, place: int = 0) -> int:
        stream = _SEEDS + place
        return int(generator(self._seed, epoch, number % 2**63, stream).integers(2**31))


def _draw_seed() -> int:
    with mx.Context("cpu", 0):
        return int(mx.nd.random.randint(0, 2**31 - 1, shape=(1,)).asscalar())


# --- which generators some code draws from ---


def generators_used(*objects: Any) -> frozenset[str]:
    """Which global generators the code in these objects may draw from.

    Looks at the names in the byte code of functions and methods, and of what they call. Code that
    can't be looked at (extension modules, other libraries) is taken to use ``random`` and
    ``numpy.random``.
    """
    search = _Search()
    for each in objects:
        search.visit(each, 0)
    return frozenset(search.found)


class _Search:
    def __init__(self) -> None:
        self.found: set[str] = set()
        self._seen: set[int] = set()
        self._kept: list[Any] = []

    def visit(self, value: Any, depth: int) -> None:
        if isinstance(value, _PLAIN) or id(value) in self._seen:
            return
        if depth > _DEEPEST:
            self.found |= {"random", "numpy"}
            return
        self._seen.add(id(value))
        self._kept.append(value)  # An id is only its own as long as the object is there.
        if isinstance(value, types.ModuleType):
            self._visit_module(value)
        elif isinstance(value, (types.FunctionType, types.MethodType)):
            self._visit_function(value, depth)
        elif isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords), depth + 1)
        elif hasattr(value, "__wrapped__") and not isinstance(value, type):
            self.visit(value.__wrapped__, depth + 1)
            if isinstance(value, types.FunctionType):
                self._visit_function(value, depth)
        elif isinstance(value, (list, tuple, set, frozenset)):
            for member in list(value)[:100]:
                self.visit(member, depth + 1)
        elif isinstance(value, dict):
            for member in list(value.values())[:100]:
                self.visit(member, depth + 1)
        elif _library(value) == "mxnet":
            self._visit_mxnet(value, depth)
        elif isinstance(value, type):
            self._visit_class(value, depth)
        elif _library(value) in _QUIET_MODULES or isinstance(value, np.random.Generator):
            return
        elif hasattr(value, "__dict__"):
            self._visit_class(type(value), depth)
            self.visit(vars(value), depth + 1)
        else:
            self.found |= {"random", "numpy"}

    def _visit_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        if name == "random":
            self.found.add("random")
        elif name.startswith(("numpy.random", "mxnet.random", "mxnet.ndarray.random")) or (
            name.endswith(".random") and name.startswith("mxnet")
        ):
            self.found.add(name.split(".")[0])
        elif name.split(".")[0] not in _QUIET_MODULES:
            self.found |= {"random", "numpy"}

    def _visit_function(self, function: Any, depth: int) -> None:
        if isinstance(function, types.MethodType):
            self.visit(function.__self__, depth + 1)
            function = function.__func__
        library = (function.__module__ or "").split(".")[0]
        if library == "mxnet":
            if _sounds_random(function.__name__) or "random" in function.__module__:
                self.found |= {"random", "numpy", "mxnet"}
            return
        if library == "random" or (library == "numpy" and "random" in function.__module__):
            self.found.add(library)
            return
        if library in _QUIET_MODULES:
            return
        self._visit_code(function.__code__, function.__globals__, depth)
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):
                self.visit(cell.cell_contents, depth + 1)
        self.visit(function.__defaults__ or (), depth + 1)
        self.visit(function.__kwdefaults__ or {}, depth + 1)

    def _visit_code(self, code: types.CodeType, names: dict[str, Any], depth: int) -> None:
        random_names = any(_sounds_random(name) for name in code.co_names)
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname == "IMPORT_NAME":
                named: Any = sys.modules.get(str(name).split(".")[0])
            elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                named = names.get(name)
            else:
                continue
            library = _library(named)
            if random_names and isinstance(named, types.ModuleType):
                self.found |= {library} & {"mxnet", "numpy"}
            if named is not None:
                self.visit(named, depth + 1)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._visit_code(constant, names, depth + 1)

    def _visit_class(self, kind: type, depth: int) -> None:
        for base in kind.__mro__:
            if base is object or _library(base) in _QUIET_MODULES:
                continue
            for member in vars(base).values():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(function, types.FunctionType):
                    self.visit(function, depth + 1)

    def _visit_mxnet(self, value: Any, depth: int) -> None:
        """A block, a data set, an array, or a function in C."""
        kind = value if isinstance(value, type) else type(value)
        if _sounds_random(getattr(value, "__name__", kind.__name__)):
            self.found |= {"random", "numpy", "mxnet"}
        if not isinstance(value, _PARTS):
            return
        for member in [*vars(value).values(), *getattr(value, "_children", {}).values()]:
            # Names, parameters and the like are no code.
            if _library(member) != "mxnet" or isinstance(member, _PARTS):
                self.visit(member, depth + 1)


def _library(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0]
    owner = value if isinstance(value, (type, types.BuiltinFunctionType)) else type(value)
    return (getattr(owner, "__module__", "") or "").split(".")[0]


def _sounds_random(name: str) -> bool:
    lowered = name.lower()
    return any(
        part in lowered
        for part in ("rand", "shuffle", "dropout", "sample_", "multinomial", "jitter", "rotate")
    )
