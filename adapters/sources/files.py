"""The names of many files, a few dozen bytes each: the number of a folder, and a name in it.

A file may be an object behind a URL, whose folder is that up to its last slash, with it.

    names    | 1.jpg | 0 | 2.jpg | 0 | ...    bytes of the file system, each name ended by a 0
    begins   where each name begins, and the end
    places   which of the folders each file is in

They are arrays, so worker processes share them and get no copies. Any thread may ask.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from adapters.remote.urls import clean, is_url

Run = tuple[str, list[str]]
"""A folder, and names of files in it."""
# What is decoded: by the kernel or libjpeg-turbo, by OpenCV, and NumPy's arrays.
ENDINGS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
    + (".ppm", ".pgm", ".pbm", ".jp2", ".npy")
)


class Files(Sequence[str]):
    """Paths of files, as they were given; a sequence that makes a string where one is asked for.

    Args:
        runs: The files. Relative folders are those of the process that makes this.

    Raises:
        ValueError: A name that no file can have.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        folders: dict[str, int] = {}
        names: list[bytes] = []
        places, counts = [], []
        for folder, run in runs:
            if run:
                names.append(os.fsencode("\0".join(run)))
                places.append(folders.setdefault(folder, len(folders)))
                counts.append(len(run))
        names.append(b"")  # For a 0 at the end.
        self._names = np.frombuffer(b"\0".join(names), np.uint8)
        self._places = np.repeat(np.array(places, np.int32), counts)
        self._begins = np.concatenate([[0], np.flatnonzero(self._names == 0) + 1])
        if len(self._begins) != len(self._places) + 1:
            raise ValueError("names of files must not have a 0 in them")
        self._folders = list(folders)
        # For worker processes, which may work elsewhere. Nothing is resolved, as ".." behind a link
        # isn't the folder above it.
        here = os.getcwd()
        self._roots = [
            os.fsencode(each if is_url(each) else os.path.join(here, each, ""))
            for each in self._folders
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        """The path of this number, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        folder, name = self._folders[self._places[number]], os.fsdecode(self._name(number))
        return folder + name if is_url(folder) else os.path.join(folder, name)

    def named(self, number: int) -> str:
        """The path for people: of a URL, what is no secret."""
        path: str = self[number]
        return clean(path)

    @property
    def are_local(self) -> bool:
        """Whether none of them is a URL."""
        return not any(map(is_url, self._folders))

    def path(self, number: int) -> bytes:
        """By which any process of this machine opens the file, or its URL."""
        root: bytes = self._roots[self._places[number]]
        return root + self._name(number)

    def digest(self) -> str:
        """The same for the same paths in the same order, wherever a process works."""
        found = hashlib.sha256(repr(self._roots).encode())
        for array in (self._names, self._places):
            found.update(array.data)
        return found.hexdigest()

    def only(self, number: int) -> Files:
        """One of these by itself, wherever this process works by now."""
        folder = self._folders[self._places[number]]
        one = Files([(folder, [os.fsdecode(self._name(number))])])
        one._roots = [self._roots[self._places[number]]]
        return one

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, map(clean, self[:2]))) + ", ..." * (len(self) > 2)
        return f"<{len(self)} files: {shown}>"

    def _name(self, number: int) -> bytes:
        return self._names[self._begins[number] : self._begins[number + 1] - 1].tobytes()


def runs_of(paths: Iterable[str]) -> Iterator[Run]:
    """Files that were named one by one."""
    last: str | None = None
    names: list[str] = []
    for path in paths:
        folder, name = _parted(path) if is_url(path) else os.path.split(path)
        if folder != last:
            if last is not None:
                yield last, names
            last, names = folder, []
        names.append(name)
    if last is not None:
        yield last, names


class Folder(Protocol):
    """A folder with a folder per class."""

    name: str
    """For people."""
    beside: list[str]
    """What lies beside the folders of the classes."""
    folders: set[str]
    """The names of these."""

    def runs(self, classes: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
        """As ``runs_of_classes`` gives them."""
        ...


class LocalFolder:
    """A folder on a disk of this machine.

    Args:
        root: Its path.

    Raises:
        OSError: It can't be read.
    """

    def __init__(self, root: str) -> None:
        self.name = root
        self.beside, self.folders = shown(root)

    def runs(self, classes: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
        """All files of the classes."""
        return runs_of_classes(self.name, classes)


def _parted(url: str) -> tuple[str, str]:
    folder, slash, name = url.rpartition("/")
    return folder + slash, name


def runs_of_classes(root: str, classes: Iterable[str]) -> Iterator[tuple[int, str, list[str]]]:
    """All files below the folders of the classes, also behind links, sorted by name.

    Folders stand among the files. What begins with a dot doesn't count, and a link to a folder
    above leads to nothing more.

    Yields:
        The number of a class, a folder of it, and names of files there.

    Raises:
        OSError: A folder that can't be read.
    """
    above = (os.path.realpath(root),)
    for label, name in enumerate(classes):
        for folder, names in runs_below(os.path.join(root, name), above):
            yield label, folder, names


def runs_below(folder: str, above: tuple[str, ...]) -> Iterator[Run]:
    """Files below a folder, sorted by name; what is a folder of ``above`` by a link isn't one.

    Raises:
        OSError: A folder that can't be read.
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
    """Names in a folder that don't begin with a dot: files, whatever else there is, and folders.

    Raises:
        OSError: It can't be read.
    """
    files, folders = [], set()
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name[0] == ".":
                continue
            if _is_folder(entry):
                folders.add(name)
            else:
                files.append(name)
    return files, folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # A link to itself, for one: who opens it hears of it.
        return False


def ending_of(name: str) -> str:
    """From the last dot on, in small letters; nothing where there is no dot."""
    return name[name.rindex(".") :].lower() if "." in name else ""


def is_named_like_an_image(name: str) -> bool:
    """Whether the ending is one of images; what a file holds is seen when it is decoded."""
    return name[name.rfind(".") :].lower() in ENDINGS
