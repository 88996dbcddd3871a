"""The exceptions that are ours; an error in the user's own code arrives as its own type."""

from __future__ import annotations


class AdapterError(Exception):
    """Base of the errors that this package raises for what happens while it runs.

    Wrong arguments raise ``TypeError`` or ``ValueError`` instead, before any work starts.
    """


class WorkerError(AdapterError):
    """A worker process died again and again, so that a batch could not be computed.

    Args:
        reason: Which process, its exit code or signal, and how often the batch was tried.
    """


class ClosedError(AdapterError):
    """Batches were asked of a sequence or a loader that has been closed."""


class NotPicklableError(AdapterError):
    """User code can't be sent to worker processes; batches are computed inline then."""


class RecordError(AdapterError):
    """A record file, a record in it, or the file of an image is not what it must be.

    Args:
        file: Its path.
        record: The record's number in the file, from 0; None where it is about the file as a whole.
        offset: Of the byte at which the record, or what is wrong, begins.
        expected: What should be there.
        found: What is there.
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
    """What somebody's own code has raised is the cause of this; its text is whose code that was."""


class ContentError(ValueError):
    """What somebody gave to be decoded isn't what it must be; who knows the file says where.

    Args:
        expected: What should be there.
        found: What is there.
    """

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}"


class UnlikeError(ContentError):
    """What was decoded is whole, but has another shape or type than the batch it belongs to."""

    @property
    def damage(self) -> ContentError:
        """The same of what isn't whole."""
        return ContentError(self.expected, self.found)


def note(error: BaseException, text: str) -> None:
    """``error.add_note``, which Python 3.10 lacks."""
    error.__notes__ = [*getattr(error, "__notes__", ()), text]  # type: ignore[attr-defined]
