"""What a store says of an object."""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """One version of an object."""

    size: int
    """In bytes."""
    version: str
    """The ETag, or what else tells versions apart; "" where nothing does."""
    changed_ns: int
    """When it was written, in nanoseconds since 1970; 0 where nobody knows."""
    is_etag: bool = False
    """Whether ``version`` is an ETag, which is sent with each request."""


def quoted(etag: str) -> str:
    """An ETag as answers have it, which listings give without its quotes."""
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'


class NoAnswer(ConnectionError):
    """A store didn't answer for as long as it may take."""

    concerns_all = True
    """So that no other sample needs to be tried."""


class Changed(Exception):
    """The object is another one than that which was opened.

    Args:
        found: What it is now, for people.
    """

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found
