"""Search of user code for random generators: the global ones it draws from, and its own.

A search goes from objects to what they refer to, as the garbage collector does. In the bytecode of
functions it resolves global names, imports, and attributes of modules. It calls no user code but
attribute look-ups.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import importlib.util
import itertools
import logging
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

log = logging.getLogger("adapters")

USE_RNG = "draw from rng in transform(sample, rng), or reseed it from that"
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic)
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
# Modules that draw nothing, or only from a generator passed to them.
_QUIET_MODULES = frozenset(sys.stdlib_module_names) | {"adapters", "cv2", "mxnet", "numpy", "PIL"}
# Libraries too large to search; they are assumed to draw from ``random`` and ``numpy.random``.
_OPAQUE_MODULES = frozenset(
    {"h5py", "jax", "jaxlib", "pandas", "pyarrow", "sklearn", "tensorflow", "torch", "zarr"}
)
# A step within an installed package counts twice.
_DEEPEST, _MOST_OBJECTS, _MOST_MEMBERS = 8, 20_000, 200
# Base classes of MXNet's data sets and transforms, and the methods by which these make samples.
_PARTS = {"Block", "Dataset", "_TransformFirstClosure", "Augmenter", "DetAugmenter", "ImageIter"}
_MAKE_SAMPLES = {"__call__", "__getitem__", "forward", "hybrid_forward", "next", "reset"}
# The generators that the functions of ``random`` and ``numpy.random`` are bound to.
_GLOBAL: dict[str, Any] = {
    "random": random.seed.__self__,  # type: ignore[attr-defined]
    "numpy": np.random.mtrand._rand,
}
# Names of things that belong to a process, or that end one.
_OF_A_PROCESS = frozenset(
    {"_exit", "abort", "alarm", "chdir", "current_process", "fork", "getpid", "getppid", "kill"}
    | {"killpg", "parent_process", "pthread_kill", "raise_signal", "setitimer", "setrlimit"}
    | {"ctypes", "string_at", "terminate"}
)
# Methods that make no batch.
_MAKING = {"__init__", "__post_init__"}
_IDLE = _MAKING | {"on_epoch_begin", "on_epoch_end"}
# Generators of libraries that may not be imported: package and name of their class.
_OF_LIBRARIES = {("torch", "Generator"), ("keras", "SeedGenerator")}
_KINDS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_MOST_NESTED = 3
_NO_STEPS = {"CACHE", "EXTENDED_ARG", "NOP"}


class Used(NamedTuple):
    """The generators that some code draws from: ``"random"``, ``"numpy"`` and ``"mxnet"``."""

    possibly: frozenset[str]
    """Including a guess: code that can't be inspected counts as using ``random`` and ``numpy``."""
    certainly: frozenset[str]
    """Named by the code."""
    process: bool = False
    """True if it names something that belongs to a process, such as ``os.getpid``."""


def generators_used(*objects: Any) -> Used:
    """Find the global generators that the code in these objects draws from.

    Constructors of the objects, and their Keras hooks such as ``on_epoch_end``, don't count.
    """
    search = _Search(*objects)
    return Used(frozenset(search.guessed | search.named), frozenset(search.named), search.process)


def generators_named(code: Any) -> list[Any]:
    """Random generators that a function or a class reaches through global variables.

    A process that imports their module has them in their initial state.
    """
    return [found for each in _Search(code).visited.values() for found in generators_of(each)]


def draws_unseeded(value: Any, depth: int = 0) -> bool:
    """True if the object that gives an order draws from unseeded global generators.

    Inspects its own methods, what they call, and the samplers it contains. The data set is left
    out, as its samples may draw. An object that has ``set_epoch``, or whose code seeds, is assumed
    to repeat its draws.
    """
    members = [each for name, each in _members(type(value)) if name not in _MAKING]
    functions = [each for each in members if isinstance(each, types.FunctionType)]
    seeds = any("seed" in code.co_names for each in functions for code in _codes(each.__code__))
    if seeds or hasattr(value, "set_epoch") or depth > _DEEPEST:
        return False
    if generators_used(*functions).certainly & {"random", "numpy"}:
        return True
    return any(
        draws_unseeded(each, depth + 1)
        for each in getattr(value, "__dict__", {}).values()
        if hasattr(each, "__iter__")
        and not (hasattr(each, "__getitem__") or isinstance(each, type))
    )


