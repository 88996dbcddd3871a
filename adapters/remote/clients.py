"""Choice of the client for a URL, and what all clients share: local files, globs.

To add a client, write a class in a module of its own and add a line to ``_made``.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
import uuid
from collections.abc import Iterator

from adapters.remote import fsspec_client, obstore_client
from adapters.remote.client import Changed, Client, Head
from adapters.remote.retry import persistently
from adapters.remote.urls import ListedUrl, clean, folder_of, is_url, matching, split

_EXTRA = "pip install 'loader-adapters[remote]'"

_clients: dict[tuple[str, bool], Client] = {}
"""Clients by the URL's root, and True if obstore may request such objects."""
_opening = threading.Lock()


def client_of(url: str) -> tuple[Client, str]:
    """Return the client for a URL or path, and the object's key there.

    Raises:
        ImportError: No suitable client is installed; the message names the command.
        ValueError: The URL names no bucket or host.
    """
    if not is_url(url):
        return LocalFiles(), os.path.abspath(url)
    root, key = split(url)
    known = root, obstore_client.asks_for(root, key)
    with _opening:
        client = _clients.get(known)
        if client is None:
            client = _clients[known] = _made(root, url)
    return client, key


def _made(root: str, url: str) -> Client:
    if root.lower() in {f"{each}://" for each in obstore_client.SCHEMES}:
        raise ValueError(
            f"a URL of this kind must name a bucket or a host, as {root}name/train.rec, "
            f"got {clean(url)!r}"
        )
    if obstore_client.takes(url):
        return obstore_client.Obstore(root)
    if fsspec_client.takes(url):
        try:
            return fsspec_client.FileSystem(root)
        except ImportError as error:  # fsspec lacks a dependency for these URLs.
            if not obstore_client.is_forked():
                known = root.partition("://")[0].lower() in obstore_client.SCHEMES
                remedy = f": {_EXTRA} brings what it takes" if known else ""
                raise ImportError(f"{clean(url)}: {error}{remedy}") from error
    scheme = url.partition("://")[0]
    if obstore_client.is_forked() and scheme.lower() in obstore_client.SCHEMES:
        raise RuntimeError(
            f"{clean(url)}: obstore was used before this process was forked, and its threads are "
            'not here; start worker processes with "spawn" or "forkserver", open the file in the '
            f"child alone, or install the fsspec file system for {scheme}"
        )
    if scheme.lower() not in obstore_client.SCHEMES:
        raise ImportError(
            f"{clean(url)}: nothing that is installed reads {scheme}://, nor would obstore; where "
            "fsspec has a file system of that name: pip install fsspec, and what it names for "
            f"{scheme}"
        )
    if obstore_client.asks_for(root, split(url)[1]):
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


class LocalFiles:
    """Client for local files, by path: slow disks before a cache on a fast one. Thread-safe."""

    def head(self, key: str) -> Head:
        """Return the size and version of a file.

        Raises:
            IsADirectoryError: Not a regular file.
        """
        status = os.stat(key)
        if not stat.S_ISREG(status.st_mode):
            raise IsADirectoryError(f"{key} is not a file")
        return _head_of(status)

    def get(self, key: str, begin: int, end: int, head: Head | None) -> bytes:
        """Return these bytes of that version."""
        descriptor = os.open(key, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = _head_of(os.fstat(descriptor))
            if head is not None and found[:2] != head[:2]:
                raise Changed(f"{found.size} bytes, changed since")
            pieces = []
            while begin < end and (piece := os.pread(descriptor, end - begin, begin)):
                pieces.append(piece)
                begin += len(piece)
        finally:
            os.close(descriptor)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def get_all(self, key: str) -> tuple[bytes, Head]:
        """Return a whole file."""
        with open(key, "rb") as file:
            return file.read(), _head_of(os.fstat(file.fileno()))

    def list(self, folder: str) -> Iterator[tuple[str, Head | None]]:
        """Yield all files below a folder."""
        for parent, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(parent, name)
                yield path, self.head(path)

    def put(self, key: str, data: bytes | str) -> None:
        """Write a file so that it appears complete or not at all."""
        folder, name = os.path.split(key)
        hidden = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")
        try:
            if isinstance(data, bytes):
                with open(hidden, "wb") as file:
                    file.write(data)
            else:
                shutil.copyfile(data, hidden)
            os.replace(hidden, key)
        except BaseException:
            if os.path.exists(hidden):
                os.unlink(hidden)
            raise

    def delete(self, key: str) -> None:
        """Remove a file."""
        os.unlink(key)


def _head_of(status: os.stat_result) -> Head:
    return Head(status.st_size, str(status.st_mtime_ns), status.st_mtime_ns)


def found_by(pattern: str) -> list[str]:
    """List the URLs that match a glob, sorted, with size and version if the store reports them.

    If none matches, an object with exactly this name is returned, if it exists.

    Raises:
        ConnectionError: The store doesn't answer.
        ValueError: The store can't list objects; most web servers can't.
    """
    client, key = client_of(pattern)
    root, _ = split(pattern)

    def listed() -> dict[str, Head | None]:
        return dict(client.list(folder_of(key)))

    try:
        heads = persistently(listed, clean(pattern))
    except FileNotFoundError:
        heads = {}
    except NotImplementedError:
        raise ValueError(
            f"{clean(pattern)}: this store doesn't list its objects; give a list of URLs"
        ) from None
    found: list[str] = []
    for name in sorted(matching(key, iter(heads))):
        head = heads[name]
        if head is None:
            found.append(f"{root}/{name}")
            continue
        url = ListedUrl(f"{root}/{name}")
        url.head = head
        found.append(url)
    return found or _itself(pattern)


def _itself(url: str) -> list[str]:
    client, key = client_of(url)
    try:
        persistently(lambda: client.head(key), clean(url))
    except (FileNotFoundError, PermissionError, NotImplementedError, ValueError):
        return []
    return [url]


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_in_child)
