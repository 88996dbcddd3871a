"""Interface of the clients for stores, and the choice of a client for a URL.

A client handles one request per call and is thread-safe; ``fetching`` calls it from many threads.
It tries once. ``retrying`` retries after all errors but these:

- ``FileNotFoundError``, ``PermissionError``: the usual meaning;
- ``Refused``: the response would be the same another time;
- ``Changed``: the name refers to another object by now;
- ``ImportError``, ``NotImplementedError``, ``ValueError``: the request is impossible.

To add a client, write a class in a module of its own and add a line to ``_made``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Protocol

from adapters.remote import filesystems, localfiles, obstores
from adapters.remote.answers import Changed as Changed
from adapters.remote.answers import Head as Head
from adapters.remote.urls import clean, is_url, split

_EXTRA = "pip install 'loader-adapters[remote]'"


class Client(Protocol):
    """One store: a bucket, a host, a file system."""

    def head(self, key: str) -> Head:
        """Return the size and version of an object."""
        ...

    def get(self, key: str, begin: int, end: int, head: Head | None) -> bytes | memoryview:
        """Return the bytes from ``begin`` to before ``end`` of the version in ``head``.

        Raises:
            Changed: The object has another version by now.
        """
        ...

    def get_all(self, key: str) -> tuple[bytes, Head]:
        """Return a whole small object."""
        ...

    def list(self, folder: str) -> Iterator[tuple[str, Head | None]]:
        """Yield all keys below a folder ("" for the root), with None for an unknown version."""
        ...

    def put(self, key: str, data: bytes | str) -> None:
        """Write an object, complete or not at all, from bytes or from the file at a path."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object."""
        ...


_clients: dict[str, Client] = {}
_opening = threading.Lock()


def client_of(url: str) -> tuple[Client, str]:
    """Return the client for a URL or path, and the object's key there.

    Raises:
        ImportError: No suitable client is installed; the message names the command.
        ValueError: The URL names no bucket or host.
    """
    if not is_url(url):
        return localfiles.LocalFiles(), os.path.abspath(url)
    root, key = split(url)
    known = root if obstores.asks_for(root, key) else f"{root}?"
    with _opening:
        client = _clients.get(known)
        if client is None:
            client = _clients[known] = _made(root, url)
    return client, key


def _made(root: str, url: str) -> Client:
    if root.lower() in {f"{each}://" for each in obstores.SCHEMES}:
        raise ValueError(
            f"a URL of this kind must name a bucket or a host, as {root}name/train.rec, "
            f"got {clean(url)!r}"
        )
    if obstores.takes(url):
        return obstores.Obstore(root)
    if filesystems.takes(url):
        try:
            return filesystems.FileSystem(root)
        except ImportError as error:  # fsspec lacks a dependency for these URLs.
            if not obstores.is_forked():
                known = root.partition("://")[0].lower() in obstores.SCHEMES
                remedy = f": {_EXTRA} brings what it takes" if known else ""
                raise ImportError(f"{clean(url)}: {error}{remedy}") from error
    scheme = url.partition("://")[0]
    if obstores.is_forked() and scheme.lower() in obstores.SCHEMES:
        raise RuntimeError(
            f"{clean(url)}: obstore was used before this process was forked, and its threads are "
            'not here; start worker processes with "spawn" or "forkserver", open the file in the '
            f"child alone, or install the fsspec file system for {scheme}"
        )
    if scheme.lower() not in obstores.SCHEMES:
        raise ImportError(
            f"{clean(url)}: nothing that is installed reads {scheme}://, nor would obstore; where "
            "fsspec has a file system of that name: pip install fsspec, and what it names for "
            f"{scheme}"
        )
    if obstores.asks_for(root, split(url)[1]):
        raise ImportError(
            f"{clean(url)}: {scheme}:// needs obstore: {_EXTRA}; or "
            f"the fsspec file system of that name: pip install fsspec, and what it names for "
            f"{scheme}"
        )
    raise ImportError(
        f"{clean(url)}: obstore would ask for another path, or without the query; the fsspec file "
        f"system for web servers asks for this one: {_EXTRA}"
    )


def forget() -> None:
    """Drop all clients, for example after credentials in the environment changed."""
    with _opening:
        _clients.clear()


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
