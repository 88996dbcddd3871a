"""Client for fsspec's file systems: ``memory://``, ``hdfs://``, ``s3://`` through s3fs, ..."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

from adapters.remote.client import (
    Changed,
    Head,
    Refused,
    is_final,
    nanoseconds,
    quoted,
    without_ranges,
)
from adapters.remote.retry import remaining_seconds
from adapters.remote.urls import clean, is_web, with_escapes

# Keys of fsspec's info that identify a version, the most reliable first.
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "checksum", "generation")
_TIMES = (
    *("LastModified", "last_modified", "mtime", "modified", "created", "updated"),
    *("Last-Modified", "modify", "modificationTime", "last_write_time"),
)
# Headers of a web server's response.
_TOLD = ("ETag", "Last-Modified")
_PLACE = re.compile(r"bytes\s+(\d+)-(\d+)/")
# Characters that stay unescaped in paths and queries; a "#" would start a fragment.
_RESERVED = "%/?:@!$&'()*+,;=[]|~"
# Attempts to fetch an object that doesn't change meanwhile.
_TRIES = 3
# Same as obstore's: to connect, and between two parts of a body. Defaults: 5 minutes or none.
_CONNECT_SECONDS = _READ_SECONDS = 5.0


def takes(url: str) -> bool:
    """True if fsspec is installed and supports the URL's scheme."""
    if find_spec("fsspec") is None:
        return False
    from fsspec.registry import known_implementations, registry

    scheme = url.partition("://")[0]
    return scheme in registry or scheme in known_implementations