class _Search:
    """Visits objects and what they refer to, each once, the nearest first."""

    def __init__(self, *objects: Any) -> None:
        self.named: set[str] = set()
        self.guessed: set[str] = set()
        self.process = False
        self.visited: dict[int, Any] = {}  # Ids are unique only while the object is alive.
        self._names: set[str] = set()
        self._as_objects: set[str] = set()  # Modules of which it isn't known what is used.
        left = deque((each, 0) for each in objects)
        while left:
            value, depth = left.popleft()
            plain = issubclass(type(value), _PLAIN) and _library(type(value)) in _QUIET_MODULES
            if plain or id(value) in self.visited:
                continue
            if depth > _DEEPEST or len(self.visited) > _MOST_OBJECTS:
                self._guess()
                continue
            self.visited[id(value)] = value
            try:
                found = self._visit(value, _MAKING if depth else _IDLE)
                deeper = depth + 1 + _is_in_packages(sys.modules.get(_module_of(value)))
                left.extend((each, deeper) for each in found)
            except Exception as error:  # A metaclass may run any code.
                log.debug("it can't be told what %r draws from: %r", type(value), error)
                self._guess()
        if "random" in self._names:  # Perhaps of a module that the code has in a variable.
            self.named |= self._as_objects & {"numpy", "mxnet"}

    def _guess(self) -> None:
        self.guessed |= {"random", "numpy"}

    def _visit(self, value: Any, idle: set[str]) -> Iterable[Any]:
        """Note what a value draws from by itself; return what it refers to."""
        kind, library = type(value), _library(value)
        own = _library(kind) not in _QUIET_MODULES | _OPAQUE_MODULES  # A class of the user's.
        if isinstance(value, types.ModuleType):
            return self._visit_module(value)
        bound = isinstance(value, (types.MethodType, types.BuiltinFunctionType))
        owner = value.__self__ if bound else value
        for name, generator in _GLOBAL.items():
            if owner is generator:
                self.named.add(name)
                return ()
        if isinstance(value, types.FunctionType):
            return self._visit_function(value, library)
        if isinstance(value, types.BuiltinFunctionType) and value.__name__ in _OF_A_PROCESS:
            self.process = True
        elif library in _OPAQUE_MODULES or (
            isinstance(value, types.BuiltinFunctionType) and library not in _QUIET_MODULES
        ):
            self._guess()
        if isinstance(value, type):
            searched = library not in _QUIET_MODULES | _OPAQUE_MODULES or _is_part(value)
            return self._methods(value, set()) if searched else ()
        if own:
            return [*self._methods(kind, idle), [*_held(value)]]
        if isinstance(value, _CONTAINERS):
            return _held(value)
        if library == "mxnet" and not _is_part(kind):
            return ()
        methods = self._methods(kind, set()) if library == "mxnet" else ()
        return [*methods, *filter(_may_draw, _held(value))]

    def _visit_module(self, module: types.ModuleType) -> Iterable[Any]:
        name = module.__name__
        self._as_objects.add(name.replace("mxnet.ndarray", "mxnet"))
        if name == "random" or name.startswith("numpy.random"):
            self.named.add(name.split(".")[0])
        elif name.startswith("mxnet") and "random" in name:
            self.named.add("mxnet")
        elif _library(module) not in _QUIET_MODULES:
            self._guess()
        return ()

    def _visit_function(self, function: types.FunctionType, library: str) -> Iterable[Any]:
        module, name = function.__globals__.get("__name__") or "", function.__name__
        found: list[Any] = [function.__dict__.get("__wrapped__")]
        if library == "mxnet" and not module.startswith("mxnet.image"):
            operator = module.startswith(("mxnet.ndarray", "mxnet.numpy", "mxnet.random"))
            plain = operator and ("random" in module or name in ("normal", "uniform"))
            if plain or _sounds_random(name):
                self.named |= {"mxnet"} if operator else {"mxnet", "numpy", "random"}
        elif library in _OPAQUE_MODULES:
            self._guess()
        elif library not in _QUIET_MODULES or (library == "mxnet" and not name.startswith("_")):
            found += self._visit_code(function)
            found += [function.__closure__, function.__defaults__, function.__kwdefaults__]
        elif name in _OF_A_PROCESS:
            self.process = True
        return found

    def _visit_code(self, function: types.FunctionType) -> Iterable[Any]:
        for each in _codes(function.__code__):
            self.process |= not _OF_A_PROCESS.isdisjoint(each.co_names)
            self._names.update(each.co_names)
            self._names.update(text for text in each.co_consts if isinstance(text, str))
        return _references(function.__code__, function.__globals__, {})

    def _methods(self, kind: type, idle: set[str]) -> Iterator[Any]:
        """Yield the members of a class without the idle ones."""
        for name, member in _members(kind):
            if name in idle:
                continue
            if isinstance(member, types.FunctionType) and _library(member) == "mxnet":
                yield from self._visit_code(member)
            else:
                yield member


