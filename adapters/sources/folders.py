"""``open_images``: opens a folder, list or table of image files as a source."""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import counted, listed
from adapters.images import ImageDecoder
from adapters.records import irheader
from adapters.remote.cache import Cache, cache_of
from adapters.remote.urls import as_path, below, clean, folder_url, is_url
from adapters.sources import tables
from adapters.sources.decoders import Custom, Images, content_of
from adapters.sources.files import (
    ENDINGS,
    Files,
    Folder,
    Listed,
    Run,
    StoreFolder,
    ending_of,
    is_named_like_an_image,
    runs_of,
    shown,
)
from adapters.sources.imagefiles import ImageSource, ImageTuples
from adapters.sources.objectreader import ObjectReader
from adapters.sources.tables import Table, by_folder, classes_argument, encoded

log = logging.getLogger("adapters")

# Files that Windows leaves in image folders.
_NOBODYS = {"thumbs.db", "desktop.ini"}
_TABLES = (".csv", ".tsv")
_LIST = ".lst"
# Labels checked for boxes; in detection data, nearly each has one.
_MOST_LABELS = 100
_PAIR = 'decode=(ImageDecoder(224), ImageDecoder(224, channels=1, interpolation="nearest"))'


_Decode = str | ImageDecoder | Callable[[bytes], Any] | None


@overload
def open_images(
    where: Any,
    *,
    decode: _Decode = None,
    classes: Iterable[str] | None = None,
    columns: Sequence[Any] | None = None,
    root: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | Cache | None = None,
) -> ImageSource: ...


@overload
def open_images(
    where: Any,
    *,
    decode: tuple[_Decode, ...],
    classes: None = None,
    columns: Sequence[Any] | None = None,
    root: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | Cache | None = None,
) -> ImageTuples: ...


