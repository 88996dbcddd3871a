"""Global random generators that code draws from, as far as its bytecode shows."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import random
import sys
import types
from collections.abc import Iterator, Set
from typing import Any, NamedTuple

import numpy as np

from adapters.instructions import (
    LOADS_NAME,
    MAKERS,
    attribute_loaded,
    draws_by_attribute,
    loads_local,
    loads_to_call,
    names_in,
    only_names_types,
    steps_of,
)
from adapters.random_state import generators_of

log = logging.getLogger("adapters")

_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic)
# Modules that draw nothing, or only from a generator passed to them.
_QUIET_MODULES = frozenset(sys.stdlib_module_names) | {"adapters", "cv2", "mxnet", "numpy", "PIL"}
# Libraries too large to search; they are assumed to draw from ``random`` and ``numpy.random``.
_OPAQUE_MODULES = frozenset(
    {"h5py", "jax", "jaxlib", "pandas", "pyarrow", "sklearn", "tensorflow", "torch", "zarr"}
)
_DEEPEST, _MOST_OBJECTS = 8, 20_000
# Base classes of MXNet's data sets and transforms.
_PARTS = {"Block", "Dataset", "_TransformFirstClosure", "Augmenter", "DetAugmenter"}
# MXNet's modules that draw only from its own generator; others may draw from all three.
_OPERATORS = ("mxnet.ndarray", "mxnet.numpy", "mxnet.random")
_ALL = {"random", "numpy", "mxnet"}
# The generators that the functions of ``random`` and ``numpy.random`` are bound to.
_RANDOM: Any = random.seed.__self__  # type: ignore[attr-defined]
_NUMPY: Any = np.random.mtrand._rand
# Names of things that belong to a process, or that end one.
_OF_A_PROCESS = frozenset(
    {"_exit", "abort", "alarm", "chdir", "current_process", "fork", "getpid", "getppid", "kill"}
    | {"killpg", "parent_process", "pthread_kill", "raise_signal", "setitimer", "setrlimit"}
    | {"ctypes", "string_at", "terminate"}
)
# Methods that make no batch: they run when an object is created, or between two epochs. And names
# that show that code creates objects of a class it doesn't name.
_MAKING, _BETWEEN_EPOCHS = {"__init__", "__post_init__"}, {"on_epoch_begin", "on_epoch_end"}
_MADE_ANEW = {"type", "__class__", "cls", "dataclasses", *_MAKING}


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

    Inspects the names in the bytecode of functions and methods, and of everything they call.
    Constructors and Keras hooks, such as ``on_epoch_end``, count only if the code that makes
    batches may run them.
    """
    search = _Search()
    for each in objects:
        try:
            search.visit(each, 0)
            search.visit_idle()
        except Exception as error:  # Inspecting a user's object may run any code.
            log.debug("it can't be told what %r draws from: %r", type(each), error)
            search.found |= {"random", "numpy"}
    return Used(frozenset(search.found | search.named), frozenset(search.named), search.process)


def generators_named(code: Any) -> list[Any]:
    """Random generators that a function or a class reaches through global variables.

    A process that imports their module has them in their initial state.
    """
    search = _Search()
    try:
        search.visit(code, 0)
        search.visit_idle()
    except Exception as error:
        log.debug("it can't be told what %r draws from: %r", code, error)
    return [each for kept in search.kept for each in generators_of(kept)]


def draws_unseeded(value: Any, depth: int = 0) -> bool:
    """True if the object that gives an order draws from unseeded global generators.

    Inspects its own methods, what they call, and the samplers it contains. The data set is left
    out, as its samples may draw. An object that has ``set_epoch``, or whose code seeds, is assumed
    to repeat its draws.
    """
    members = [(name, member) for name, member in _members(type(value)) if name not in _MAKING]
    functions = [each for _, each in members if isinstance(each, types.FunctionType)]
    seeds = any("seed" in names_in(function.__code__) for function in functions)
    if seeds or hasattr(value, "set_epoch") or depth > _DEEPEST:
        return False
    if generators_used(*functions).certainly & {"random", "numpy"}:
        return True
    held = getattr(value, "__dict__", {}).values()
    samplers = [each for each in held if hasattr(each, "__iter__")]
    return any(
        draws_unseeded(each, depth + 1)
        for each in samplers
        if not (hasattr(each, "__getitem__") or isinstance(each, type))
    )


