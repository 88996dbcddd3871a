"""An exception crosses from a worker as what it was."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import sys
import threading
from typing import Any

import pytest

from adapters.failure import Failure


class Keyword(Exception):
    """Pickle can't make one of these."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(f"{number}: {why}")
        self.why = why


class Twice(ValueError):
    """Its constructor would prefix the message once more."""

    def __init__(self, text: str) -> None:
        super().__init__(f"twice: {text}")


class OwnText(Exception):
    def __init__(self, where: str) -> None:
        self.where = where

    def __str__(self) -> str:
        return f"in {self.where}"


class Holding(Exception):
    """Holds something that doesn't pickle."""

    def __init__(self) -> None:
        super().__init__("holding")
        self.lock = threading.Lock()


class OwnOS(OSError):
    __slots__ = ("why",)

    def __init__(self, path: str) -> None:
        super().__init__(5, "bad block", path)
        self.why = "slot"


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise ZeroDivisionError

    __str__ = __repr__


class OwnNew(Exception):
    def __new__(cls, *, why: int) -> OwnNew:
        return super().__new__(cls)

    def __init__(self, *, why: int) -> None:
        super().__init__("unmakeable")
        self.why = why


def crossed(error: BaseException) -> BaseException:
    """The exception as the trainer gets it."""
    try:
        raise error
    except BaseException as raised:
        return pickle.loads(pickle.dumps(Failure.of(raised))).restore()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1),
        KeyError("key"),
        StopIteration("value"),
        SystemExit(3),
        KeyboardInterrupt(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        json.JSONDecodeError("bad", "{", 1),
        Keyword(3, why="three"),
        Twice("a"),
        OwnText("here"),
        OwnNew(why=1),
        Holding(),
        FileNotFoundError(2, "No such file", "/a/path"),
        OSError(5, "Input/output error", "a", None, "b"),
        OwnOS("/a/path"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exception_keeps_type_text_and_attributes(error):
    restored = crossed(error)
    assert type(restored) is type(error)
    assert (str(restored), restored.args) == (str(error), error.args)
    for name in ("why", "where", "code", "object", "errno", "filename", "filename2"):
        assert getattr(restored, name, None) == getattr(error, name, None)


def test_arguments_that_cannot_be_sent_become_texts():
    restored = crossed(Unprintable("a", lock := threading.Lock(), Unprintable(lock)))
    assert (type(restored), restored.args) == (Unprintable, ("a", repr(lock), "<Unprintable>"))


def test_notes_end_with_the_workers_traceback():
    error = ValueError("text")
    error.__cause__ = LookupError("the cause")
    error.add_note("in sample 3")
    first, last = crossed(error).__notes__
    assert first == "in sample 3"
    assert f"Traceback in worker process {os.getpid()}:" in last
    assert "raise error\nValueError: text" in last
    assert "LookupError: the cause" in last


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups since 3.11")
def test_exception_that_is_pickled_as_it_is():
    """A group doesn't accept these arguments; so it is with classes of libraries in C."""

    class Group(builtins.ExceptionGroup):
        def __reduce__(self) -> Any:
            return type(self), (self.message, self.exceptions)

    error = Group("several", [ValueError("x")])
    error.args = ()
    assert (str(crossed(error)), crossed(error).exceptions[0].args) == (str(error), ("x",))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups since 3.11")
def test_exception_that_cannot_be_rebuilt():
    error = type("Group", (builtins.ExceptionGroup,), {})("several", [Holding()])
    error.args = ()
    restored = crossed(error)
    assert type(restored) is RuntimeError
    assert str(restored).startswith("Group: several ")
    assert "Traceback in worker process" in restored.__notes__[-1]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups since 3.11")
def test_exception_group_keeps_its_members():
    group = builtins.ExceptionGroup
    error = group("several", [Twice("y"), group("in", [ValueError("x"), Holding()])])
    error.exceptions[0].add_note("in sample 3")
    restored = crossed(error)
    assert (type(restored), restored.message) == (group, "several")
    first, second = restored.exceptions
    assert (type(first), first.__notes__) == (Twice, ["in sample 3"])
    assert list(map(str, second.exceptions)) == ["x", "holding"]
    assert len(restored.__notes__) == 1
