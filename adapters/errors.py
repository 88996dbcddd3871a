"""Exceptions of this package; errors in user code keep their own type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class AdapterError(Exception):
    """Base of the errors that this package raises at run time.

    Wrong arguments raise ``TypeError`` or ``ValueError`` instead, before any work starts.
    """


class WorkerError(AdapterError):
    """Worker processes died repeatedly, so a batch could not be computed.

    Args:
        reason: Which process, its exit code or signal, and how often the batch was tried.
    """


class ClosedError(AdapterError):
    """A batch was requested from a closed sequence or loader."""


class NotPicklableError(AdapterError):
    """User code can't be sent to worker processes; batches are then computed inline."""


class FileChangedError(OSError):
    """Another file has taken the name of an opened one, or none has it any more."""


class RecordError(AdapterError):
    """A record file, a record in it, or an image file is damaged or of the wrong format.

    Args:
        file: Path of the file.
        record: The record's number in the file, from 0; None if the error is about the whole file.
        offset: Offset of the byte at which the record, or the damage, begins.
        expected: Expected content.
        found: Actual content.
    """

    def __init__(
        self, file: str, record: int | None, offset: int, expected: str, found: str
    ) -> None:
        super().__init__(file, record, offset, expected, found)
        self.file = file
        self.record = record
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        where = "" if self.record is None else f", record {self.record}"
        return (
            f"{self.file}{where}, byte {self.offset}: expected {self.expected}, found {self.found}"
        )


class ScriptError(Exception):
    """An error in the user's own code, as the cause; the message says which code."""


class ContentError(ValueError):
    """Content that can't be decoded; the caller that knows the file adds the location."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


class UnlikeError(ContentError):
    """Intact decoded content whose shape or dtype differs from the batch's."""


def note(error: BaseException, text: str) -> None:
    """Add a note to an error; Python 3.10 lacks ``error.add_note``."""
    error.__notes__ = [*getattr(error, "__notes__", ()), text]  # type: ignore[attr-defined]


@contextlib.contextmanager
def noted(text: str) -> Iterator[None]:
    """Add a note to an error that leaves this context."""
    try:
        yield
    except Exception as error:
        note(error, text)
        raise
