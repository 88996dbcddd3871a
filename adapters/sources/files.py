"""``Files``: compact storage for many file names; and folders that list them.

A file takes a few dozen bytes: the number of a folder, and the name in it. A file may be an object
behind a URL, whose folder is the URL up to and including its last slash.

    names    | 1.jpg | 0 | 2.jpg | 0 | ...    bytes of the file system, each name ended by a 0
    begins   where each name begins, and the end
    places   the folder number of each file

Worker processes share these arrays instead of copying them. Thread-safe.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.remote import Head, client_of
from adapters.remote.cache import IDENTITY_BYTES, identity_of
from adapters.remote.retry import persistently
from adapters.remote.urls import clean, escaped, is_url, split

Run = tuple[str, list[str]]
"""Folder, and names of files in it."""
# Endings of decodable files: for the kernel or libjpeg-turbo, for OpenCV, and NumPy arrays.
ENDINGS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
    + (".ppm", ".pgm", ".pbm", ".jp2", ".npy")
)

# Files measured for the average size: one stat takes 2 us, on NFS a millisecond.
_MEASURED = 256
_UNKNOWN = bytes(IDENTITY_BYTES)


class Files(Sequence[str]):
    """Paths as given; strings are made on access. Relative ones start at the working directory."""

    def __init__(self, runs: Iterable[Run]) -> None:
        folders: dict[str, int] = {}
        names: list[bytes] = []
        places, counts = [], []
        for folder, run in runs:
            if run:
                names.append(os.fsencode("\0".join(run)))
                places.append(folders.setdefault(folder, len(folders)))
                counts.append(len(run))
        names.append(b"")  # Ends the last name with a 0.
        self._names = np.frombuffer(b"\0".join(names), np.uint8)
        self._places = np.repeat(np.array(places, np.int32), counts)
        self._begins = np.concatenate([[0], np.flatnonzero(self._names == 0) + 1])
        if len(self._begins) != len(self._places) + 1:
            raise ValueError("names of files must not have a 0 in them")
        self._folders = list(folders)
        # Absolute, as worker processes may have another working directory. Not resolved, as ".."
        # behind a link isn't the folder above the link.
        here = os.getcwd()
        self._roots = [
            os.fsencode(each if is_url(each) else os.path.join(here, each, ""))
            for each in self._folders
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        """Return one path, or a list of paths for a slice."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        folder, name = self._folders[self._places[number]], os.fsdecode(self._name(number))
        return folder + name if is_url(folder) else os.path.join(folder, name)

    def named(self, number: int) -> str:
        """Path for messages, without the secrets of a URL."""
        path: str = self[number]
        return clean(path)

    @property
    def are_local(self) -> bool:
        """True if no file is behind a URL."""
        return not any(map(is_url, self._folders))

    def path(self, number: int) -> bytes:
        """Absolute path of a file, or its URL."""
        root: bytes = self._roots[self._places[number]]
        return root + self._name(number)

    def digest(self) -> str:
        """Fingerprint of the paths and their order, independent of the working directory."""
        found = hashlib.sha256(repr(self._roots).encode())
        for array in (self._names, self._places):
            found.update(array.data)
        return found.hexdigest()

    def only(self, number: int) -> Files:
        """Return one file by itself, independent of the working directory."""
        folder = self._folders[self._places[number]]
        one = Files([(folder, [os.fsdecode(self._name(number))])])
        one._roots = [self._roots[self._places[number]]]
        return one

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, map(clean, self[:2]))) + ", ..." * (len(self) > 2)
        return f"<{len(self)} files: {shown}>"

    def _name(self, number: int) -> bytes:
        return self._names[self._begins[number] : self._begins[number + 1] - 1].tobytes()


class Listed(NamedTuple):
    """Versions and sizes of files from a listing, in their order."""

    identities: NDArray[np.uint8]  # ``(files, 16)``; zeros if the listing has no version.
    mean_bytes: float | None  # Average bytes per file; None if the listing has no sizes.


def measured(count: int) -> list[int]:
    """Numbers of files at equal distances, whose sizes give the average."""
    numbers: list[int] = np.unique(np.linspace(0, count - 1, _MEASURED).astype(np.int64)).tolist()
    return numbers