def _held(value: Any) -> Iterator[Any]:
    """Yield the first objects that an object refers to, but its class: members, attributes."""
    for each in itertools.islice(gc.get_referents(value), _MOST_MEMBERS):
        if type(each) is dict:
            yield from itertools.islice(each.values(), _MOST_MEMBERS)
        elif type(each) is types.CellType:
            yield from gc.get_referents(each)
        elif each is not type(value):
            yield each


def _may_draw(member: Any) -> bool:
    """True for something within a library's object that may be, or have, code of the user's."""
    kind = type(member)
    return (
        isinstance(member, _CONTAINERS)
        or callable(member)
        or _library(kind) not in _QUIET_MODULES
        or _is_part(kind)
    )


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _references(
    code: types.CodeType, names: dict[str, Any], outer: dict[str, Any]
) -> Iterator[Any]:
    """Resolve the global names, imports, and attributes of modules that a function loads.

    A local variable that a module is assigned to is followed; ``outer`` has those of the functions
    around it. A module is given itself if it isn't known what is used of it.
    """
    local = {**outer}
    if code.co_name == "hybrid_forward" and "mxnet" in sys.modules and code.co_argcount > 1:
        local[code.co_varnames[1]] = sys.modules["mxnet"].nd  # Usually called F.
    steps = [each for each in dis.get_instructions(code) if each.opname not in _NO_STEPS]
    reached = imported = None
    for place, step in enumerate(steps):
        name, operation = step.argval, step.opname
        if isinstance(reached, types.ModuleType):
            if operation in ("LOAD_ATTR", "LOAD_METHOD"):
                reached = _attribute(reached, name)
                continue
            if operation.startswith("STORE_"):
                local[name[0] if isinstance(name, tuple) else name] = reached
                reached = None
        if reached is not None:
            yield reached
        reached = None
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            reached = local.get(name, names.get(name))
        elif operation.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD")):
            reached = local.get(name[-1] if isinstance(name, tuple) else name)  # From 3.13: two.
        elif operation == "IMPORT_NAME":
            level, members = steps[place - 2].argval, steps[place - 1].argval
            if level:
                name = importlib.util.resolve_name("." * level + name, names["__package__"])
            imported = reached = sys.modules.get(name if members else name.split(".")[0])
        elif operation == "IMPORT_FROM" and imported is not None:
            reached = _attribute(imported, name)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _references(constant, names, local)


def _attribute(module: types.ModuleType, name: str) -> Any:
    """An attribute of a module; the module itself if it has none, or is a library's to search."""
    found = vars(module).get(name)
    known = _library(module) in ("mxnet", "numpy", "random") or not _is_installed(module)
    return found if found is not None and known else module


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Functions and other attributes of a class and its bases; of MXNet's, what makes samples."""
    for base in kind.__mro__:
        library = _library(base)
        if base is object or (library in _QUIET_MODULES and library != "mxnet"):
            continue
        for name, member in list(vars(base).items()):
            if library == "mxnet":
                if name in _MAKE_SAMPLES:
                    yield name, member
            elif isinstance(member, types.FunctionType) or not name.startswith("__"):
                yield name, member


