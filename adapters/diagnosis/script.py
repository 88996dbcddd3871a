"""``adapters doctor script.py``: somebody's training script, run up to its first training loop.

What gives the batches there is examined in the middle of the loop, whose body is the step: it is
given the loader's batches for a while, and then one batch again and again. A framework's own
``fit`` is called for both. Nothing of the script is changed, and it ends there.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adapters.diagnosis.examination import ROUNDS, Examination, Progress, examine
from adapters.diagnosis.faces import Observer, Trainer, face_towards
from adapters.diagnosis.loaders import rest_of, settled_of
from adapters.diagnosis.registry import FACES
from adapters.diagnosis.report import Diagnosis
from adapters.diagnosis.timing import LEAST_OF_A_ROUND, Clock, Timing, endless
from adapters.diagnosis.trainers import SKIPPED, SKIPPED_AGAIN
from adapters.errors import ScriptError

_SKIPPED_OF_THE_SAME = 3
# Of a file, to see whether it is a text: the first header of records has zeros.
_BEGIN_BYTES = 4096


@contextlib.contextmanager
def code_of(name: str) -> Iterator[None]:
    """Within, whatever is raised comes from somebody's own code.

    Args:
        name: Of the script, or of what was loaded from it.

    Raises:
        ScriptError: From any exception.
    """
    try:
        yield
    except Exception as error:
        raise ScriptError(name) from error


class _Examined(BaseException):
    """Ends the script: what there was to be found has been found, or can't be."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self.found = found


def diagnose_script(
    path: str,
    arguments: Sequence[str],
    *,
    skip: int = 0,
    t: float | None,
    seconds: float,
    progress: Progress = lambda done, total: None,
) -> Diagnosis | None:
    """Run a script up to its first training loop, and examine that.

    Args:
        path: Of the script.
        arguments: Of the script.
        skip: Loops, or calls of ``fit``, that are left alone first.
        t: As in ``diagnose``.
        seconds: As in ``diagnose``.
        progress: Called with the number of rounds that are measured, and of all.

    Returns:
        None where the script came to its end without one.

    Raises:
        OSError: There is no such script.
        TypeError: The script trains on something that can't be examined.
        ScriptError: From what the script raises.
        ValueError: It is no Python program.
    """
    found: Diagnosis | None = _run(path, arguments, _Observer(skip, t, seconds, progress))
    return found


def with_loader_of(
    path: str, arguments: Sequence[str], act: Callable[[Any], Any], *, skip: int = 0
) -> Any:
    """Run a script up to its first training loop, and do something with what that is over.

    Args:
        path: Of the script.
        arguments: Of the script.
        act: Is given the loader, while the script has it open; for a call of ``fit``, what that
            was given.
        skip: Loops, or calls of ``fit``, that are left alone first.

    Returns:
        What ``act`` does; None where the script came to its end without a loop.

    Raises:
        OSError: There is no such script.
        ScriptError: From what the script raises.
        ValueError: It is no Python program.
        Exception: What ``act`` raises.
    """
    return _run(path, arguments, _Actor(skip, act))


