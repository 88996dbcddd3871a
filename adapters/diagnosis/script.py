"""User code by its place: scripts, run up to their first training loop; objects by name.

The loader is examined within the loop, whose body is the step: the loop is given the loader's
batches for a while, and then one batch again and again. For a framework's own ``fit``, ``fit`` is
called with both. The script isn't modified, and ends after the examination.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.util
import itertools
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from adapters.diagnosis.examination import ROUNDS, Examination, Progress
from adapters.diagnosis.front_end import (
    FRONT_ENDS,
    Examined,
    Observer,
    Trainer,
    engine_of,
    front_end_of,
    settled_of,
)
from adapters.diagnosis.report import Diagnosis
from adapters.diagnosis.timing import (
    SKIPPED,
    SKIPPED_AGAIN,
    SKIPPED_OF_THE_SAME,
    Clock,
    Timing,
    endless,
    rest,
)
from adapters.errors import ScriptError


@contextlib.contextmanager
def code_of(name: str) -> Iterator[None]:
    """Turn any exception in the ``with`` block, which runs user code, into a ``ScriptError``."""
    try:
        yield
    except Exception as error:
        raise ScriptError(name) from error


def diagnose_script(
    path: str,
    arguments: Sequence[str],
    *,
    skip: int = 0,
    t: float | None,
    seconds: float,
    progress: Progress = lambda done, total: None,
) -> Diagnosis | None:
    """Run a script up to its first training loop and examine it; ``skip`` leaves out so many.

    ``path`` may also be the name of a module, which is run as by ``python -m``. None if the script
    ended without a training loop. Errors are ``OSError`` if there is no such script, ``TypeError``
    if what it trains on can't be examined, ``ValueError`` if it exits with a status before that,
    and ``ScriptError`` for its own exceptions.
    """

    def in_fit(loader: Callable[[], Any], trainer: Callable[[], Trainer], _: Any) -> Any:
        try:
            examined = loader(), trainer()
        except (TypeError, ValueError) as error:
            return error
        return Examination(*examined, t, seconds, progress).run()

    def in_loop(loader: Any, plain: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        batches, settled = endless(loader, lambda _: plain()), settled_of(loader)
        round_seconds, skipped = seconds / ROUNDS, SKIPPED
        found = same = Timing(0, 0.0)
        # The loop's body is the step, and copies its batch; it runs between the rounds.
        trainer: Any = SimpleNamespace(
            whole=lambda *_: found, same=lambda *_: same, copy_seconds=lambda *_: None
        )
        examination: Examination | None = None
        try:
            while examination is None or examination.goes_on:
                whole = Clock(round_seconds, skipped, settled)
                yield from whole.read(batches)
                found, skipped = whole.stop(), SKIPPED_AGAIN
                rest(engine_of(loader), found.batch_seconds)
                repeated = Clock(round_seconds, SKIPPED_OF_THE_SAME)
                yield from repeated.read(itertools.repeat(whole.latest))
                same = repeated.stop()
                with observer.ignoring():
                    if examination is None:
                        examination = Examination(loader, trainer, t, seconds, progress)
                    examination.round()
            raise Examined(examination.diagnosis)
        finally:
            if examination is not None:
                examination.close()

    observer = Observer(skip, in_fit, in_loop)
    diagnosis: Diagnosis | None = _run(path, arguments, observer)
    return diagnosis


def with_loader_of(
    path: str, arguments: Sequence[str], act: Callable[[Any], Any], *, skip: int = 0
) -> Any:
    """Run a script up to its first training loop, and return ``act`` of what it trains on.

    None and errors are as for ``diagnose_script``; errors of ``act`` are raised, too.
    """

    def in_fit(_: Any, __: Any, data: Any) -> Any:
        try:
            return act(data)
        except Exception as error:
            return error

    def in_loop(loader: Any, _: Any) -> Iterator[Any]:
        with observer.ignoring():
            raise Examined(in_fit(None, None, loader))

    observer = Observer(skip, in_fit, in_loop)
    return _run(path, arguments, observer)


def _run(path: str, arguments: Sequence[str], observer: Observer) -> Any:
    """Run a script and return the observer's result; None if the observer didn't end it."""
    is_file = os.path.exists(path)
    intercepted = contextlib.ExitStack()

    def intercept(name: str) -> None:
        intercepted.enter_context(front_end_of(name).intercepted(observer))

    notice = _Notice(FRONT_ENDS.keys() - sys.modules.keys(), intercept)
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)) if is_file else os.getcwd())
    sys.meta_path.insert(0, notice)
    try:
        # Of a module, only the outermost package is looked up.
        package = path.partition(".")[0]
        may_be_module = package.isidentifier() and not path.endswith(".py")
        if not is_file and not (may_be_module and importlib.util.find_spec(package)):
            raise FileNotFoundError(
                "script must be the path of a file, or the name of a module as for python -m, got "
                f"{path!r}: there is none"
            )
        with intercepted:
            for name in FRONT_ENDS.keys() & sys.modules.keys():
                intercept(name)
            with code_of(path):
                if is_file:
                    runpy.run_path(path, run_name="__main__")
                else:
                    runpy.run_module(path, run_name="__main__", alter_sys=True)
    except Examined as end:
        (found,) = end.args
        if isinstance(found, Exception):
            raise found from None
        return found
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        if end.code:
            status = end.code if isinstance(end.code, int) else 1
            raise ValueError(
                f"{path} must have a training loop, and exited with status {status} before its "
                f"first: its own arguments follow after --, got {list(arguments) or 'none'}"
            ) from None
    finally:
        sys.meta_path.remove(notice)
        sys.argv, sys.path[:] = before
    return None


class _Notice(importlib.abc.MetaPathFinder):
    """Calls a function after the first import of each of some packages."""

    def __init__(self, wanted: set[str], imported: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._imported = imported

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The spec found by the other finders, extended with a call after the import."""
        if name not in self._wanted:
            return None
        self._wanted.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            self._imported(name)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# --- objects by name ---


