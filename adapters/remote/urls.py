"""URLs of objects, and their parts that may be shown.

Supports ``s3://bucket/train.rec``, ``gs://``, ``az://``, ``http(s)://`` and all schemes of fsspec.
A file URL, ``file:///data/train.rec``, means its path. User, password and query may be secrets:
they are sent to the store, but never appear in a message, log, manifest or cache. A ``#`` before a
query is part of the path for all schemes: file names contain it, and objects have no fragments.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

from adapters.remote.client import Head

# At least two letters, so Windows drives don't match.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Between the URLs that fsspec joins.
_JOINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]+://)")
_WEB = ("http", "https")
_WILDCARDS = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
# Parts of a glob: wildcards, characters to choose from, or one character.
_TOKENS = re.compile(r"\*\*/|\*\*|\[.[^]]*\]|.", re.DOTALL)


class ListedUrl(str):
    """URL with the size and version from a listing, if any, so that they need not be requested."""

    head: Head | None = None


def is_url(path: Any) -> bool:
    """True if this names an object in a store; a ``file://`` URL doesn't."""
    return (
        isinstance(path, str)
        and _URL.match(path) is not None
        and not path.lower().startswith("file://")
    )


def as_path(path: str) -> str:
    """Return the path of a ``file://`` URL; other names are unchanged.

    Raises:
        ValueError: It names another machine.
    """
    if not path.lower().startswith("file://"):
        return path
    host, slash, rest = path[len("file://") :].partition("/")  # A name may have "?" and "#".
    if host not in ("", "localhost"):
        raise ValueError(f"a file:// URL must be file:///path, got {clean(path)!r}")
    return unquote(slash + rest)


def local_path(path: str | os.PathLike[str], name: str) -> str:
    """Return a path on this machine, also of a ``file://`` URL; ``name`` is the argument.

    Raises:
        TypeError: It is no path.
        ValueError: It is empty, or the URL of a store.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, got {path!r}")
    if not os.fspath(path):
        raise ValueError(f'{name} must be a path, got {path!r}; "." is the working directory')
    text = as_path(path) if isinstance(path, str) else os.fspath(path)
    if is_url(text):
        raise ValueError(f"{name} must be on a disk of this machine, got {clean(text)!r}")
    return text


def clean(url: str) -> str:
    """Remove the parts of a URL that may be secret, for messages and files."""
    if not is_url(url):
        return url
    if len(joined := _JOINED.split(url)) > 1:
        return "::".join(map(clean, joined))
    if is_web(url):  # Elsewhere, a key may contain "?"; "#" may occur in any.
        url = url.partition("?")[0]
    scheme, _, rest = url.partition("://")
    host, slash, key = rest.partition("/")
    if not scheme.lower().startswith("abfs"):  # Which has a container there.
        host = host.rpartition("@")[2]
    return f"{scheme}://{host}{slash}{key}"


def without_secrets(text: str) -> str:
    """Remove parts of signed URLs from an error's text, for messages and logs."""
    text = re.sub(r"(https?://)([^\s/@]*@)?([^\s?)\"']*)(\?[^\s)\"']*)?", r"\1\3", text)
    return re.sub(r"\?[^\s)\"'>]*=[^\s)\"'>]*", "", text)


def split(url: str) -> tuple[str, str]:
    """Split into store and key: ``("s3://bucket", "folder/train.rec")``; a query is in the key."""
    scheme, _, rest = url.partition("://")
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}", key


def beside(url: str, suffix: str, replace: bool) -> str:
    """Replace a URL's suffix, or append one; a query is kept."""
    query = ""
    if is_web(url):
        url, mark, rest = url.partition("?")
        query = mark + rest
    stem = os.path.splitext(url)[0] if replace else url
    return stem + suffix + query


def below(folder: str, path: str) -> str:
    """Resolve a relative path against a folder URL that ends with a slash."""
    store, key = split(folder)
    key = posixpath.normpath(posixpath.join(key, path))
    return f"{store}/{key}"


def folder_url(url: str) -> str:
    """Return the URL of an object's folder, ending with a slash."""
    return (url.partition("?")[0] if is_web(url) else url).rpartition("/")[0] + "/"


def escaped(url: str, name: str) -> str:
    """Escape a name as URLs of this kind require."""
    return quote(name) if is_web(url) else name


def unescaped(url: str, name: str) -> str:
    """Unescape a part of a URL of this kind."""
    return unquote(name) if is_web(url) else name


def with_escapes(key: str) -> str:
    """Escape percent signs that begin no escape."""
    return re.sub("%(?![0-9A-Fa-f]{2})", "%25", key)


def has_magic(url: str) -> bool:
    """True if it is a glob; a ``?`` in an ``http`` URL starts the query."""
    key, wildcards = split(url)[1], "*?["
    if is_web(url):
        key, wildcards = key.partition("?")[0], "*["
    return any(each in key for each in wildcards)


def folder_of(key: str) -> str:
    """Return the leading folders of a glob that have no wildcards."""
    folders = key.split("/")[:-1]
    return "/".join(itertools.takewhile(lambda part: not any(c in part for c in "*?["), folders))


def matching(pattern: str, keys: Iterator[str]) -> Iterator[str]:
    """Filter the keys that match: ``*`` and ``?`` stay within a folder, ``**`` doesn't.

    Raises:
        ValueError: The pattern is invalid.
    """
    try:
        compiled = re.compile(_TOKENS.sub(_translated, pattern))
    except re.error as error:
        raise ValueError(
            f"a glob must have letters or ranges like [a-z] between brackets, got {pattern!r}: "
            f"{error}"
        ) from None
    return (key for key in keys if compiled.fullmatch(key))


def _translated(glob: re.Match[str]) -> str:
    token = glob[0]
    if token in _WILDCARDS:
        return _WILDCARDS[token]
    if len(token) == 1:
        return re.escape(token)
    held = token[1:-1].replace("\\", "\\\\")
    return f"[^{held[1:]}]" if held[0] == "!" else f"[{held}]"


def is_web(url: str) -> bool:
    """True for ``http`` and ``https``."""
    return url.partition("://")[0].lower() in _WEB