class _Search:
    def __init__(self) -> None:
        self.found: set[str] = set()
        self.named: set[str] = set()
        self.process = False
        self._names: set[str] = set()
        self._idle: list[tuple[str, types.FunctionType, int]] = []
        self._seen: set[int] = set()
        self.kept: list[Any] = []
        """Objects visited so far."""

    def visit(self, value: Any, depth: int) -> None:
        own = _library(type(value)) not in _QUIET_MODULES  # A class of the user or of a library.
        if (isinstance(value, _PLAIN) and not own) or id(value) in self._seen:
            return
        if depth > _DEEPEST or len(self.kept) > _MOST_OBJECTS:
            self.found |= {"random", "numpy"}
            return
        self._seen.add(id(value))
        self.kept.append(value)  # Ids are unique only while the object is alive.
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.ModuleType):
            self._visit_module(value)
        elif getattr(value, "__name__", None) in _OF_A_PROCESS and callable(value):
            self.process = True
        elif owner is _RANDOM or value is _RANDOM:
            self.named.add("random")
        elif owner is _NUMPY or value is _NUMPY:
            self.named.add("numpy")
        elif _library(value) in _OPAQUE_MODULES:
            self.found |= {"random", "numpy"}
            if not isinstance(value, type):
                self._visit_held(value, depth)
        elif isinstance(value, (types.FunctionType, types.MethodType)):
            self._visit_function(value, depth)
        elif isinstance(value, functools.partial):
            self.visit((value.func, value.args, value.keywords), depth + 1)
        elif hasattr(value, "__wrapped__") and not isinstance(value, type):
            self.visit(value.__wrapped__, depth + 1)
            if isinstance(value, types.FunctionType):
                self._visit_function(value, depth)
        elif isinstance(value, (list, tuple, set, frozenset, dict, *_PLAIN)):
            if own:
                self._visit_object(value, depth)
            if not isinstance(value, _PLAIN):
                members = value.values() if isinstance(value, dict) else value
                for member in list(itertools.islice(members, 100)):
                    self.visit(member, depth + 1)
        elif _library(value) == "mxnet":
            self._visit_mxnet(value, depth)
        elif isinstance(value, type):
            self._visit_class(value, depth)
        elif _library(value) == "adapters" and hasattr(value, "functions"):
            self.visit(value.functions, depth + 1)  # A chain of transforms, including the user's.
        elif _library(value) in _QUIET_MODULES or isinstance(value, np.random.Generator):
            self._visit_held(value, depth)
        elif hasattr(value, "__dict__") or _slots_of(value):
            self._visit_object(value, depth)
        else:
            self.found |= {"random", "numpy"}

    def _visit_held(self, value: Any, depth: int) -> None:
        """Visit the members of a library's object, such as ``np.vectorize`` or ``Subset``."""
        held = list(value) if isinstance(value, collections.deque) else []
        for member in itertools.chain(held, getattr(value, "__dict__", {}).values()):
            of_others = isinstance(member, (list, tuple, dict)) or callable(member)
            if of_others or _library(type(member)) not in _QUIET_MODULES:
                self.visit(member, depth + 1)

    def visit_idle(self) -> None:
        """Visit the deferred methods that visited code may call; of others, what they store."""
        while called := [each for each in self._idle if self._may_call(each[0])]:
            self._idle = [each for each in self._idle if each not in called]
            for _, function, depth in called:
                self.visit(function, depth)
        for _, function, depth in self._idle:
            self._visit_left_behind(function, depth)
        if any(self._may_call(name) for name, _, _ in self._idle):
            self.visit_idle()

    def _may_call(self, name: str) -> bool:
        return not self._names.isdisjoint(_MADE_ANEW if name in _MAKING else {name})

    def _visit_left_behind(self, function: types.FunctionType, depth: int) -> None:
        """Visit the functions that an object may have stored when it was created."""
        code, names = function.__code__, function.__globals__
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType) and not constant.co_name.endswith("comp>"):
                self._visit_code(constant, names, depth + 1)
        for step in steps_of(code):
            kept = step.opname in LOADS_NAME and not loads_to_call(step)
            if kept and isinstance(names.get(step.argval), types.FunctionType):
                self.visit(names[step.argval], depth + 1)

    def _visit_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        if name == "random":
            self.named.add("random")
        elif name.startswith(("numpy.random", "mxnet.random", "mxnet.ndarray.random")) or (
            name.endswith(".random") and name.startswith("mxnet")
        ):
            self.named.add(name.split(".")[0])
        elif name.split(".")[0] not in _QUIET_MODULES:
            self.found |= {"random", "numpy"}

    def _visit_function(self, function: Any, depth: int) -> None:
        if isinstance(function, types.MethodType):
            self.visit(function.__self__, depth + 1)
            function = function.__func__
            if not isinstance(function, types.FunctionType):
                self.visit(function, depth + 1)
                return
        module = "mxnet.ndarray" if _is_operator(function) else function.__module__ or ""
        library = module.split(".")[0]
        if library == "mxnet":
            if _function_draws(function.__name__, module):
                self.named |= {"mxnet"} if module.startswith(_OPERATORS) else _ALL
            return
        if library == "random" or (library == "numpy" and "random" in module):
            self.named.add(library)
            return
        if library in _OPAQUE_MODULES:
            self.found |= {"random", "numpy"}
            return
        if library in _QUIET_MODULES or library.startswith("namedtuple_"):
            return
        self._visit_code(function.__code__, function.__globals__, depth)
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):
                self.visit(cell.cell_contents, depth + 1)
        self.visit(function.__defaults__ or (), depth + 1)
        self.visit(function.__kwdefaults__ or {}, depth + 1)

    def _visit_code(self, code: types.CodeType, names: dict[str, Any], depth: int) -> None:
        self.process |= not _OF_A_PROCESS.isdisjoint(code.co_names)
        known = "type" in self._names
        self._names.update(code.co_names, code.co_varnames)
        self._names.update(each for each in code.co_consts if isinstance(each, str))
        random_names = any(_sounds_random(name) for name in code.co_names)
        certain = {"mxnet", "numpy"} if draws_by_attribute(code) else {"mxnet"}
        steps = steps_of(code)
        if not known and only_names_types(steps):
            self._names.discard("type")
        frame = _operators_name(code)
        for at, (step, after) in enumerate(zip(steps, [*steps[1:], None]), start=1):
            name = step.argval
            if step.opname == "IMPORT_NAME":
                named: Any = sys.modules.get(str(name).split(".")[0])
            elif step.opname in LOADS_NAME:
                named = names.get(name)
            elif frame and loads_local(step, frame) and "mxnet.ndarray" in sys.modules:
                self.visit(attribute_loaded(sys.modules["mxnet.ndarray"], steps, at)[0], depth + 1)
                continue
            else:
                continue
            loads_maker = after is not None and after.argval in MAKERS
            if named is random and loads_maker and step.opname in LOADS_NAME:
                continue
            library = _library(named)
            if random_names and isinstance(named, types.ModuleType):
                self.found |= {library} & {"mxnet", "numpy"}
                self.named |= {library} & certain
            if isinstance(named, types.ModuleType) and step.opname in LOADS_NAME:
                named = self._visit_attribute(named, steps, at, depth)
            if named is not None:
                self.visit(named, depth + 1)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._visit_code(constant, names, depth + 1)

    def _visit_attribute(self, module: types.ModuleType, steps: Any, at: int, depth: int) -> Any:
        """Visit an attribute of a module of MXNet or the user; return what is left to visit."""
        library = _library(module)
        mxnets = library == "mxnet"
        if library in _OPAQUE_MODULES or (library in _QUIET_MODULES and not mxnets):
            return module
        reached, owner = attribute_loaded(module, steps, at)
        # An installed module may be large, and is not searched.
        if reached is None or (_is_installed(owner) and not mxnets):
            return module
        self.visit(reached, depth + 1)
        return module if mxnets else None

    def _visit_object(self, value: Any, depth: int) -> None:
        self._visit_class(type(value), depth, _MAKING | (set() if depth else _BETWEEN_EPOCHS))
        self.visit(getattr(value, "__dict__", {}), depth + 1)
        for slot in _slots_of(value):
            with contextlib.suppress(AttributeError):
                self.visit(slot.__get__(value), depth + 1)

    def _visit_class(self, kind: type, depth: int, idle: Set[str] = frozenset()) -> None:
        """Visit the methods of a class; defer the idle ones until it is known if they run."""
        if _augments_at_random(kind):
            self.named |= _ALL
        for name, member in _members(kind):
            if name in idle and isinstance(member, types.FunctionType):
                self._idle.append((name, member, depth + 1))
            else:
                self.visit(member, depth + 1)

    def _visit_mxnet(self, value: Any, depth: int) -> None:
        """Visit a block, a data set, an array, or a C function of MXNet."""
        kind = value if isinstance(value, type) else type(value)
        if _sounds_random(getattr(value, "__name__", kind.__name__)) or _augments_at_random(kind):
            self.named |= _ALL
        if not _is_part(value):
            return
        for member in [*vars(value).values(), *getattr(value, "_children", {}).values()]:
            # Names, parameters and the like contain no code.
            if _library(member) != "mxnet" or _is_part(member):
                self.visit(member, depth + 1)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Functions and other attributes of a user's class and its bases."""
    for base in kind.__mro__:
        if base is object or _library(base) in _QUIET_MODULES:
            continue
        for name, member in list(vars(base).items()):
            member = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(member, functools.cached_property):
                member = member.func
            if isinstance(member, types.FunctionType) or not name.startswith("__"):
                yield name, member


