"""``open_images``: from a folder, a list or a table of images to a source."""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images import ImageDecoder
from adapters.sources.contents import Custom, Images, content_of
from adapters.sources.files import (
    ENDINGS,
    Files,
    Run,
    ending_of,
    is_named_like_an_image,
    runs_of,
    runs_of_classes,
    shown,
)
from adapters.sources.imagefiles import ImageSource
from adapters.sources.labels import by_folder, classes_argument, encoded, listed
from adapters.sources.tables import Table, of_csv, of_frame, of_list, of_lst

log = logging.getLogger("adapters")

# What Windows leaves in folders of pictures.
_NOBODYS = {"thumbs.db", "desktop.ini"}
_TABLES = (".csv", ".tsv")
_LIST = ".lst"


def open_images(
    where: Any,
    *,
    decode: str | ImageDecoder | Callable[[bytes], Any] | None = None,
    classes: Iterable[str] | None = None,
    columns: Sequence[Any] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> ImageSource:
    """Open files that are an image each as one source with random access, without packing them.

    Nothing is read of a file before its sample is asked for. Links are followed.

    Args:
        where: A folder with a folder per class. All files below that are named like images count,
            sorted by name; names that begin with a dot don't. Or a list of files, whose classes are
            the folders that they are in, or of pairs (file, label). Or a table: a CSV file, a
            DataFrame of pandas (or polars), or an ``.lst`` file as MXNet's im2rec has it, ``number
            <TAB> label <TAB> path``, with several labels perhaps.
        decode: What a file becomes. None or ``"image"``: uint8 (height, width, 3), RGB, as large as
            the image is. An ``ImageDecoder``: array as it says, straight into its place in the
            batch. A function: what that makes of the bytes.
        classes: The names of the classes, in the order of their labels; else all there are, sorted.
            Files of other classes are left out. Of labels that are numbers: what these are called.
        columns: Of a table: the names of the column of files and of that of labels, or several;
            their numbers, from 0, where a CSV file doesn't name them. Else ``"filename"`` and
            ``"class"`` or ``"label"``, or the only two that there are.
        root: The folder that relative paths in a list or a table begin at; else that of the CSV or
            ``.lst`` file, or the working directory.

    Returns:
        A source of samples (image, label), where one label is a Python number, several are float32
        or int64 ``(labels,)``. It has ``files``, ``labels`` and ``classes``; ``len``, ``[i]``,
        slices, iteration, ``read(i)``, ``close`` and ``with``, as what ``open_records`` returns.

    Raises:
        FileNotFoundError: No such folder or table.
        OSError: It can't be read.
        TypeError: Something else, or an argument of the wrong type.
        ValueError: No images, no folder per class, classes that aren't there, a table of which it
            can't be told what its columns are, or labels that are none.

    Example:
        >>> import cv2, numpy as np, os, tempfile
        >>> from adapters import ImageDecoder, open_images
        >>> photos = tempfile.mkdtemp()
        >>> for name in ("ant", "bee"):
        ...     os.mkdir(os.path.join(photos, name))
        ...     cv2.imwrite(os.path.join(photos, name, "1.png"), np.zeros((40, 50, 3), "uint8"))
        True
        True
        >>> images = open_images(photos, decode=ImageDecoder(32))
        >>> images.classes, images.labels.tolist(), images[1][0].shape
        (['ant', 'bee'], [0, 1], (32, 32, 3))
    """
    content = _content(decode)
    names = classes_argument(classes)
    if columns is not None and (isinstance(columns, str) or not len(columns)):
        raise TypeError(f'columns must be names, like ("filename", "class"), got {columns!r}')
    if isinstance(where, (str, os.PathLike)) and os.path.isdir(where):
        if columns is not None or root is not None:
            raise ValueError("columns and root are for lists and tables, got a folder as where")
        files, labels, names = _of_folder(os.fspath(where), names)
        return ImageSource(files, labels, names, content)
    table, beside = _table(where, columns, names)
    begin = beside if root is None else os.fspath(root)
    paths = [os.path.join(begin, path) for path in table.paths]
    if not paths:
        raise ValueError("where must hold at least one image, got a list or a table of none")
    labels, names, kept = encoded(by_folder(paths) if table.labels is None else table.labels, names)
    chosen = paths if kept is None else itertools.compress(paths, kept.tolist())
    return ImageSource(Files(runs_of(chosen)), labels, names, content)


def names_images(path: Any) -> bool:
    """Whether a path is that of a folder, or of a list or table by its ending."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    return os.path.isdir(path) or ending_of(os.fspath(path)) in (*_TABLES, _LIST)


def _content(decode: Any) -> Images | Custom:
    content: Any = None
    if decode is None or decode == "image" or callable(decode) or isinstance(decode, ImageDecoder):
        content = content_of("image" if decode is None else decode, None)
    if not isinstance(content, (Images, Custom)):
        raise ValueError(
            'decode must be None, "image", an ImageDecoder or a function of bytes for images, got '
            f"{decode!r}"
        )
    return content


def _table(
    where: Any, columns: Sequence[Any] | None, classes: list[str] | None
) -> tuple[Table, str]:
    """What a list or a table holds, and where its relative paths begin."""
    if not isinstance(where, (str, os.PathLike)):
        if hasattr(where, "columns") and hasattr(where, "__getitem__"):
            return of_frame(where, columns), ""
        if columns is not None:
            raise ValueError("columns are for tables, got a list as where")
        return of_list(where), ""
    path = os.fspath(where)
    ending = ending_of(path)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"where must be a folder, a list or a table, and {path!r} isn't there"
        )
    if ending in _TABLES:
        return of_csv(path, columns, classes or ()), os.path.dirname(path)
    if ending == _LIST:
        if columns is not None:
            raise ValueError("columns are for tables with names, got an .lst file as where")
        return of_lst(path), os.path.dirname(path)
    raise ValueError(
        "where must be a folder with a folder per class, a list of files, or a table (.csv, .tsv, "
        f".lst), got {path!r}; record files are for open_records"
    )


def _of_folder(root: str, classes: list[str] | None) -> tuple[Files, NDArray[np.int64], list[str]]:
    beside, folders = shown(root)
    loose = sum(map(is_named_like_an_image, beside))
    names = sorted(folders) if classes is None else classes
    if not folders:
        raise ValueError(
            f"where must have a folder per class, got {root!r} with {loose} images and no folder: "
            "give images with labels as a list [(file, label), ...] or a table, and those without "
            "as a list of files"
        )
    for name in names:
        if name not in folders:
            raise ValueError(
                f"classes must be folders in {root!r}, {listed(sorted(folders))}, got {name!r}"
            )
    counts = np.zeros(len(names), np.int64)
    others: Counter[str] = Counter()

    def runs() -> Iterator[Run]:
        for label, folder, found in runs_of_classes(root, names):
            images = list(filter(is_named_like_an_image, found))
            counts[label] += len(images)
            if len(images) < len(found):
                left = (file for file in found if not is_named_like_an_image(file))
                others.update(ending_of(file) for file in left if file.lower() not in _NOBODYS)
            yield folder, images

    files = Files(runs())
    if not len(files):
        raise ValueError(
            f"where must hold at least one image, got {root!r} with none in the folders "
            f"{listed(names)}: names must end in {', '.join(sorted(ENDINGS))}"
        )
    _tell(root, loose, others, [name for name, count in zip(names, counts) if not count])
    return files, np.repeat(np.arange(len(names)), counts), names


def _tell(root: str, loose: int, others: Counter[str], empty: list[str]) -> None:
    """Say what was left out, in one line."""
    said = []
    if others:
        kinds = ", ".join(
            f"{count} {ending or 'without an ending'}" for ending, count in others.most_common(5)
        )
        said.append(f"{sum(others.values())} files that aren't named like images ({kinds})")
    if loose:
        said.append(f"{loose} images beside the folders of the classes")
    if said:
        log.warning("%s: left out %s; a list of files takes any", root, " and ".join(said))
    if empty:
        log.warning("%s: there are no images in the folders %s", root, listed(empty))