def open_images(
    where: Any,
    *,
    decode: _Decode | tuple[_Decode, ...] = None,
    classes: Iterable[str] | None = None,
    columns: Sequence[Any] | None = None,
    root: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | Cache | None = None,
) -> ImageSource | ImageTuples:
    """Open files of one image each as a source with random access, without packing them.

    A file is not read before its sample is requested. Links are followed. Files, folders, tables
    and their entries may be URLs: ``s3://bucket/photos/``, ``gs://``, ``az://``, ``http(s)://`` and
    whatever fsspec knows. The files of a batch are then fetched concurrently.

    Args:
        where: A folder with a folder per class: all files below that are named like images, sorted
            by name, except names that begin with a dot. Or a list of files, whose classes are their
            folders, or of pairs (file, label). Or a table: a CSV file, a DataFrame of pandas (or
            polars), or an ``.lst`` file of MXNet's im2rec, ``number <TAB> label <TAB> path``,
            possibly with several labels. A folder URL is listed by its store; a plain web server
            can't do that.
        decode: Decoding of a file. None or ``"image"``: uint8 (height, width, 3), RGB, in the size
            of the image; for an ``.npy`` file, its array unchanged. An ``ImageDecoder``: its array,
            decoded straight into its place in the batch. A function: its result for the bytes. A
            tuple of these: samples are tuples of as many images, such as an image and its mask, all
            cropped and flipped alike. Then ``where`` is a list of tuples of files, a tuple of
            folders whose images have the same names except for the endings, or a table with
            ``columns=("image", "mask")``.
        classes: Class names in label order; by default all classes, sorted. Files of other classes
            are left out. For numeric labels, the names of the numbers.
        columns: For a table: names of the file column and of one or more label columns, or their
            numbers from 0 in a CSV file without names. By default ``"filename"`` and ``"class"`` or
            ``"label"``, or the only two columns.
        root: Folder that relative paths in a list or table start from; by default that of the CSV
            or ``.lst`` file, or the working directory.
        cache: A folder on a local disk, or a ``Cache``, for files read from a store or a slow disk.
            A folder means a limit of 100 GB.

    Returns:
        A source of samples (image, label). A single label is a Python number, several are float32
            or int64 ``(labels,)``. It has ``files``, ``labels`` and ``classes``, and, like the
            result of ``open_records``, ``len``, ``[i]``, slices, iteration, ``read(i)``, ``close``
            and ``with``. With a tuple of decoders, samples are tuples of images, ``files`` has
            tuples, and there are no labels.

    Raises:
        ConnectionError: A store doesn't answer within a minute, or the seconds in the environment
            variable ``ADAPTERS_REMOTE_SECONDS``.
        FileNotFoundError: No such folder or table.
        ImportError: No package is installed for this kind of URL.
        OSError: A folder or table can't be read.
        TypeError: ``where`` is something else, or an argument has the wrong type.
        ValueError: No images, no folder per class, unknown classes, a table with ambiguous columns,
            invalid labels, or a folder of a web server.

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
    is_list = isinstance(columns, Sized) and not isinstance(columns, (str, set, frozenset))
    if columns is not None and not (is_list and len(columns)):
        raise TypeError(f'columns must be names, like ("filename", "class"), got {columns!r}')
    if isinstance(decode, (tuple, list)):
        return _tuples(where, decode, classes, columns, root, cache_of(cache))
    content = _content(decode)
    names = classes_argument(classes)
    kept = cache_of(cache)
    if isinstance(where, str):
        where = as_path(where)
    in_store = is_url(where) and not _is_table(where)
    if in_store or (isinstance(where, (str, os.PathLike)) and os.path.isdir(where)):
        _refuse_for_folders(columns, root)
        folder = StoreFolder(where) if in_store else Folder(os.fspath(where))
        files, labels, names = _of_folder(folder, names)
        return _opened(files, labels, names, content, kept, folder.listed(files))
    if isinstance(where, (tuple, list)) and where and all(map(_is_folder, where)):
        raise ValueError(
            f"decode must be a tuple of decoders for folders of images and masks, {_PAIR}, got "
            f"{decode!r}: folders of classes are opened one by one, and concatenate joins them"
        )
    table, beside = _table(where, columns, names)
    prefix = beside if root is None else _prefix(root)
    paths = [_placed(prefix, path) for path in table.paths]
    if not paths:
        raise ValueError("where must hold at least one image, got a list or a table of none")
    other = tables.first_path_in(table.labels)
    if other is not None and (is_url(path := _placed(prefix, other)) or os.path.isfile(path)):
        raise ValueError(
            f"where must have labels beside its files, got {clean(path)!r}, which is a file: for "
            f"samples of an image and its mask, {_PAIR}"
        )
    given = by_folder(paths) if table.labels is None else table.labels
    labels, names, chosen = encoded(given, names)
    own = paths if chosen is None else itertools.compress(paths, chosen.tolist())
    return _opened(Files(runs_of(own)), labels, names, content, kept)


def _tuples(
    where: Any,
    decode: Sequence[Any],
    classes: Any,
    columns: Sequence[Any] | None,
    root: Any,
    cache: Cache | None,
) -> ImageTuples:
    """Open samples of as many images as there are decoders."""
    if len(decode) < 2:
        raise ValueError(f"decode must be a tuple of two decoders or more, got {decode!r}")
    if classes is not None:
        raise ValueError("classes are for labels, and with a tuple as decode there are none")
    contents, prefix = [_content(each) for each in decode], ""
    is_path = isinstance(where, (str, os.PathLike))
    if isinstance(where, (tuple, list)) and where and all(map(_is_folder, where)):
        if len(where) != len(decode):
            raise ValueError(
                f"decode must have a decoder for each of {len(where)} folders, got {len(decode)}"
            )
        _refuse_for_folders(columns, root)
        found = tables.columns_of_folders(where)
    elif (is_path and _is_table(os.fspath(where))) or hasattr(where, "columns"):
        table, prefix = _table(where, columns, None)
        found = tables.columns_of_table(table, len(decode))
    else:
        if columns is not None:
            raise ValueError("columns are for tables, got a list as where")
        found = tables.columns_of_list(where, len(decode))
    prefix = prefix if root is None else _prefix(root)
    parts = []
    for paths, content in zip(found, contents):
        files = Files(runs_of([_placed(prefix, path) for path in paths]))
        labels = np.zeros(len(paths), np.int64)
        parts.append(_opened(files, labels, None, content, cache))
    return ImageTuples(parts)


def _is_folder(path: Any) -> bool:
    if not isinstance(path, (str, os.PathLike)):
        return False
    place = as_path(os.fspath(path))
    return clean(place).endswith("/") if is_url(place) else os.path.isdir(place)


def _opened(
    files: Files,
    labels: NDArray[Any],
    names: list[str] | None,
    content: Images | Custom,
    cache: Cache | None,
    known: Listed | None = None,
) -> ImageSource:
    """Make the source, with a reader of local files or of a store."""
    several = labels.ndim > 1 or labels.dtype == object
    if several and isinstance(content, Images) and content.moves:
        for label in labels[:_MOST_LABELS]:
            irheader.refuse_objects(label)
    reader = None
    if cache is not None or not files.are_local:
        reader = ObjectReader(files, cache, known)
    return ImageSource(files, labels, names, content, reader)


def _refuse_for_folders(columns: Any, root: Any) -> None:
    if columns is not None or root is not None:
        raise ValueError("columns and root are for lists and tables, got a folder as where")


def _prefix(root: str | os.PathLike[str]) -> str:
    """Base of relative paths, from the ``root`` argument."""
    prefix = as_path(os.fspath(root))
    return prefix.rstrip("/") + "/" if is_url(prefix) else prefix


def _placed(prefix: str, path: str) -> str:
    """Full path of an entry in a list or table."""
    path = as_path(path)
    if is_url(path):
        return path
    if is_url(prefix) and not os.path.isabs(path):
        return below(prefix, path)
    return os.path.join(prefix, path)


def _is_table(path: str) -> bool:
    return ending_of(clean(path)) in (*_TABLES, _LIST)


def names_images(path: Any) -> bool:
    """True if a path is that of an image folder, or of a list or table by its ending.

    The URL of a folder ends with a slash. A local folder that holds only files, none of them named
    like an image, is a folder of record files.
    """
    if not isinstance(path, (str, os.PathLike)):
        return False
    place = as_path(os.fspath(path))
    if _is_table(place) or is_url(place):
        return _is_table(place) or clean(place).endswith("/")
    if not os.path.isdir(place):
        return False
    files, folders = shown(place)
    return bool(folders) or not files or any(map(is_named_like_an_image, files))


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
    """Read a list or table; return it and the base of its relative paths."""
    if not isinstance(where, (str, os.PathLike)):
        if hasattr(where, "columns") and hasattr(where, "__getitem__"):
            return tables.of_frame(where, columns), ""
        if columns is not None:
            raise ValueError("columns are for tables, got a list as where")
        return tables.of_list(where, classes or ()), ""
    path = os.fspath(where)
    ending, place = ending_of(clean(path)), os.path.dirname(path)
    if is_url(path):
        place = folder_url(path)
    elif not os.path.exists(path):
        raise FileNotFoundError(
            f"where must be a folder, a list or a table, and {path!r} isn't there; of a glob's "
            "files, sorted(glob.glob(...)) is a list"
        )
    if ending in _TABLES:
        return tables.of_csv(path, columns, classes or ()), place
    if ending == _LIST:
        if columns is not None:
            raise ValueError("columns are for tables with names, got an .lst file as where")
        return tables.of_lst(path), place
    raise ValueError(
        "where must be a folder with a folder per class, a list of files, or a table (.csv, .tsv, "
        f".lst), got {path!r}; record files are for open_records"
    )


def _of_folder(
    folder: Folder, classes: list[str] | None
) -> tuple[Files, NDArray[np.int64], list[str]]:
    """Files of the classes, their labels and the names of the classes."""
    root, folders = folder.name, folder.folders
    loose = sum(map(is_named_like_an_image, folder.beside))
    names = sorted(folders) if classes is None else classes
    if not folders:
        raise ValueError(
            f"where must have a folder per class, got {root!r} with {counted(loose, 'image')} "
            "and no folder: give images with labels as a list [(file, label), ...] or a table, and "
            "those without as a list of files; record files are for open_records"
        )
    for name in names:
        if name not in folders:
            raise ValueError(
                f"classes must be folders in {root!r}, {listed(sorted(folders))}, got {name!r}"
            )
    counts = np.zeros(len(names), np.int64)
    others: Counter[str] = Counter()

    def runs() -> Iterator[Run]:
        for label, name in enumerate(names):
            for place, found in folder.runs(name):
                images = list(filter(is_named_like_an_image, found))
                counts[label] += len(images)
                if len(images) < len(found):
                    left = (file for file in found if not is_named_like_an_image(file))
                    others.update(ending_of(file) for file in left if file.lower() not in _NOBODYS)
                yield place, images

    files = Files(runs())
    if not len(files):
        raise ValueError(
            f"where must hold at least one image, got {root!r} with none in the folders "
            f"{listed(names)}: names must end in {', '.join(sorted(ENDINGS))}; "
            "a list of files takes any"
        )
    left_out = []
    if others:
        kinds = ", ".join(
            f"{count} {ending or 'without an ending'}" for ending, count in others.most_common(5)
        )
        left_out.append(f"{counted(others.total(), 'file')} without an image's ending ({kinds})")
    if loose:
        left_out.append(f"{counted(loose, 'image')} beside the folders of the classes")
    if left_out:
        left = " and ".join(left_out)
        log.warning("%s: left out %s; a list of files takes any", root, left)
    if not counts.all():
        empty = [name for name, count in zip(names, counts) if not count]
        log.warning("%s: there are no images in the folders %s", root, listed(empty))
    return files, np.repeat(np.arange(len(names)), counts), names
