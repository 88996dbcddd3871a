"""Client for obstore: S3, Google Cloud Storage, Azure, and web servers that support ranges.

Credentials are found as by each provider's own tools: in the environment, by the machine's role, or
as Google's application credentials. For S3, ``~/.aws`` and ``AWS_PROFILE`` are used as well if
boto3 is installed. ``AWS_ENDPOINT_URL`` selects another server with S3's protocol.

Measured in 2026-11 for ranges of 64 KiB: 0.08 to 0.13 ms of CPU time a request from threads, a
tenth of boto3's and s3fs's.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes

from adapters.remote.client import (
    Changed,
    Head,
    Refused,
    is_final,
    nanoseconds,
    quoted,
    without_ranges,
)
from adapters.remote.urls import clean, is_web, with_escapes, without_secrets

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https")
# Characters besides letters and digits that obstore leaves unescaped in a path.
_PLAIN = "/!$&'()*+,;=:@[]|~"
# Limit for a response to begin, and between two parts of a body. 10,000 requests of which a hundred
# hung took 10 s longer for each hundredth of the threads that waited.
READ_SECONDS = 5.0
CONNECT_SECONDS = 5.0
# Largest object that is written in one request; larger ones are split.
_PUT_AT_ONCE_BYTES = 16 << 20
# Response of a web server that can't list, other than "timeout" and "too many requests".
_LISTS_NOTHING = re.compile(r"PROPFIND .* status code: (4(?!08|29)\d\d|501)")
# Addresses from which AWS, Azure and Google machines get their role; obstore tries these last.
_ASKS_THE_MACHINE = re.compile(r"169\.254\.169\.254|fd00:ec2::254|metadata\.google\.internal")
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_NO_CREDENTIALS = (
    "no credentials were found, and this machine has no role: set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY; "
    "AWS_SKIP_SIGNATURE=true or GOOGLE_SKIP_SIGNATURE=true for a public bucket"
)
_STATUS = re.compile(r"status code: (\d{3})")

# Id of the process that first used obstore: its threads don't survive a fork.
_used_in: int | None = None


def asks_for(root: str, key: str) -> bool:
    """True if obstore would request exactly this object.

    It escapes the paths of web URLs itself. It ignores queries, merges slashes and treats ``%2F``
    as a slash, and would then get another object.
    """
    if not is_web(root):
        return True
    if "?" in key or "//" in f"/{key}" or {".", ".."} & {*key.split("/")}:
        return False
    if "%" not in key:
        return True
    meant = with_escapes(key)
    # Escapes are case-insensitive.
    return quote(unquote(meant), _PLAIN).lower() == quote(meant, _PLAIN + "%").lower()


def is_forked() -> bool:
    """True if obstore was used in a process from which this one was forked."""
    return _used_in not in (None, os.getpid())


class Obstore:
    """One bucket, container or host, such as ``s3://bucket``. Thread-safe."""

    def __init__(self, root: str) -> None:
        global _used_in
        import obstore

        _used_in = os.getpid()
        self._obstore = obstore
        self._root = root
        self._store = _store(root)
        self._is_web = is_web(root)
        self.has_answered = False
        """True if a request has succeeded, so credentials were found."""

    def head(self, key: str) -> Head:
        """Return the size and version of an object; ``Refused`` if the size is unknown."""
        if not key:  # Stores answer for a bucket, too.
            raise FileNotFoundError(errno.ENOENT, "No such object, but a bucket")
        with _translated(self):
            return _head(self._obstore.head(self._store, self._name(key)))

    def get(self, key: str, begin: int, end: int, head: Head | None) -> memoryview:
        """Return the bytes from ``begin`` to before ``end`` of the version in ``head``.

        Raises:
            Changed: The object has another version by now.
            ValueError: The server gives no ranges.
        """
        options: Any = {"range": (begin, end)}
        if head is not None and head.is_etag:
            options["if_match"] = head.version
        with _translated(self, f"{self._root}/{key}"):
            result = self._obstore.get(self._store, self._name(key), options=options)
            found = _head(result.meta)
            if head is not None and found[:2] != head[:2]:
                raise Changed(f"{found.size} bytes of version {found.version}")
            return memoryview(result.bytes())

    def get_all(self, key: str) -> tuple[bytes, Head]:
        """Return a whole object."""
        with _translated(self):
            result = self._obstore.get(self._store, self._name(key))
            return bytes(result.bytes()), _head(result.meta)

    def list(self, folder: str) -> Iterator[tuple[str, Head | None]]:
        """Yield all keys below a folder ("" for the root), with None for an unknown version.

        Only ETags are versions, as ``head`` prefers them. A store that can't list objects raises
        ``NotImplementedError``.
        """
        with _translated(self):
            for some in self._obstore.list(self._store, prefix=folder or None):
                for meta in some:
                    yield meta["path"], _head(meta) if meta.get("e_tag") else None

    def put(self, key: str, data: bytes | str) -> None:
        """Write an object, whole or not at all, from bytes or from the file at a path."""
        with _translated(self):
            given: Any = data if isinstance(data, bytes) else Path(data)
            self._obstore.put(self._store, self._name(key), given, chunk_size=_PUT_AT_ONCE_BYTES)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with _translated(self):
            self._obstore.delete(self._store, self._name(key))

    def _name(self, key: str) -> str:
        """Return obstore's name for a key; it escapes web URLs itself."""
        return unquote(key) if self._is_web else key


