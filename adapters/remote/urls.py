"""Which names are URLs, and what of them people may see.

``s3://bucket/train.rec``, ``gs://``, ``az://``, ``http(s)://`` and whatever fsspec knows. A file's
URL, ``file:///data/train.rec``, is its path. A user, a password and a query are sent to the store,
and stand in no message, no log, no manifest and no cache: they may be secrets. A ``#`` before a
query is a part of the path, whatever the scheme: names of files have it, and objects no fragments.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from adapters.remote.answers import Head

# Two letters or more, so that no drive of Windows is one.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_WEB = ("http", "https")


class ListedUrl(str):
    """A URL of which a listing has told size and version, so that nobody has to ask for them."""

    head: Head


def head_in(path: Any) -> Head | None:
    """What a listing has told of an object."""
    return path.head if isinstance(path, ListedUrl) else None


def is_url(path: Any) -> bool:
    """Whether this names an object in a store; a ``file://`` URL does not."""
    return (
        isinstance(path, str)
        and _URL.match(path) is not None
        and not path.lower().startswith("file://")
    )


def as_path(path: str) -> str:
    """The path of a ``file://`` URL; any other name as it is.

    Raises:
        ValueError: It names another machine.
    """
    if not path.lower().startswith("file://"):
        return path
    parts = urlsplit(path)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"a file:// URL must be file:///path, got {clean(path)!r}")
    return unquote(parts.path)


def clean(url: str) -> str:
    """The URL without what may be a secret, for people and for files."""
    if not is_url(url):
        return url
    if _is_web(url):  # Elsewhere a "?" is a part of an object's key, as a "#" is everywhere.
        url = url.partition("?")[0]
    scheme, _, rest = url.partition("://")
    host, slash, key = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"


def without_secrets(text: str) -> str:
    """An error's text, in which signed URLs or parts of them may stand, for people and for logs."""
    text = re.sub(r"(https?://)([^\s/@]*@)?([^\s?)\"']*)(\?[^\s)\"']*)?", r"\1\3", text)
    return re.sub(r"\?[^\s)\"'>]*=[^\s)\"'>]*", "", text)


def split(url: str) -> tuple[str, str]:
    """Store and key: ``("s3://bucket", "folder/train.rec")``; a query stays with the key."""
    scheme, _, rest = url.partition("://")
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}", key


def beside(url: str, suffix: str, replace: bool) -> str:
    """The name of what lies beside an object: with another ending, or with one more."""
    query = ""
    if _is_web(url):
        url, mark, rest = url.partition("?")
        query = mark + rest
    stem = os.path.splitext(url)[0] if replace else url
    return stem + suffix + query


def below(folder: str, path: str) -> str:
    """The URL of what a path names that begins at a folder, whose URL ends with a slash."""
    store, key = split(folder)
    key = posixpath.normpath(posixpath.join(key, path))
    return f"{store}/{key}"


def folder_url(url: str) -> str:
    """That of the folder that an object is in, with a slash at its end."""
    return (url.partition("?")[0] if _is_web(url) else url).rpartition("/")[0] + "/"


def escaped(url: str, name: str) -> str:
    """A name as it stands in URLs of this kind."""
    return quote(name) if _is_web(url) else name


def unescaped(url: str, name: str) -> str:
    """What a part of a URL of this kind is called."""
    return unquote(name) if _is_web(url) else name


def has_magic(url: str) -> bool:
    """Whether it is a glob; a ``?`` of an ``http`` URL begins its query."""
    key = split(url)[1]
    if _is_web(url):
        return any(each in key.partition("?")[0] for each in "*[")
    return any(each in key for each in "*?[")


def folder_of(key: str) -> str:
    """What comes before the first part of a glob that isn't plain."""
    plain: list[str] = []
    for part in key.split("/")[:-1]:
        if any(each in part for each in "*?["):
            break
        plain.append(part)
    return "/".join(plain)


def matching(pattern: str, keys: Iterator[str]) -> Iterator[str]:
    """Those that a glob means: ``*`` and ``?`` stay within a folder, ``**`` doesn't.

    Raises:
        ValueError: It is none.
    """
    try:
        compiled = re.compile(_translated(pattern))
    except re.error as error:
        raise ValueError(
            f"a glob must have letters or ranges like [a-z] between brackets, got {pattern!r}: "
            f"{error}"
        ) from None
    return (key for key in keys if compiled.fullmatch(key))


def _translated(pattern: str) -> str:
    pieces: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            pieces.append("(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            pieces.append(".*")
            at += 2
        elif pattern[at] == "*":
            pieces.append("[^/]*")
            at += 1
        elif pattern[at] == "?":
            pieces.append("[^/]")
            at += 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            held = pattern[at + 1 : end].replace("\\", "\\\\")
            pieces.append(f"[^{held[1:]}]" if held[0] == "!" else f"[{held}]")
            at = end + 1
        else:
            pieces.append(re.escape(pattern[at]))
            at += 1
    return "".join(pieces)


def _is_web(url: str) -> bool:
    return url.partition("://")[0].lower() in _WEB