class FileSystem:
    """One file system of fsspec, such as ``memory://``. Thread-safe."""

    def __init__(self, root: str) -> None:
        import fsspec

        self._root = root
        options: dict[str, Any] = {}
        if is_web(root) and find_spec("aiohttp"):  # Without it, fsspec says what to install.
            from aiohttp import ClientTimeout

            limits = ClientTimeout(None, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
            options = {"client_kwargs": {"timeout": limits}, "encoded": True}
        self._files, _ = fsspec.core.url_to_fs(root + "/", skip_instance_cache=False, **options)
        self._is_web = is_web(root) and hasattr(self._files, "set_session")

    def head(self, key: str) -> Head:
        """Return the size and version of an object."""
        info = self._info(key)
        if info.get("type") == "directory":
            raise FileNotFoundError(errno.ENOENT, "No such object, but a folder")
        if info.get("size") is None:
            raise Refused("the store doesn't say how long it is; copy it to a disk first")
        return _head(info)

    def get(self, key: str, begin: int, end: int, head: Head | None) -> bytes:
        """Return these bytes of that version.

        The response of a web server includes the version. Other stores are asked for it afterwards.
        """
        found = None
        if self._is_web:
            data, found = self._from_web(key, begin, end, head)
        else:
            with _translated():
                data = self._in_time("cat_file", self._path(key), start=begin, end=end)
        if head is not None:
            if found is None or (head.version and not found.version):
                found = self.head(key)
            if found[:2] != head[:2]:
                raise Changed(f"{found.size} bytes of version {found.version}")
        if len(data) > end - begin:
            raise without_ranges(clean(f"{self._root}/{key}"))
        if len(data) < end - begin:
            raise ConnectionError(f"{len(data)} of {end - begin} bytes came")
        return data

    def get_all(self, key: str) -> tuple[bytes, Head]:
        """Return a whole object; retry if it is written meanwhile."""
        head = _head(self._info(key))
        for _ in range(_TRIES):
            with _translated():
                data: bytes = self._in_time("cat_file", self._path(key))
            before, head = head, _head(self._info(key)) if head.version else head
            if head == before:
                return data, head
        raise ConnectionError("it was written each time while it was read")

    def list(self, folder: str) -> Iterator[tuple[str, Head | None]]:
        """Yield everything below a folder. Times in listings may differ and are no version."""
        base = self._files._strip_protocol(self._root + "/").rstrip("/")
        self._files.invalidate_cache()
        with _translated():
            found = self._in_time("find", self._path(folder), detail=True)
        for path, info in found.items():
            is_known = info.get("size") is not None and any(map(info.get, _VERSIONS))
            key = str(path).removeprefix(base).lstrip("/")
            yield key, _head(info) if is_known else None

    def put(self, key: str, data: bytes | str) -> None:
        """Write an object."""
        path = self._path(key)
        parent = self._files._parent(path)
        with _translated():
            if parent:
                self._files.makedirs(parent, exist_ok=True)
            if isinstance(data, bytes):
                self._files.pipe_file(path, data)
            else:
                self._files.put_file(data, path)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with _translated():
            self._files.rm_file(self._path(key))

    def _info(self, key: str) -> dict[str, Any]:
        self._files.invalidate_cache()
        with _translated():
            found: dict[str, Any] = self._in_time("info", self._path(key))
            return found

    def _from_web(self, key: str, begin: int, end: int, head: Head | None) -> tuple[bytes, Head]:
        """Return these bytes from a web server, and the version in its response."""
        from fsspec.asyn import sync

        asked = {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        if head is not None and head.version.startswith('"'):
            asked["If-Match"] = head.version
        given = self._files.kwargs
        options = {**given, "headers": {**given.get("headers", {}), **asked}}

        async def answered() -> tuple[bytes, Head]:
            session = await self._files.set_session()
            url = self._files.encode_url(self._path(key))
            async with session.get(url, **options) as answer:
                answer.raise_for_status()
                if answer.status != 206 and (head is None or (begin, end) != (0, head.size)):
                    raise without_ranges(clean(f"{self._root}/{key}"))
                headers = {each: answer.headers.get(each) for each in _TOLD}
                data = await answer.read()
                place = _PLACE.match(answer.headers.get("Content-Range", ""))
                if place and (int(place[1]), int(place[2]) + 1) != (begin, begin + len(data)):
                    raise ConnectionError(
                        f"bytes {place[1]} to {place[2]} came, and not {begin} to {end - 1}"
                    )
                size = answer.headers.get("Content-Range", "").rpartition("/")[2]
                if not size.isdecimal():
                    size = len(data) if answer.status != 206 or head is None else head.size
                return data, _head({"size": size, **headers})

        with _translated():
            found: tuple[bytes, Head] = sync(
                self._files.loop, answered, timeout=remaining_seconds()
            )
            return found

    def _in_time(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method, with the time limit if it is asynchronous.

        File systems without asyncio, such as HDFS and SFTP, have limits of their own.
        """
        if not self._files.async_impl or not hasattr(self._files, f"_{name}"):
            return getattr(self._files, name)(*arguments, **options)
        from fsspec.asyn import sync

        call = getattr(self._files, f"_{name}")
        return sync(self._files.loop, call, *arguments, timeout=remaining_seconds(), **options)

    def _path(self, key: str) -> str:
        if self._is_web:  # Passed unchanged: a signature may cover each byte.
            key = quote(with_escapes(key), _RESERVED)
        return str(self._files._strip_protocol(f"{self._root}/{key}"))


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate errors of libraries to those in ``client``; built-in ones pass.

    fsspec reports "not found" for any error while it requests a size, with the true error as cause.
    """
    try:
        yield
    except BaseException as error:  # Also asyncio's CancelledError.
        cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
        if cause is None or type(cause).__module__ in ("builtins", Changed.__module__):
            raise
        status = getattr(cause, "status", None)
        if status in (404, 410):
            raise FileNotFoundError(errno.ENOENT, "No such object") from None
        if status in (401, 403):
            raise PermissionError(f"the store refuses: {status}") from None
        if status in (412, 416):
            raise Changed("another version") from None
        if status is not None and is_final(status):
            raise Refused(f"the server answers {status} {getattr(cause, 'message', '')}") from None
        raise ConnectionError(f"{type(cause).__name__}: {cause}") from None


def _head(info: dict[str, Any]) -> Head:
    changed, changed_ns = next((info[name] for name in _TIMES if info.get(name)), None), 0
    if isinstance(changed, datetime):
        changed_ns = nanoseconds(changed)
    elif isinstance(changed, (int, float)):
        changed_ns = int(changed * 1e6) * 1000
    named = next((name for name in _VERSIONS if info.get(name)), None)
    version = "" if named is None else str(info[named])
    if named in ("ETag", "etag"):
        version = quoted(version)
    if isinstance(changed, str):
        with contextlib.suppress(TypeError, ValueError):  # It may be no HTTP date.
            changed_ns = nanoseconds(parsedate_to_datetime(changed))
            version = version or str(changed_ns)  # Same as obstore's, for objects opened with it.
    if not version and changed is not None:
        version = hashlib.sha256(str(changed).encode()).hexdigest()[:16]
    return Head(int(info.get("size") or 0), version, changed_ns)
