"""Choice of the client for a URL, globs of URLs, and local files.

To add a client, write a class like ``Obstore``, and add it to ``Client`` and ``_made``.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

from adapters.remote import fsspec_client, obstore_client
from adapters.remote.client import Changed, Head, Refused
from adapters.remote.retry import persistently
from adapters.remote.urls import (
    ListedUrl,
    clean,
    folder_of,
    is_url,
    matching,
    split,
    without_secrets,
)

_EXTRA = "pip install 'loader-adapters[remote]'"

_Result = TypeVar("_Result")
Client = obstore_client.Obstore | fsspec_client.FileSystem
"""One store: a bucket, a host, a file system."""
_clients: dict[tuple[str, bool], Client] = {}
"""Clients by the URL's root, and True if obstore may request such objects."""
_opening = threading.Lock()


def client_of(url: str) -> tuple[Client, str]:
    """Return the client for a URL, and the object's key there.

    An ``ImportError`` names the command that installs one; a URL without a bucket or host is a
    ``ValueError``.
    """
    root, key = split(url)
    known = root, obstore_client.asks_for(root, key)
    with _opening:
        client = _clients.get(known)
        if client is None:
            try:
                client = _clients[known] = _made(*known, url)
            except (ImportError, OSError, RuntimeError, ValueError):
                raise
            except Exception as error:  # Of a library: the environment's settings are wrong.
                what = without_secrets(str(error).partition("\n")[0])
                raise ValueError(f"{clean(url)}: the store can't be opened: {what}") from error
    return client, key


def request(url: str, do: Callable[[Client, str], _Result]) -> _Result:
    """Call ``do`` with the client for a URL and the object's key; retry after transient errors."""
    client, key = client_of(url)
    return persistently(lambda: do(client, key), clean(url))


def reader_of(path: str) -> tuple[Client | LocalFiles, str]:
    """Return what reads a URL or a local path, and the object's key there; see ``client_of``."""
    return client_of(path) if is_url(path) else (LocalFiles(), os.path.abspath(path))


def _made(root: str, is_plain: bool, url: str) -> Client:
    scheme, name = root.partition("://")[0], clean(url)
    is_known = scheme.lower() in obstore_client.SCHEMES
    if is_known and root.endswith("://"):
        raise ValueError(
            f"a URL of this kind must name a bucket or a host, as {root}name/train.rec, "
            f"got {name!r}"
        )
    is_forked = obstore_client.is_forked()
    if is_known and is_plain and not is_forked and find_spec("obstore"):
        return obstore_client.Obstore(root)
    if not is_known and "::" in url:
        raise ValueError(
            f"{name}: a URL must name one store, got several joined by ::; unpack the archive "
            "first, or copy it to a disk"
        )
    missing = f"{scheme}:// needs obstore, or fsspec and aiohttp: {_EXTRA}"
    if not is_known:
        missing = (
            f"nothing that is installed reads {scheme}://, nor would obstore; where fsspec has a "
            "file system in a package for it: pip install fsspec, and that package"
        )
    if fsspec_client.takes(url):
        try:
            return fsspec_client.FileSystem(root)
        except ImportError as error:  # fsspec lacks a dependency for these URLs.
            missing = missing if is_known else str(error)
    if is_known and is_forked:
        raise RuntimeError(
            f"{name}: obstore was used before this process was forked, and its threads are "
            'not here; start worker processes with "spawn" or "forkserver", open the file in the '
            f"child alone, or install the fsspec file system for {scheme}"
        )
    raise ImportError(f"{name}: {missing}")


def forget() -> None:
    """Drop all clients, for example after credentials in the environment changed."""
    with _opening:
        _clients.clear()


class LocalFiles:
    """Reader of local files, by path: slow disks before a cache on a fast one. Thread-safe."""

    def head(self, key: str) -> Head:
        """Return the size and version of a file; anything but a regular file is an error."""
        return head_of(os.stat(key), key)

    def get(self, key: str, begin: int, end: int, head: Head | None) -> bytes:
        """Return these bytes of that version."""
        descriptor = os.open(key, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = head_of(os.fstat(descriptor), key)
            # chmod and hard links change the version, but not the bytes.
            if head is not None and found[::2] != head[::2]:
                raise Changed(f"{found.size} bytes, changed since")
            pieces = []
            while begin < end and (piece := os.pread(descriptor, end - begin, begin)):
                pieces.append(piece)
                begin += len(piece)
        finally:
            os.close(descriptor)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def head_of(status: os.stat_result, name: str) -> Head:
    """Return the size and version of a local file; anything but a regular file is an error."""
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(f"{name} is not a file")
    # `cp -p` and `rsync -t` of another file may leave size and modification time as they were.
    version = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return Head(status.st_size, version, status.st_mtime_ns)


def found_by(pattern: str) -> list[str]:
    """List the URLs that match a glob, sorted, with size and version if the store reports them.

    An object with exactly this name comes first, as a local file does.

    Raises:
        ConnectionError: The store doesn't answer.
        ValueError: The store can't list objects; most web servers can't.
    """
    root, key = split(pattern)
    lists, heads = True, dict[str, Head | None]()
    try:
        heads = request(pattern, lambda client, _: dict(client.list(folder_of(key))))
    except FileNotFoundError:
        pass
    except NotImplementedError:
        lists = False
    if not heads and "*" not in key:  # A web server may have a file with brackets in its name.
        with contextlib.suppress(FileNotFoundError, Refused, ValueError):
            heads[key] = request(pattern, lambda client, key: client.head(key))
    if not (heads or lists):
        raise ValueError(
            f"{clean(pattern)}: this store doesn't list its objects; give a list of URLs"
        )
    found: list[str] = []
    for each in [key] if key in heads else sorted(matching(key, iter(heads))):
        url = ListedUrl(f"{root}/{each}")
        url.head = heads[each]
        found.append(url)
    return found


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_in_child)