def _is_part(kind: type) -> bool:
    return any(base.__name__ in _PARTS and _library(base) == "mxnet" for base in kind.__mro__)


def _module_of(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.FunctionType):  # An operator of MXNet hasn't its name.
        return str(value.__globals__.get("__name__") or "")
    owner = value if isinstance(value, (type, types.BuiltinFunctionType)) else type(value)
    return str(getattr(owner, "__module__", None) or "")


def _library(value: Any) -> str:
    library = _module_of(value).split(".")[0]
    return "collections" if library.startswith("namedtuple_") else library


def is_users(code: Any) -> bool:
    """True if a function or a class is defined in the user's own module."""
    module = sys.modules.get(code.__module__ or "")
    if module is None or module.__name__.partition(".")[0] in _QUIET_MODULES:
        return False
    return not _is_installed(module)


def _is_installed(module: types.ModuleType) -> bool:
    """True if a module is not one of the user's files."""
    return not getattr(module, "__file__", None) or _is_in_packages(module)


def _is_in_packages(module: types.ModuleType | None) -> bool:
    file = getattr(module, "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _sounds_random(name: str) -> bool:
    lowered = name.lower()
    parts = ("rand", "shuffle", "dropout", "sample_", "multinomial", "jitter")
    return any(part in lowered for part in parts)


# --- generators of the user's own ---


def is_generator(value: Any) -> bool:
    """True for a random generator with a state of its own."""
    # By its type: isinstance would ask an object that warns of each access to its attributes.
    if issubclass(type(value), _KINDS):
        return not issubclass(type(value), random.SystemRandom)
    kinds = type(value).__mro__
    # A metaclass has a descriptor for its __module__.
    return any(
        (str(each.__module__).split(".")[0], each.__name__) in _OF_LIBRARIES for each in kinds
    )


def generators_of(value: Any) -> list[Any]:
    """List an object's generators that pickle doesn't show: itself, or those of a Keras layer.

    Keras pickles a layer by its configuration, so all copies start with the same seeds.
    """
    if is_generator(value):
        return [value]
    if not hasattr(type(value), "_flatten_layers"):
        return []
    layers = value._flatten_layers()
    return [each for layer in layers for each in getattr(layer, "_seed_generators", ())]


def generator_name(generator: Any, owners: Iterable[Any] = ()) -> str:
    """Name the attribute or variable of users' objects, or of modules, that has a generator."""
    kind = f"{type(generator).__module__.partition('.')[0]}'s {type(generator).__name__}"
    holders = [*_Search(*owners).visited.values(), *list(sys.modules.values())]
    for nested in (0, _MOST_NESTED):  # An attribute of its own is a better name than a list.
        for holder in holders:
            for name, value in _variables(holder).items():
                if not name.startswith("__") and _holds(value, generator, nested):
                    prefix = (
                        "" if isinstance(holder, _WITH_VARIABLES) else f"{type(holder).__name__}."
                    )
                    return f"{prefix}{name} ({kind})"
    return f"a generator ({kind})"


def _holds(value: Any, generator: Any, nested: int) -> bool:
    """True if ``value`` is the generator, or has it in containers nested up to so many times."""
    if any(each is generator for each in (value, *generators_of(value))):
        return True
    members = _held(value) if nested and type(value) in (list, tuple, dict) else ()
    return any(_holds(each, generator, nested - 1) for each in members)


_WITH_VARIABLES = (types.FunctionType, types.ModuleType)


def _variables(holder: Any) -> dict[str, Any]:
    """Variables of a module or of a function's closure; attributes of an object."""
    if isinstance(holder, types.FunctionType):
        with contextlib.suppress(ValueError):  # A variable that isn't assigned yet.
            cells = [cell.cell_contents for cell in holder.__closure__ or ()]
            return dict(zip(holder.__code__.co_freevars, cells))
        return {}
    found: dict[str, Any] = {}
    for base in () if isinstance(holder, types.ModuleType) else reversed(type(holder).__mro__):
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # A slot that isn't assigned yet.
                    found[name] = member.__get__(holder)
            elif is_users(base):
                found[name] = member
    return {**found, **getattr(holder, "__dict__", {})}
