"""What a store says of an object."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

# That another try may mend, though they say that the request was at fault: too late, at the same
# time as another, locked, too early, too many.
_PASSING = (408, 409, 423, 425, 429)
# Not implemented, and a version of HTTP that it doesn't know.
_LASTING = (501, 505)


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


def nanoseconds(when: datetime) -> int:
    """Since 1970, as whole microseconds."""
    return int(when.timestamp()) * 10**9 + when.microsecond * 1000


def is_final(status: int) -> bool:
    """Whether no other try mends what a server answered."""
    return (400 <= status < 500 and status not in _PASSING) or status in _LASTING


class NoAnswer(ConnectionError):
    """A store didn't answer for as long as it may take."""

    concerns_all = True
    """So that no other sample needs to be tried."""


class Refused(ConnectionError):
    """A store answered that it won't or can't, as it would another time."""


class Changed(Exception):
    """The object is another one than that which was opened.

    Args:
        found: What it is now, for people.
    """

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def without_ranges(name: str) -> ValueError:
    """That a server gives objects whole only.

    Args:
        name: Of an object, for people.
    """
    return ValueError(
        f"{name}: the server gives no ranges of it, only the whole; copy it to a disk first"
    )