def _store(root: str) -> Any:
    import obstore.store

    scheme, _, bucket = root.partition("://")
    options: dict[str, Any] = {
        "read_timeout": f"{int(READ_SECONDS * 1000)}ms",
        "connect_timeout": f"{int(CONNECT_SECONDS * 1000)}ms",
        "timeout": "600s",  # For the whole body.
        "pool_max_idle_per_host": "256",
    }
    given: dict[str, Any] = {"client_options": options, "retry_config": {"max_retries": 0}}
    scheme = scheme.lower()
    if scheme in ("http", "https"):
        options["allow_http"] = scheme == "http"
        user, _, host = bucket.rpartition("@")
        if user:
            basic = base64.b64encode(unquote_to_bytes(user)).decode()
            options["default_headers"] = {"Authorization": f"Basic {basic}"}
        return obstore.store.HTTPStore(f"{scheme}://{host}", **given)
    if scheme in ("s3", "s3a"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            options["allow_http"] = endpoint.startswith("http://")
            given["endpoint"] = endpoint
        user, _, bucket = bucket.rpartition("@")
        if user:
            key, _, secret = user.partition(":")
            given["access_key_id"], given["secret_access_key"] = unquote(key), unquote(secret)
        elif _needs_profile():
            from obstore.auth.boto3 import Boto3CredentialProvider

            given["credential_provider"] = Boto3CredentialProvider()
        return obstore.store.S3Store(bucket, **given)
    return obstore.store.from_url(root, **given)


def _needs_profile() -> bool:
    """True if credentials are in ``~/.aws``, which obstore doesn't read, but boto3 does."""
    if "AWS_ACCESS_KEY_ID" in os.environ or find_spec("boto3") is None:
        return False
    place = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    return "AWS_PROFILE" in os.environ or os.path.exists(os.path.expanduser(place))


def _head(meta: Any) -> Head:
    changed_ns = nanoseconds(meta["last_modified"])
    if meta.get("e_tag"):
        etag = quoted(meta["e_tag"])
        return Head(meta["size"], etag, changed_ns, not etag.startswith("W/"))
    return Head(meta["size"], str(changed_ns) if changed_ns else "", changed_ns)


@contextlib.contextmanager
def _translated(store: Obstore, ranged: str | None = None) -> Iterator[None]:
    """Translate obstore's errors to those in ``client``; others pass.

    ``ranged`` is the URL of the object if a range is requested.
    """
    try:
        yield
    except Exception as error:
        text = str(error).partition("\n")[0]
        answered = _STATUS.search(text)
        status = int(answered[1]) if answered else 0
        if isinstance(error, FileNotFoundError) and status == 405:  # obstore calls 405 not found.
            raise Refused(_said(text)) from None
        name = type(error).__name__
        if text.startswith("Could not parse path"):  # For keys that aren't from a listing.
            name = "InvalidPathError"
        elif not type(error).__module__.startswith("obstore"):
            raise
        if name == "PreconditionError":
            raise Changed("another version") from None
        if name in ("PermissionDeniedError", "UnauthenticatedError"):
            raise PermissionError(f"the store refuses: {name}") from None
        if name == "NotSupportedError" and ranged is not None:
            raise without_ranges(clean(ranged)) from None
        if name == "InvalidPathError":
            raise ValueError(
                f"{clean(store._root)}: keys must have parts, not dots, between slashes and no "
                f"control characters, got {text.partition('path: ')[2]}: correct the URL, or "
                "rename or remove that object, or give a list of URLs"
            ) from None
        if name in ("NotSupportedError", "UnknownConfigurationKeyError"):
            raise NotImplementedError(f"the store can't: {name}") from None
        if "Content-Length Header missing" in text:
            raise Refused("the store doesn't say how long it is; copy it to a disk first") from None
        if _LISTS_NOTHING.search(text):
            raise NotImplementedError("the store doesn't list") from None
        if ranged is not None and (status == 416 or "Wanted range starting" in text):
            raise Changed("a shorter one") from None
        if status == 410:
            raise FileNotFoundError(errno.ENOENT, "No such object") from None
        asks_the_machine = _ASKS_THE_MACHINE.search(text) and not store.has_answered
        if asks_the_machine and (is_final(status) or not (status or _may_have_a_role())):
            raise Refused(_NO_CREDENTIALS) from None
        if status in (401, 403):  # obstore has no such error for listings.
            raise PermissionError(f"the store refuses: {_said(text).partition(': ')[0]}") from None
        # S3's 400 "RequestTimeout" is transient.
        if is_final(status) and "RequestTimeout" not in str(error):
            raise Refused(_said(text)) from None
        raise ConnectionError(without_secrets(text)) from None
    store.has_answered = True


def _may_have_a_role() -> bool:
    """True if the machine may belong to a provider that assigns it a role."""
    try:
        vendor = _VENDOR.read_text()
    except OSError:
        return True
    return any(name in vendor for name in ("Amazon", "Google", "Microsoft", "Xen"))


def _said(text: str) -> str:
    """Describe a server's response from obstore's message."""
    method = text.partition("performing ")[2].partition(" ")[0]
    return f"the server answers {method} by {text.partition('status code: ')[2].rstrip(': ')}"
