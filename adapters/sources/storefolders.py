"""``StoreFolder``: a folder of images in a store, listed like a folder on a disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from adapters.remote import Head, clean, client_of
from adapters.remote.retry import persistently
from adapters.remote.urls import escaped, split
from adapters.remote.wholes import IDENTITY_BYTES, identity_of
from adapters.sources.filereading import measured
from adapters.sources.files import Files, ending_of
from adapters.sources.objectreading import Listed

_UNKNOWN = bytes(IDENTITY_BYTES)


class StoreFolder:
    """All objects below a URL, by the folders in their keys.

    Names that begin with a dot are skipped, as in local folders.

    Args:
        url: URL with or without a slash at its end.

    Raises:
        ConnectionError: The store doesn't answer.
        FileNotFoundError: No object is below the URL.
        PermissionError: The store refuses access.
        ValueError: The store can't list, like most web servers.
    """

    def __init__(self, url: str) -> None:
        self.name = clean(url)
        self._url = url if url.endswith("/") else url + "/"
        self._heads: dict[str, tuple[bytes, int]] = {}
        self.beside: list[str] = []
        self._paths: dict[str, list[list[str]]] = {}
        for path in sorted(self._listed()):
            if len(path) > 1:
                self._paths.setdefault(path[0], []).append(path[1:])
            else:
                self.beside.append(path[0])
        self.folders = set(self._paths)

    def _listed(self) -> Iterator[list[str]]:
        """Yield the parts of each path below the URL."""
        store, key = split(self._url)
        prefix, found = key.strip("/"), False
        for name, head in _objects(self._url, prefix):
            if prefix and not name.startswith(prefix + "/"):
                continue
            parts = name[len(prefix) :].strip("/").split("/")
            if any(part[:1] in ("", ".") for part in parts) or _is_marker(parts[-1], head):
                continue
            found = True
            if head is not None:
                url = self._url + escaped(store, "/".join(parts))
                known = identity_of(url, head) if head.version else _UNKNOWN
                self._heads[url] = known, head.size
            yield parts
        if not found:
            raise FileNotFoundError(
                f"where must be a folder, a list or a table, and there is no object below "
                f"{self.name!r}"
            )

    def runs(self, classes: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
        """Yield files as ``runs_of_classes`` does; folders are URLs that end with a slash."""
        for label, name in enumerate(classes):
            for parent, paths in itertools.groupby(self._paths[name], lambda path: path[:-1]):
                folder = escaped(self._url, "/".join([name, *parent]))
                yield label, f"{self._url}{folder}/", [self._named(path[-1]) for path in paths]

    def _named(self, name: str) -> str:
        return escaped(self._url, name)

    def listed(self, files: Files) -> Listed:
        """Versions and sizes of these files."""
        known = [self._heads.get(url) for url in files]
        identities = b"".join(_UNKNOWN if each is None else each[0] for each in known)
        # The same files as on a disk are measured, so that the order in blocks is the same.
        some = [known[number] for number in measured(len(known))]
        sizes = [each[1] for each in some if each is not None]
        array = np.frombuffer(identities, np.uint8).reshape(-1, IDENTITY_BYTES)
        return Listed(array, sum(sizes) / len(sizes) if sizes else None)


def _objects(url: str, prefix: str) -> list[tuple[str, Head | None]]:
    client, _ = client_of(url)
    is_web = url.lower().startswith(("http://", "https://"))
    try:
        found = persistently(lambda: list(client.list(prefix)), clean(url))
    except NotImplementedError:
        found = []
    else:
        if found or not is_web:
            return found
    raise ValueError(
        f"where must be a list of URLs or a table for a web server, which doesn't list what is in "
        f"a folder, got {clean(url)!r}: a list [(url, label), ...], or a .csv, .tsv or .lst file "
        "with a name or URL in each row"
    )


def _is_marker(name: str, head: Head | None) -> bool:
    """True if the object only marks a folder, as some tools write it."""
    return head is not None and not head.size and not ending_of(name)
