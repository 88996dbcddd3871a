"""Search of user code for random generators: the global ones it draws from, and its own.

A search goes from objects to the functions and objects that they refer to, and resolves the global
names and the imports in each function's bytecode. It calls no user code but attribute look-ups.

Why not run the first batches and see whether the generators' states change? That misses code that
draws only for some samples, such as an augmentation of one class. And a resumed training has other
first batches than the one before it, so the two could decide differently. It is done for what can't
be searched, see ``SourcePlan``.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib.util
import itertools
import logging
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

log = logging.getLogger("adapters")

USE_RNG = "draw from rng in transform(sample, rng), or reseed it from that"
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic)
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
# Modules that draw nothing, or only from a generator passed to them.
_QUIET_MODULES = frozenset(sys.stdlib_module_names) | {"adapters", "cv2", "mxnet", "numpy", "PIL"}
# Libraries too large to search; they may draw from ``random`` and ``numpy.random``.
_OPAQUE_MODULES = frozenset(
    {"h5py", "jax", "jaxlib", "pandas", "pyarrow", "sklearn", "tensorflow", "torch", "zarr"}
)
_DEEPEST, _MOST_OBJECTS, _MOST_MEMBERS = 8, 20_000, 100
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
# Methods that make no batch, unless code that does names them.
_MAKING = {"__init__", "__post_init__"}
_IDLE = _MAKING | {"on_epoch_begin", "on_epoch_end"}
# Generators of libraries that may not be imported: package and name of their class.
_OF_LIBRARIES = {("torch", "Generator"), ("keras", "SeedGenerator")}
_KINDS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_MOST_LISTS = 3
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

    Constructors and Keras hooks, such as ``on_epoch_end``, count only if the code that makes
    batches names them.
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
    if _seeds(functions) or hasattr(value, "set_epoch") or depth > _DEEPEST:
        return False
    if drawn_unseeded(functions):
        return True
    return any(
        draws_unseeded(each, depth + 1)
        for each in getattr(value, "__dict__", {}).values()
        if hasattr(each, "__iter__")
        and not (hasattr(each, "__getitem__") or isinstance(each, type))
    )


def drawn_unseeded(functions: Sequence[types.FunctionType]) -> frozenset[str]:
    """Names of ``random`` and ``numpy.random`` if the functions draw from them and seed neither."""
    drawn = generators_used(*functions).certainly & {"random", "numpy"}
    return frozenset() if _seeds(functions) else drawn


def _seeds(functions: Sequence[types.FunctionType]) -> bool:
    return any("seed" in code.co_names for each in functions for code in _codes(each.__code__))


class _Search:
    """Visits objects and what they refer to, each once."""

    def __init__(self, *objects: Any) -> None:
        self.named: set[str] = set()
        self.guessed: set[str] = set()
        self.process = False
        self.visited: dict[int, Any] = {}  # Ids are unique only while the object is alive.
        self._names: set[str] = set()
        self._as_objects: set[str] = set()  # Modules of which it isn't known what is used.
        self._idle: list[tuple[str, Any, int]] = []
        for each in objects:
            try:
                self._visit(each, 0)
                self._visit_idle()
            except Exception as error:  # Inspecting a user's object may run any code.
                log.debug("it can't be told what %r draws from: %r", type(each), error)
                self._guess()
        if "random" in self._names:  # Perhaps looked up in a module used as an object.
            self.named |= self._as_objects & {"numpy", "mxnet"}

    def _guess(self) -> None:
        self.guessed |= {"random", "numpy"}

    def _visit_idle(self) -> None:
        """Visit the methods left out so far whose names the code has."""
        while called := [each for each in self._idle if each[0] in self._names]:
            self._idle = [each for each in self._idle if each not in called]
            for _, function, depth in called:
                self._visit(function, depth)

    def _visit(self, value: Any, depth: int) -> None:
        kind, library = type(value), _library(value)
        own = _library(kind) not in _QUIET_MODULES  # A class of the user or of a library.
        if (isinstance(value, _PLAIN) and not own) or id(value) in self.visited:
            return
        owner = getattr(value, "__self__", None)
        bound_to = [name for name, each in _GLOBAL.items() if each is value or each is owner]
        if not bound_to and (depth > _DEEPEST or len(self.visited) > _MOST_OBJECTS):
            self._guess()
            return
        self.visited[id(value)] = value
        if isinstance(value, types.ModuleType):
            self._visit_module(value)
        elif getattr(value, "__name__", None) in _OF_A_PROCESS and callable(value):
            self.process = True
        elif bound_to:
            self.named.update(bound_to)
        elif isinstance(value, types.MethodType):
            self._visit_all([value.__self__, value.__func__], depth)
        elif isinstance(value, types.FunctionType):
            self._visit_function(value, library, depth)
        elif isinstance(value, functools.partial):
            self._visit_all([value.func, value.args, value.keywords], depth)
        elif hasattr(value, "__wrapped__") and not isinstance(value, type):
            self._visit(value.__wrapped__, depth + 1)
        elif isinstance(value, type):
            if library in _OPAQUE_MODULES:
                self._guess()
            elif library not in _QUIET_MODULES or _is_part(value):
                self._visit_class(value, depth, ())
        elif isinstance(value, _CONTAINERS) and not own:
            members = value.values() if isinstance(value, dict) else value
            self._visit_all(list(itertools.islice(members, _MOST_MEMBERS)), depth)
        elif library == "adapters" and hasattr(value, "functions"):
            self._visit(value.functions, depth + 1)  # A chain of transforms, also the user's.
        elif library in _OPAQUE_MODULES | _QUIET_MODULES:
            self._visit_of_library(value, library, depth)
        elif hasattr(value, "__dict__") or _slots_of(kind) or own:
            self._visit_object(value, depth)
        else:
            self._guess()

    def _visit_all(self, values: Iterable[Any], depth: int) -> None:
        for each in values:
            self._visit(each, depth + 1)

    def _visit_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        self._as_objects.add(name.replace("mxnet.ndarray", "mxnet"))
        if name == "random" or name.startswith("numpy.random"):
            self.named.add(name.split(".")[0])
        elif name.startswith("mxnet") and "random" in name:
            self.named.add("mxnet")
        elif _library(module) not in _QUIET_MODULES:
            self._guess()

    def _visit_function(self, function: types.FunctionType, library: str, depth: int) -> None:
        module, name = function.__globals__.get("__name__") or "", function.__name__
        if library == "mxnet" and not module.startswith("mxnet.image"):
            operator = module.startswith(("mxnet.ndarray", "mxnet.numpy", "mxnet.random"))
            plain = operator and ("random" in module or name in ("normal", "uniform"))
            if plain or _sounds_random(name):
                self.named |= {"mxnet"} if operator else {"mxnet", "numpy", "random"}
        elif library in _OPAQUE_MODULES:
            self._guess()
        elif library == "random" or module.startswith("numpy.random"):
            self.named.add(library)
        elif library not in _QUIET_MODULES or (library == "mxnet" and not name.startswith("_")):
            self._visit_code(function.__code__, function.__globals__, depth)
            for cell in function.__closure__ or ():
                with contextlib.suppress(ValueError):
                    self._visit(cell.cell_contents, depth + 1)
            self._visit_all([function.__defaults__, function.__kwdefaults__], depth)
        if hasattr(function, "__wrapped__"):
            self._visit(function.__wrapped__, depth + 1)

    def _visit_code(self, code: types.CodeType, names: dict[str, Any], depth: int) -> None:
        for each in _codes(code):
            self.process |= not _OF_A_PROCESS.isdisjoint(each.co_names)
            self._names.update(each.co_names)
            self._names.update(text for text in each.co_consts if isinstance(text, str))
        self._visit_all(_references(code, names, {}), depth)

    def _visit_object(self, value: Any, depth: int) -> None:
        self._visit_class(type(value), depth, _MAKING if depth else _IDLE)
        self._visit(getattr(value, "__dict__", None), depth + 1)
        for slot in _slots_of(type(value)):
            with contextlib.suppress(AttributeError):
                self._visit(slot.__get__(value), depth + 1)
        if isinstance(value, _CONTAINERS):
            members = value.values() if isinstance(value, dict) else value
            self._visit_all(list(itertools.islice(members, _MOST_MEMBERS)), depth)

    def _visit_class(self, kind: type, depth: int, idle: Iterable[str]) -> None:
        """Visit the members of a class, but for idle methods that no visited code names."""
        for name, member in _members(kind):
            if name in idle:
                self._idle.append((name, member, depth + 1))
            elif _library(member) == "mxnet" and isinstance(member, types.FunctionType):
                self._visit_code(member.__code__, member.__globals__, depth + 1)
            else:
                self._visit(member, depth + 1)

    def _visit_of_library(self, value: Any, library: str, depth: int) -> None:
        """Visit what a library's object holds, such as ``np.vectorize`` or ``Subset``."""
        if library == "mxnet":
            if not _is_part(type(value)):
                return
            self._visit_class(type(value), depth, ())
        elif library in _OPAQUE_MODULES:
            self._guess()
        for member in getattr(value, "__dict__", {}).values():
            held = isinstance(member, _CONTAINERS) or callable(member)
            if held or _library(type(member)) not in _QUIET_MODULES or _is_part(type(member)):
                self._visit(member, depth + 1)


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

    A local variable that a module is assigned to is followed. A module is given itself if it isn't
    known what is used of it. ``names`` are the function's global variables, and ``outer`` has the
    modules in the variables of the functions around it.
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
            member = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(member, functools.cached_property):
                member = member.func
            if library == "mxnet":
                if name in _MAKE_SAMPLES:
                    yield name, getattr(member, "__wrapped__", member)
            elif isinstance(member, types.FunctionType) or not name.startswith("__"):
                yield name, member


