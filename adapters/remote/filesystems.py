"""Objects by a file system of fsspec's: ``memory://``, ``hdfs://``, ``s3://`` by s3fs, ..."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from typing import Any

from adapters.remote.answers import Changed, Head, quoted
from adapters.remote.retrying import remaining_seconds
from adapters.remote.urls import clean

# Of what fsspec says of an object, what tells versions apart, the surest first.
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "generation")
_TIMES = (
    *("LastModified", "last_modified", "mtime", "modified", "created", "updated"),
    *("Last-Modified", "modify", "modificationTime", "last_write_time"),
)
# It can't send a version along, so it is asked which one it has; not for each range of a store that
# is far away.
_ASK_AGAIN_SECONDS = 1.0
# To fetch an object that is the same before and after.
_TRIES = 3
# As obstore's: to connect, and between two pieces of a body. Its own are 5 minutes, or none.
_CONNECT_SECONDS = _READ_SECONDS = 5.0


def takes(url: str) -> bool:
    """Whether fsspec is installed, and knows such URLs."""
    if find_spec("fsspec") is None:
        return False
    from fsspec.registry import known_implementations, registry

    scheme = url.partition("://")[0]
    return scheme in registry or scheme in known_implementations


class FileSystem:
    """One of fsspec's; any thread may ask.

    Args:
        root: ``memory://`` and perhaps a host.

    Raises:
        ImportError: It needs something that isn't installed.
    """

    def __init__(self, root: str) -> None:
        import fsspec

        self._root = root
        options = _web_options() if root.lower().startswith(("http://", "https://")) else {}
        self._files, _ = fsspec.core.url_to_fs(root + "/", skip_instance_cache=False, **options)
        self._asked: dict[str, tuple[float, Head]] = {}

    def head(self, key: str) -> Head:
        """Size and version of an object.

        Raises:
            ValueError: The store doesn't say how long it is.
        """
        info = self._info(key)
        if info.get("type") == "directory":
            raise FileNotFoundError(errno.ENOENT, "No such object, but a folder")
        if info.get("size") is None:
            name = clean(f"{self._root}/{key}")
            raise ValueError(
                f"{name}: the store doesn't say how long it is, so no ranges of it can"
                " be read; copy it to a disk first"
            )
        return _head(info)

    def get(self, key: str, begin: int, end: int, head: Head | None) -> bytes:
        """These bytes; another version is noticed within a second."""
        with _Translated():
            data: bytes = self._in_time("cat_file", self._path(key), start=begin, end=end)
        now = time.monotonic()
        if head is not None and now - self._asked.get(key, (-1e9, head))[0] > _ASK_AGAIN_SECONDS:
            found = self.head(key)
            if self._files.async_impl:
                self._asked[key] = (now, found)
            if (found.size, found.version) != (head.size, head.version):
                raise Changed(f"{found.size} bytes of version {found.version}")
        if len(data) != end - begin:
            raise ConnectionError(f"{len(data)} of {end - begin} bytes came")
        return data

    def get_all(self, key: str) -> tuple[bytes, Head]:
        """An object as a whole; one that is written meanwhile is fetched again."""
        head = _head(self._info(key))
        for _ in range(_TRIES):
            with _Translated():
                data: bytes = self._in_time("cat_file", self._path(key))
            before, head = head, _head(self._info(key)) if head.version else head
            if head == before:
                return data, head
        raise ConnectionError("it was written each time while it was read")

    def list(self, folder: str) -> Iterator[tuple[str, Head | None]]:
        """All below a folder; times of a listing may be written otherwise, and are no version."""
        base = self._files._strip_protocol(self._root + "/").rstrip("/")
        self._files.invalidate_cache()
        found = self._in_time("find", self._path(folder), detail=True)
        for path, info in found.items():
            yield (
                str(path).removeprefix(base).lstrip("/"),
                _listed(info),
            )

    def put(self, key: str, data: bytes | str) -> None:
        """Write an object."""
        path = self._path(key)
        parent = self._files._parent(path)
        if parent:
            self._files.makedirs(parent, exist_ok=True)
        if isinstance(data, bytes):
            self._files.pipe_file(path, data)
        else:
            self._files.put_file(data, path)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with _Translated():
            self._files.rm_file(self._path(key))

    def _info(self, key: str) -> dict[str, Any]:
        self._files.invalidate_cache()
        with _Translated():
            found: dict[str, Any] = self._in_time("info", self._path(key))
            return found

    def _in_time(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method, which ends within the limit where it is one that can be ended.

        Those of file systems that don't use asyncio, as of HDFS or SFTP, have limits of their own.
        """
        if not self._files.async_impl or not hasattr(self._files, f"_{name}"):
            return getattr(self._files, name)(*arguments, **options)
        from fsspec.asyn import sync

        call = getattr(self._files, f"_{name}")
        return sync(self._files.loop, call, *arguments, timeout=remaining_seconds(), **options)

    def _path(self, key: str) -> str:
        return str(self._files._strip_protocol(f"{self._root}/{key}"))


class _Translated:
    """Errors of web servers as those that ``client`` names; others may pass.

    fsspec says "not found" of whatever happened when it asked for a size, and why as the cause.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
        if cause is None or not type(cause).__module__.startswith("aiohttp"):
            return
        status = getattr(cause, "status", None)
        if status in (404, 410):
            raise FileNotFoundError(errno.ENOENT, "No such object") from None
        if status in (401, 403):
            raise PermissionError(f"the store refuses: {status}") from None
        raise ConnectionError(f"{type(cause).__name__}: {cause}") from None


def _web_options() -> dict[str, Any]:
    if find_spec("aiohttp") is None:
        return {}  # fsspec says so itself.
    from aiohttp import ClientTimeout

    limits = ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
    return {"client_kwargs": {"timeout": limits}}


def _listed(info: dict[str, Any]) -> Head | None:
    is_known = info.get("size") is not None and any(info.get(name) for name in _VERSIONS)
    return _head(info) if is_known else None


def _head(info: dict[str, Any]) -> Head:
    size = int(info.get("size") or 0)
    changed = next((info[name] for name in _TIMES if info.get(name)), None)
    changed_ns = 0
    if isinstance(changed, datetime):
        changed_ns = int(changed.timestamp() * 1e6) * 1000
    elif isinstance(changed, (int, float)):
        changed_ns = int(changed * 1e6) * 1000
    named = next((name for name in _VERSIONS if info.get(name)), None)
    version = "" if named is None else str(info[named])
    if named in ("ETag", "etag"):
        version = quoted(version)
    if not version and changed is not None:
        version = hashlib.sha256(str(changed).encode()).hexdigest()[:16]
    return Head(size, version, changed_ns)