def _slots_of(value: Any) -> list[Any]:
    """Slot descriptors of an instance of a Python class."""
    bases = [vars(base) for base in type(value).__mro__ if "__slots__" in vars(base)]
    members = (member for base in bases for member in base.values())
    return [member for member in members if isinstance(member, types.MemberDescriptorType)]


def _is_part(value: Any) -> bool:
    return any(
        base.__name__ in _PARTS and _library(base) == "mxnet" for base in type(value).__mro__
    )


def _library(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0]
    owner = value if isinstance(value, (type, types.BuiltinFunctionType)) else type(value)
    return (getattr(owner, "__module__", "") or "").split(".")[0]


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


def _is_operator(function: types.FunctionType) -> bool:
    """True if the function is an operator in ``mx.nd``; these have no MXNet module name."""
    operators = vars(sys.modules.get("mxnet.ndarray", types))
    return operators.get(function.__name__) is function


def _operators_name(code: types.CodeType) -> str | None:
    """Parameter name of ``mx.nd`` in a ``hybrid_forward``; usually ``F``."""
    return (
        code.co_varnames[1] if code.co_name == "hybrid_forward" and code.co_argcount > 1 else None
    )


def _function_draws(name: str, module: str) -> bool:
    if module.startswith("mxnet.image") and name.startswith("Create"):  # Augmenters.
        return True
    plain = module.startswith(_OPERATORS) and name in ("normal", "uniform")
    return plain or _sounds_random(name) or "random" in module


def _augments_at_random(kind: type) -> bool:
    """True if an augmenter of ``mxnet.image``, or a subclass of one, draws."""
    return any(
        _sounds_random(name)
        for base in kind.__mro__
        if _library(base) == "mxnet" and base.__module__.startswith("mxnet.image")
        for method, member in vars(base).items()
        if isinstance(member, types.FunctionType) and method != "__init__"
        for name in names_in(member.__code__)
    )


def _sounds_random(name: str) -> bool:
    lowered = name.lower()
    return any(
        part in lowered
        for part in ("rand", "shuffle", "dropout", "sample_", "multinomial", "jitter")
    )
