"""The objects that a glob means."""

from __future__ import annotations

from adapters.remote.answers import Head
from adapters.remote.client import client_of
from adapters.remote.retrying import persistently
from adapters.remote.urls import ListedUrl, clean, folder_of, matching, split


def found_by(pattern: str) -> list[str]:
    """The URLs of the objects that a glob matches, sorted; each knows its size and version.

    Where it matches none, an object of that very name, if there is one.

    Raises:
        ConnectionError: The store doesn't answer.
        ValueError: It can't list, as most web servers can't.
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