def runs_of(paths: Iterable[str]) -> Iterator[Run]:
    """Group paths into runs of files in one folder."""
    for folder, group in itertools.groupby(map(_folder_and_name, paths), operator.itemgetter(0)):
        yield folder, [name for _, name in group]


def _folder_and_name(path: str) -> tuple[str, str]:
    if not is_url(path):
        return os.path.split(path)
    name = path.rpartition("/")[2]
    return path.removesuffix(name), name


def runs_below(folder: str, above: tuple[str, ...]) -> Iterator[Run]:
    """Yield files below a folder; subfolders are sorted among the files.

    Links are followed, but for those to a folder above; names that begin with a dot are skipped.
    """
    place = os.path.realpath(folder)
    if place in above:
        return
    files, folders = shown(folder)
    names: list[str] = []
    for name in sorted([*files, *folders]) if folders else sorted(files):
        if name in folders:
            yield folder, names
            yield from runs_below(os.path.join(folder, name), (*above, place))
            names = []
        else:
            names.append(name)
    yield folder, names


def shown(folder: str) -> tuple[list[str], set[str]]:
    """List entries whose names don't begin with a dot: non-folders, and folders."""
    files: list[str] = []
    folders: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                is_folder = entry.is_dir()
            except OSError:  # Such as a link to itself; opening it reports the error.
                is_folder = False
            if entry.name[0] != ".":
                (folders.add if is_folder else files.append)(entry.name)
    return files, folders


def ending_of(name: str) -> str:
    """Lower-case ending of a name, from the last dot on; empty without a dot."""
    return name[name.rindex(".") :].lower() if "." in name else ""


def is_named_like_an_image(name: str) -> bool:
    """True if a name ends like an image's; its content is checked when it is decoded."""
    return name[name.rfind(".") :].lower() in ENDINGS


class Folder:
    """A local folder: names of files ``beside`` the folders, and ``folders`` of the classes."""

    def __init__(self, path: str) -> None:
        self.name = path
        self.beside, self.folders = shown(path)

    def runs(self, of_class: str) -> Iterator[Run]:
        """Yield the files of a class."""
        return runs_below(os.path.join(self.name, of_class), (os.path.realpath(self.name),))

    def listed(self, files: Files) -> Listed | None:
        """Versions and sizes of these files, if they are known; None here."""
        return None


class StoreFolder(Folder):
    """All objects below a URL, skipping names that begin with a dot, as in local folders."""

    def __init__(self, url: str) -> None:
        self.name = clean(url)
        self._url = url if url.endswith("/") else url + "/"
        self._heads: dict[str, tuple[bytes, int]] = {}
        self.beside: list[str] = []
        self._urls: dict[str, list[str]] = {}
        for (first, *rest), file in sorted(self._files()):
            if rest:
                self._urls.setdefault(first, []).append(file)
            else:
                self.beside.append(first)
        self.folders = set(self._urls)

    def _files(self) -> Iterator[tuple[list[str], str]]:
        """Yield the parts of each path below the URL, and the file's URL."""
        prefix, found = split(self._url)[1].strip("/"), False
        for name, head in _objects(self._url, prefix):
            if prefix and not name.startswith(prefix + "/"):
                continue
            parts = name[len(prefix) :].strip("/").split("/")
            if any(part[:1] in ("", ".") for part in parts):
                continue
            if head is not None and not head.size and not ending_of(parts[-1]):
                continue  # It only marks a folder, as some tools write it.
            found = True
            url = self._url + escaped(self._url, "/".join(parts))
            if head is not None:
                known = identity_of(url, head) if head.version else _UNKNOWN
                self._heads[url] = known, head.size
            yield parts, url
        if not found:
            raise FileNotFoundError(
                f"where must be a folder, a list or a table, and there is no object below "
                f"{self.name!r}"
            )

    def runs(self, of_class: str) -> Iterator[Run]:
        """Yield the files of a class; folders are URLs that end with a slash."""
        return runs_of(self._urls[of_class])

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
    with contextlib.suppress(NotImplementedError):
        found = persistently(lambda: list(client.list(prefix)), clean(url))
        if found or not is_web:
            return found
    raise ValueError(
        f"where must be a list of URLs or a table for a web server, which doesn't list what is in "
        f"a folder, got {clean(url)!r}: a list [(url, label), ...], or a .csv, .tsv or .lst file "
        "with a name or URL in each row"
    )
