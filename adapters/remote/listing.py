"""Expansion of globs to objects."""

from __future__ import annotations

from adapters.remote.answers import Head
from adapters.remote.client import client_of
from adapters.remote.retrying import persistently
from adapters.remote.urls import ListedUrl, clean, folder_of, matching, split


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