def _slots_of(kind: type) -> list[Any]:
    """Slot descriptors of a class."""
    bases = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    members = (member for base in bases for member in base.values())
    return [member for member in members if isinstance(member, types.MemberDescriptorType)]


def _is_part(kind: type) -> bool:
    return any(base.__name__ in _PARTS and _library(base) == "mxnet" for base in kind.__mro__)


def _library(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0]
    if isinstance(value, types.FunctionType):  # An operator of MXNet hasn't its name.
        module = value.__globals__.get("__name__")
    else:
        owner = value if isinstance(value, (type, types.BuiltinFunctionType)) else type(value)
        module = getattr(owner, "__module__", None)
    if module == "datasets.arrow_dataset":  # Hugging Face's: only its other methods draw.
        return "pyarrow"
    library = str(module or "").split(".")[0]
    return "collections" if library.startswith("namedtuple_") else library


def is_users(code: Any) -> bool:
    """True if a function or a class is defined in the user's own module."""
    module = sys.modules.get(code.__module__ or "")
    if module is None or module.__name__.partition(".")[0] in _QUIET_MODULES:
        return False
    return not _is_installed(module)


def _is_installed(module: types.ModuleType) -> bool:
    """True if a module is not one of the user's files."""
    file = getattr(module, "__file__", None) or "site-packages"
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
    """Name the attribute or variable that holds a generator, if it can be found.

    Args:
        generator: The generator.
        owners: Users' objects and functions that may lead to it.
    """
    kind = f"{type(generator).__module__.partition('.')[0]}'s {type(generator).__name__}"
    modules = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))
    holders = [*_Search(*owners).visited.values(), *modules]
    for lists in (0, _MOST_LISTS):  # An attribute of its own is a better name than a list.
        for holder in holders:
            for name, value in _variables(holder):
                if _holds(value, generator, lists):
                    return f"{name} ({kind})"
    return f"a generator ({kind})"


