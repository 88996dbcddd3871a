"""Retries after transient errors, with growing waits, up to a time limit.

Transient are errors of the network and of disks, to which clients also convert those of their
libraries. All others are raised at once. Waits double from 0.1 to 5 seconds. Each is shortened at
random, so that many callers don't retry at the same time.
"""

from __future__ import annotations

import errno
import http.client
import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from adapters.remote.client import NoAnswer, Refused
from adapters.remote.urls import without_secrets

log = logging.getLogger("adapters")

_TRANSIENT = (OSError, EOFError, http.client.HTTPException)
# Subclasses of these that last.
_PERMANENT = (IsADirectoryError, NotADirectoryError)
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 5.0
LIMIT_VARIABLE = "ADAPTERS_REMOTE_SECONDS"
LIMIT_SECONDS = 60.0
# Separate, so that the user's random state isn't touched.
_chance = random.Random()  # noqa: S311 - no secret hangs on it.

_Result = TypeVar("_Result")


# Deadline of the request that this thread makes, as ``ends``.
_request = threading.local()


def limit_seconds() -> float:
    """Time limit for a request with its retries: ``ADAPTERS_REMOTE_SECONDS``, or 60.

    Raises:
        ValueError: The variable is not a valid number of seconds.
    """
    given = os.environ.get(LIMIT_VARIABLE, "") or str(LIMIT_SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(
            f"the environment variable {LIMIT_VARIABLE} must be a number of seconds, >= 0, as 60, "
            f"got {given!r}"
        )
    return seconds


def remaining_seconds() -> float:
    """Time that remains for this thread's request in seconds; at least 0.05."""
    ends: float | None = getattr(_request, "ends", None)
    return limit_seconds() if ends is None else max(0.05, ends - time.monotonic())


def persistently(request: Callable[[], _Result], name: str) -> _Result:
    """Make a request, and retry after transient errors.

    Args:
        request: Tries once.
        name: Name of the object in messages.

    Raises:
        NoAnswer: All tries within the time limit failed.
        FileNotFoundError, PermissionError, Refused, ...: At once, as are all errors that aren't
            transient.
    """
    started, wait, tries = time.monotonic(), _FIRST_WAIT_SECONDS, 0
    while True:
        tries += 1
        _request.ends = started + limit_seconds()
        try:
            return request()
        except FileNotFoundError:
            what = "No such object"
            if "." not in name.rpartition("/")[2]:  # Perhaps a folder's.
                what += "; the URL of a folder ends with a slash"
            raise FileNotFoundError(errno.ENOENT, what, name) from None
        except PermissionError as error:
            what = f"{without_secrets(str(error))}, or the credentials are missing"
            raise PermissionError(errno.EACCES, what, name) from None
        except Refused as error:
            raise Refused(f"{name}: {without_secrets(str(error))[:300]}") from None
        except _PERMANENT:
            raise
        except _TRANSIENT as error:
            spent, limit = time.monotonic() - started, limit_seconds()
            why = f"{type(error).__name__}: {without_secrets(str(error))[:300]}"
            if spent + wait > limit:
                raise NoAnswer(
                    f"{name}: no answer after {tries} tries in {spent:.1f} s (limit {limit:g} s, "
                    f"which {LIMIT_VARIABLE} sets); the last: {why}"
                ) from None
            log.debug("%s: try %d failed, %s", name, tries, why)
        finally:
            _request.ends = None
        time.sleep(wait * _chance.uniform(0.5, 1))
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
