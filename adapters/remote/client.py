"""Results and errors of requests to stores, which their clients have in common.

A client handles one request per call and is thread-safe; ``fetch`` calls it from many threads. It
may limit a request to ``retry.remaining_seconds()``. It tries once; ``retry`` tries again after
transient errors, but not after these:

- ``FileNotFoundError``, ``PermissionError``: the usual meaning;
- ``Refused``: the response would be the same another time;
- ``Changed``: the name refers to another object by now;
- ``ImportError``, ``NotImplementedError``, ``ValueError``: the request is impossible.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

# Client errors that a retry may resolve: timeout, conflict, locked, too early, too many.
_PASSING = (408, 409, 423, 425, 429)
# Server errors that a retry can't resolve: not implemented, HTTP version not supported.
_LASTING = (501, 505)


class Head(NamedTuple):
    """One version of an object."""

    size: int
    """Size in bytes."""
    version: str
    """The ETag, or another value that identifies the version; "" if there is none."""
    changed_ns: int
    """Modification time in nanoseconds since 1970; 0 if unknown."""
    is_etag: bool = False
    """True if ``version`` is an ETag, which is sent with each request."""


def quoted(etag: str) -> str:
    """Quote an ETag as in responses; listings omit the quotes."""
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'


def nanoseconds(when: datetime) -> int:
    """Convert to nanoseconds since 1970, in whole microseconds."""
    return int(when.timestamp()) * 10**9 + when.microsecond * 1000


def is_final(status: int) -> bool:
    """True if retrying can't change this response."""
    return (400 <= status < 500 and status not in _PASSING) or status in _LASTING


class NoAnswer(ConnectionError):
    """Raised if a store didn't answer within the time limit."""

    concerns_all = True
    """True: all samples are affected, so no other one needs to be tried."""


class Refused(ConnectionError):
    """Raised if a store refuses a request or can't serve it, and a retry wouldn't help."""


class Changed(Exception):
    """Raised if the object is no longer the version that was opened, with what was found."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def without_ranges(name: str) -> ValueError:
    """Build the error for a server that serves only whole objects."""
    return ValueError(
        f"{name}: the server gives no ranges of it, only the whole; copy it to a disk first"
    )