def _holds(value: Any, generator: Any, lists: int) -> bool:
    """True if ``value`` is the generator, or has it in lists within each other, up to so many."""
    if any(each is generator for each in (value, *generators_of(value))):
        return True
    members = value[:_MOST_MEMBERS] if lists and type(value) in (list, tuple) else ()
    return any(_holds(each, generator, lists - 1) for each in members)


def _variables(holder: Any) -> list[tuple[str, Any]]:
    """Names and values in a dict, in a function's closure, or in an object's attributes."""
    prefix, members = "", holder
    if isinstance(holder, types.FunctionType):
        with contextlib.suppress(ValueError):  # A variable that isn't assigned yet.
            cells = [cell.cell_contents for cell in holder.__closure__ or ()]
            return list(zip(holder.__code__.co_freevars, cells))
        return []
    if not isinstance(holder, dict):
        kind = type(holder)
        prefix, members = f"{kind.__name__}.", dict(getattr(holder, "__dict__", {}))
        for base in kind.__mro__ if is_users(kind) else ():
            members = {**vars(base), **members}
        for slot in _slots_of(kind):
            with contextlib.suppress(AttributeError):
                members[slot.__name__] = slot.__get__(holder)
    return [
        (prefix + name, value)
        for name, value in list(members.items())
        if isinstance(name, str) and not name.startswith("__")
    ]
