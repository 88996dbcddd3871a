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


def note(error: BaseException, text: str) -> None:
    """``error.add_note``, which Python 3.10 lacks."""
    error.__notes__ = [*getattr(error, "__notes__", ()), text]  # type: ignore[attr-defined]