def _run(path: str, arguments: Sequence[str], observer: Observer) -> Any:
    """What the observer has found when it ended the script; None if it didn't."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"script must be the path of a file, got {path!r}: there is none")
    if not _is_program(path):
        raise ValueError(
            f"script must be a Python program, got {path!r}; records and pictures are measured by "
            "adapters tune"
        )
    notice = _Notice(observer)
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.meta_path.insert(0, notice)
    try:
        with notice, code_of(path):
            runpy.run_path(path, run_name="__main__")
    except _Examined as end:
        if isinstance(end.found, Exception):
            raise end.found from None
        return end.found
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    finally:
        sys.meta_path.remove(notice)
        sys.argv, sys.path[:] = before
    return None


def _is_program(path: str) -> bool:
    """Whether Python can run it: a text, a compiled one, a folder or a zip with a ``__main__``."""
    if pkgutil.get_importer(path) is not None:
        return importlib.machinery.PathFinder.find_spec("__main__", [path]) is not None
    with open(path, "rb") as file:
        begin = file.read(_BEGIN_BYTES)
    return b"\0" not in begin or begin.startswith(importlib.util.MAGIC_NUMBER)


class _Observer:
    """What is done with the loops of a script; a ``faces.Observer``.

    Args:
        skip: As in ``diagnose_script``.
        t: Likewise.
        seconds: Likewise.
        progress: Likewise.
    """

    def __init__(
        self,
        skip: int,
        t: float | None,
        seconds: float,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self._skip = skip
        self._progress = progress
        self._t = t
        self._seconds = seconds

    def fit(self, loader: Callable[[], Any], trainer: Callable[[], Trainer]) -> None:
        """A framework's own ``fit`` was called."""
        if self._skip:
            self._skip -= 1
            return
        try:
            examined = loader(), trainer()
        except (TypeError, ValueError) as error:
            raise _Examined(error) from None
        raise _Examined(examine(*examined, self._t, self._seconds, self._progress))

    def loop(self, loader: Any, plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """A loop over a loader has begun: what it reads from."""
        if self._skip:
            self._skip -= 1
            yield from plain()
            return
        trainer, seconds = _Loop(), self._seconds / ROUNDS
        batches, settled, skipped = endless(_Passes(plain)), settled_of(loader), SKIPPED
        examination: Examination | None = None
        try:
            while examination is None or examination.goes_on:
                whole = Clock(batches, seconds, skipped, settled, LEAST_OF_A_ROUND)
                yield from whole
                found = whole.stop()
                rest_of(loader, found.batch_seconds)
                again = itertools.repeat(whole.latest)
                same = Clock(again, seconds, _SKIPPED_OF_THE_SAME, least=LEAST_OF_A_ROUND)
                yield from same
                trainer.found(found, same.stop())
                self._skip, skipped = sys.maxsize, SKIPPED_AGAIN  # It has loops of its own.
                if examination is None:
                    examination = Examination(
                        loader, trainer, self._t, self._seconds, self._progress
                    )
                examination.round()
                self._skip = 0
            raise _Examined(examination.diagnosis)
        finally:
            if examination is not None:
                examination.close()


class _Actor:
    """Does something with the first loader; a ``faces.Observer``.

    Args:
        skip: Loops that are left alone.
        act: As in ``with_loader_of``.
    """

    def __init__(self, skip: int, act: Callable[[Any], Any]) -> None:
        self._skip = skip
        self._act = act

    def fit(self, loader: Callable[[], Any], trainer: Callable[[], Trainer]) -> None:
        """A framework's own ``fit`` was called."""
        if self._skip:
            self._skip -= 1
        else:
            self._do(loader)

    def loop(self, loader: Any, plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """A loop over a loader has begun."""
        if not self._skip:
            self._do(lambda: loader)
        self._skip -= 1
        return plain()

    def _do(self, loader: Callable[[], Any]) -> None:
        self._skip = sys.maxsize  # It may have loops of its own.
        try:
            done = self._act(loader())
        except Exception as error:
            done = error
        raise _Examined(done)


class _Passes:
    """Gives a pass each time that it is iterated over."""

    def __init__(self, plain: Callable[[], Iterator[Any]]) -> None:
        self._plain = plain

    def __iter__(self) -> Iterator[Any]:
        return self._plain()


class _Loop:
    """A loop whose rounds are timed where it is, as a trainer."""

    def __init__(self) -> None:
        self._latest: tuple[Timing, Timing] | None = None

    def found(self, whole: Timing, same: Timing) -> None:
        """A round was timed: with the loader's batches, and with one batch."""
        self._latest = whole, same

    def whole(self, loader: Any, seconds: float) -> Timing:
        """What was found."""
        assert self._latest is not None
        return self._latest[0]

    def same(self, batch: Any, seconds: float) -> Timing:
        """What was found."""
        assert self._latest is not None
        return self._latest[1]

    def copy_seconds(self, batch: Any, seconds: float) -> float | None:
        """Part of the loop's body."""
        return None


class _Notice(importlib.abc.MetaPathFinder):
    """Within it, stands in front of the loops of every framework, once that is imported."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._wanted = set(FACES)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> None:
        for name in self._wanted & set(sys.modules):
            self._wanted.remove(name)
            self._intercept(name)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec that the others find, with a call after the import."""
        if name not in self._wanted:
            return None
        self._wanted.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            self._intercept(name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _intercept(self, name: str) -> None:
        self._stack.enter_context(face_towards(name).intercepted(self._observer))