def is_path(name: str) -> bool:
    """True if a name is a path or URL rather than user code, or an object in it."""
    _, colon, attribute = name.rpartition(":")
    if name.endswith(".py"):
        return False
    return not colon or not attribute.isidentifier() or os.path.exists(name)


def object_named(name: str) -> Any:
    """Find the object of a ``FILE.py:NAME`` or ``MODULE:NAME``; call a function or a class.

    The code runs as a program without arguments; its ``SystemExit`` is a ``ScriptError``.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon:
        raise ValueError(f"{name}:NAME must be given, NAME being defined in the file, got {name!r}")
    arguments, sys.argv = sys.argv, [place]
    try:
        names = _names_in(place)
        if attribute not in names:
            raise ValueError(
                f"{place} must define {attribute} when it is imported, and doesn't; what is below "
                'if __name__ == "__main__": isn\'t defined then'
            )
        found = names[attribute]
        if isinstance(found, type) or (callable(found) and not hasattr(found, "__len__")):
            with code_of(name):
                return found()
        return found
    except SystemExit as error:
        raise ScriptError(name) from error
    finally:
        sys.argv = arguments


def _names_in(place: str) -> dict[str, Any]:
    """Run a file or import a module, and return the names that it defines."""
    if not place or (place.startswith(".") and not place.endswith(".py")):
        raise ValueError(
            f"FILE.py:NAME or MODULE:NAME must name a file or a module, got {place!r} before the "
            "colon"
        )
    if place.endswith(".py"):
        if not os.path.exists(place):
            raise FileNotFoundError(
                f"FILE.py:NAME must name a file before its colon, got {place!r}: there is none"
            )
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        with code_of(place):  # As a module, so that its functions can be sent to processes.
            return runpy.run_path(place, run_name="adapters_target")
    sys.path.insert(0, os.getcwd())
    try:
        return vars(importlib.import_module(place))
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{place}.".startswith(f"{missing}."):
            raise
        raise ScriptError(place) from error
