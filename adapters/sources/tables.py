"""Lists and tables of files and their labels: Python's, CSV, pandas, MXNet's ``.lst``.

Each becomes a ``Table``: paths, and a label for each, which is a name, a number or several numbers.
``encoded`` turns labels into an array and class names. For samples of several images, a table
becomes a list of paths for each column.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import listed
from adapters.remote import clean, client_of, is_url
from adapters.remote.retry import persistently
from adapters.remote.urls import unescaped
from adapters.sources.files import is_named_like_an_image, runs_below

log = logging.getLogger("adapters")

# Column names in Keras's flow_from_dataframe, and in many other tables.
_FILE, _LABELS = "filename", ("class", "label")
_DELIMITERS = ",;\t"
_LEAVE_OUT = "leave the row out, or give it one"
# Most names in an error.
_MOST_NAMED = 3
_MARKS_OF_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Table(NamedTuple):
    """Files and their labels, None if the folders are the labels."""

    paths: list[str]
    labels: Sequence[Any] | None


def of_list(items: Any, classes: Collection[str]) -> Table:
    """Read a list of paths, or of pairs of a path and its label."""
    if isinstance(items, np.ndarray) and items.ndim == 2 and items.shape[1] == 2 and len(items):
        files, cells = items.T.tolist()
        items = list(zip(files, _values(cells, classes) if items.dtype.kind == "U" else cells))
    rule = "where must be a folder, a table, or a list of files or of pairs (file, label)"
    if isinstance(items, (bytes, Mapping)) or not hasattr(items, "__iter__"):
        raise TypeError(f"{rule}, got {type(items).__name__}")
    if isinstance(items, (set, frozenset)):
        raise TypeError(
            f"{rule}, got a {type(items).__name__}, which has no order: sorted makes a list of it"
        )
    if isinstance(items, tuple) and items and all(isinstance(x, (list, np.ndarray)) for x in items):
        raise TypeError(f"{rule}, got a tuple of lists: list(zip(files, labels)) makes pairs")
    paths: list[str] = []
    labels: list[Any] = []
    for place, item in enumerate(items):
        is_pair = isinstance(item, (tuple, list)) and len(item) == 2
        path = item[0] if is_pair else item
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"{rule}, got {item!r:.80} in place {place}")
        if paths and is_pair is not bool(labels):
            raise TypeError(f"{rule}, got some of both: {item!r:.80} in place {place}")
        paths.append(os.fspath(path))
        labels += [item[1]] if is_pair else []
    return Table(paths, labels or None)


def of_frame(frame: Any, columns: Sequence[Any] | None) -> Table:
    """Read a table with named columns, such as one of pandas or polars."""
    names = list(frame.columns)
    values = {name: np.asarray(frame[name]).tolist() for name in names}
    first = [values[name][0] if values[name] else None for name in names]
    file, *labels = _chosen(names, first, columns)
    for row, path in enumerate(values[file]):
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"column {file!r} must hold paths of files, got {path!r} in row {row}")
    return Table(list(map(os.fspath, values[file])), _joined([values[name] for name in labels]))


def of_csv(path: str, columns: Sequence[Any] | None, classes: Collection[str]) -> Table:
    """Read a text file of rows, whose first one may name the columns.

    ``columns`` are names, or numbers if there are none. Names of ``classes`` aren't numbers.
    """
    name = clean(path)
    content = table_bytes(path).decode("utf-8", "surrogateescape")
    text = io.StringIO(content, newline="")
    head = text.readline()
    if head[:4].lower() == "sep=" and len(head.rstrip("\r\n")) == 5:  # Written for Excel.
        delimiter = head[4]
    else:
        delimiter = max(_DELIMITERS, key=head.count)
        text.seek(0)
    # Without ``strict``, a quote that isn't closed would swallow the lines behind it.
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[list[str]] = []
    limit = csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0]):
                raise ValueError(
                    f"{name}, line {reader.line_num}: must have {len(rows[0])} cells as the first "
                    f"one has, got {len(row)}"
                )
            rows += [row] if row else []
    except csv.Error as error:
        raise ValueError(
            f"{name}, line {reader.line_num}: must be a row of cells, got {error}: double a quote "
            "inside a quoted cell, or give a table of pandas"
        ) from None
    finally:
        csv.field_size_limit(limit)
    if not rows:
        return Table([], None)
    if _are_names(rows, columns):
        names: list[Any] = [cell.strip() for cell in rows.pop(0)]
    else:
        names = list(range(len(rows[0])))
    file_column, *labels = _chosen(names, rows[0] if rows else [], columns)
    cells = {each: [row[place] for row in rows] for place, each in enumerate(names)}
    for column in (file_column, *labels):
        for place, cell in enumerate(cells[column]):
            if not cell.strip():
                what = "file" if column == file_column else "label"
                raise ValueError(
                    f"{name}: column {column!r} must have a {what} in each row, got none in row "
                    f"{place}, {rows[place]}: {_LEAVE_OUT}"
                )
    for label in labels:
        cells[label] = [cell.strip() for cell in cells[label]]
        swapped = [cell.replace(",", ".", 1) for cell in cells[label]]
        if not classes and swapped != cells[label] and type(_values(swapped, ())[0]) is float:
            raise ValueError(
                f"{name}: column {label!r} must have numbers with a decimal point, or classes, got "
                f"{next(cell for cell in cells[label] if ',' in cell)!r}: give the table that "
                f'pandas.read_csv(..., sep={delimiter!r}, decimal=",") reads, or name the classes'
            )
    return Table(cells[file_column], _joined([_values(cells[each], classes) for each in labels]))


def of_lst(path: str) -> Table:
    """Read a list in the format of MXNet's im2rec."""
    lines = list(lines_of_lst(path))
    labels: list[Any] = [labels[0] if len(labels) == 1 else labels for _, labels, _ in lines]
    if not any(isinstance(label, list) or label % 1 for label in labels):
        labels = list(map(int, labels))  # im2rec writes 3.000000.
    return Table([name for _, _, name in lines], labels)


def table_bytes(path: str) -> bytes:
    """Read a table, also from a URL, without its byte order mark."""
    if is_url(path):
        client, key = client_of(path)
        content = persistently(lambda: client.get_all(key), clean(path))[0]
    else:
        with open(path, "rb") as file:
            content = file.read()
    if content.startswith(_MARKS_OF_UTF16):  # Written by the Windows shell.
        content = content.decode("utf-16").encode()
    return content.removeprefix(codecs.BOM_UTF8)


def lines_of_lst(path: str) -> Iterator[tuple[int, list[float], str]]:
    """Yield number, labels and path of each line, ``number<TAB>label<TAB>...<TAB>path``."""
    text = os.fsdecode(table_bytes(path))  # Decoded like file names, whatever their bytes.
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            number, *labels, name = (part.strip() for part in content.split("\t"))
            values = list(map(float if len(labels) > 1 else _number, labels))
            if not values:
                raise ValueError("no label")
            if not name:
                raise ValueError("no path")
            if not 0 <= int(number) < 1 << 63:
                raise ValueError("a number below 0, or above 2^63 - 1")
        except ValueError as error:
            raise ValueError(
                f"{clean(path)}, line {line}: must be number, label or labels and path, with tabs "
                f"between them, got {content!r} ({error})"
            ) from None
        yield int(number), values, name


def _number(text: str) -> float:
    """Parse an integer if possible: floats are exact only up to 2**53."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _are_names(rows: list[list[str]], columns: Sequence[Any] | None) -> bool:
    """True if the first row of a CSV file names its columns."""
    first, *rest = rows[:2]
    if any(map(is_named_like_an_image, first)):
        return False
    above = [name for row in rest for name, cell in zip(first, row) if is_named_like_an_image(cell)]
    if above and not any("/" in name or os.path.splitext(name)[1] for name in above):
        return True
    if columns is not None:
        return not all(isinstance(name, int) for name in columns)
    if rest and _FILE not in map(str.strip, first):
        raise ValueError(
            f"columns must say whether {rows[0]} are the names of columns, as no file is named "
            "like an image: by two of these names, or as columns=(0, 1) if they are none"
        )
    return True


def _chosen(names: list[Any], first: list[Any], columns: Sequence[Any] | None) -> list[Any]:
    """Choose the columns of the file and its labels: the given ones, or by detection."""
    chosen = _detected_columns(names, first) if columns is None else list(columns)
    for name in chosen:
        if name not in names:
            raise ValueError(f"columns must be of the table's {names}, got {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"columns must be named once in the table's {names}, {name!r} isn't")
    return chosen


def _detected_columns(names: list[Any], first: list[Any]) -> list[Any]:
    """Detect the columns of the file and its labels."""
    like_images = [
        name for name, cell in zip(names, first) if is_named_like_an_image(str(cell))
    ] or names[:1]
    file = _FILE if _FILE in names else like_images[0]
    rest = [name for name in names if name != file]
    label = [name for name in _LABELS if name in rest][:1]
    if len(like_images) > 1 and file != _FILE:
        raise ValueError(
            'columns must say which are the file and its label, as in columns=("filename", '
            f'"class"), as several hold files: {like_images}; an image and its mask are a pair of '
            f"files, open_images(list(zip(table[{like_images[0]!r}], table[{like_images[1]!r}])))"
        )
    if len(rest) > 1 and not label:
        raise ValueError(
            'columns must say which are the file and its label, as in columns=("filename", '
            f'"class"), as it can\'t be told of {names}'
        )
    return [file, *(label or rest)]


def _values(cells: list[str], classes: Collection[str]) -> list[Any]:
    """Convert cells to numbers if all of them are, and none is a class name."""
    if not any(cell in classes or "_" in cell for cell in cells):  # Python reads 1_1 as 11.
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return [kind(cell) for cell in cells]
    return cells


def _joined(columns: list[list[Any]]) -> Sequence[Any] | None:
    """Labels of each row, from one, several or no columns."""
    return list(zip(*columns)) if len(columns) > 1 else next(iter(columns), None)


def columns_of_list(items: Any, count: int) -> list[list[str]]:
    """Paths of each column in a list of tuples."""
    rule = f"where must be {count} folders, a table, or a list of tuples of {count} files"
    if isinstance(items, (str, bytes, os.PathLike, dict)) or not hasattr(items, "__iter__"):
        raise TypeError(
            f"{rule} with decode=({'..., ' * (count - 1)}...), got {items!r:.80}: "
            "list(zip(images, masks)) makes pairs"
        )
    rows: list[list[str]] = []
    for place, item in enumerate(items):
        given = list(item) if isinstance(item, (tuple, list, np.ndarray)) else [item]
        if len(given) != count or not all(isinstance(each, (str, os.PathLike)) for each in given):
            raise TypeError(
                f"{rule}, got {item!r:.80} in place {place}: list(zip(images, masks)) makes pairs"
            )
        rows.append([os.fspath(each) for each in given])
    if not rows:
        raise ValueError("where must hold at least one sample, got a list of none")
    return [list(column) for column in zip(*rows)]


def columns_of_folders(folders: Sequence[Any]) -> list[list[str]]:
    """Paths of the images in each folder, matched by name without the ending."""
    roots = [os.fspath(folder) for folder in folders]
    if any(map(is_url, roots)):
        raise ValueError(
            "where must be folders of this machine to be matched by name: give the files of a "
            "store as a list of tuples"
        )
    found = [_by_stem(root) for root in roots]
    stems = found[0].keys()
    for root, names in zip(roots, found):
        if not names:
            raise ValueError(f"where must hold at least one image in each folder, got {root!r}")
        odd = sorted(stems ^ names.keys())
        if odd:
            shown = ", ".join(map(repr, odd[:_MOST_NAMED])) + ", ..." * (len(odd) > _MOST_NAMED)
            raise ValueError(
                f"where must be folders with images of the same names but for the endings, got "
                f"{len(odd)} in only one of {roots[0]!r} and {root!r} ({shown}): give others as a "
                "list of tuples of files"
            )
    return [[names[stem] for stem in stems] for names in found]


def _by_stem(root: str) -> dict[str, str]:
    """Paths by name below the folder, without the ending; sorted."""
    named: dict[str, str] = {}
    for folder, names in runs_below(root, ()):
        for name in filter(is_named_like_an_image, names):
            path = os.path.join(folder, name)
            stem = os.path.splitext(os.path.relpath(path, root))[0]
            if stem in named:
                raise ValueError(
                    f"where must be folders with one image of each name, got {named[stem]!r} and "
                    f"{path!r}: give a list of tuples of files"
                )
            named[stem] = path
    return {stem: named[stem] for stem in sorted(named)}


def columns_of_table(table: Table, count: int) -> list[list[str]]:
    """Paths of each column in a table of ``count`` columns of paths."""
    rows = [list(row) if isinstance(row, (tuple, list)) else [row] for row in table.labels or ()]
    wrong = next((row for row in rows if not all(isinstance(each, str) for each in row)), None)
    if not rows or len(rows[0]) != count - 1 or wrong is not None:
        raise ValueError(
            f"columns must name {count} columns of files for {count} decoders, as in "
            f'columns=("image", "mask"), got {1 + len(rows[0] if rows else ())} columns'
            + (f", of which one holds {wrong!r}" if wrong else "")
        )
    return [table.paths, *map(list, zip(*rows))]


def first_path_in(labels: Sequence[Any] | None) -> str | None:
    """First label of the first sample that looks like an image path, or None."""
    first = next(iter(labels or ()), None)
    for each in first if isinstance(first, (tuple, list)) else [first]:
        path = os.fspath(each) if isinstance(each, os.PathLike) else each
        if isinstance(path, str) and is_named_like_an_image(path):
            return path
    return None


# --- labels ---


def classes_argument(classes: Any) -> list[str] | None:
    """Check the ``classes`` argument: names, each once."""
    if classes is None:
        return None
    if isinstance(classes, (str, bytes, os.PathLike)) or not hasattr(classes, "__iter__"):
        raise TypeError(f"classes must be a list of names, got {classes!r}")
    if isinstance(classes, (set, frozenset, Mapping)):  # Such as Keras's class_indices.
        remedy = "sorted(classes, key=classes.get)" if isinstance(classes, Mapping) else "sorted"
        raise TypeError(
            f"classes must be a list of names, whose order says their numbers, got {classes!r}: "
            f"{remedy} makes one"
        )
    names = list(classes)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"classes must be names, got {name!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"classes must be one name or more, each once, got {listed(names)}")
    return [str(name) for name in names]


def by_folder(paths: Iterable[str]) -> list[str]:
    """Names of the folders that contain these files."""
    folders = [os.path.dirname(clean(path)) for path in paths]
    names = {
        folder: unescaped(folder, os.path.basename(os.path.abspath(folder)))
        for folder in dict.fromkeys(folders)
    }
    return [names[folder] for folder in folders]


def encoded(
    labels: Sequence[Any], classes: list[str] | None
) -> tuple[NDArray[Any], list[str] | None, NDArray[np.bool_] | None]:
    """Convert labels to an array, with class names and a mask of the samples to keep.

    ``classes`` are the names to keep, in label order, or the names of the numbers from 0.

    Returns:
        Labels of the samples to keep: int64 or float64 ``(samples,)``, int64 or float32 ``(samples,
            labels)``, or an object array of variable-length arrays. The class names are None for
            unnamed numbers, the mask is None if all samples are kept.
    """
    if any(isinstance(label, str) for label in labels):
        return _of_names(labels, classes)
    array = _of_numbers(labels)
    if classes is not None:
        if array.ndim != 1 or array.dtype != np.int64:
            raise ValueError("classes must go with labels that are names, or one whole number each")
        wrong = np.flatnonzero((array < 0) | (array >= len(classes)))
        if len(wrong):
            place = int(wrong[0])
            raise ValueError(
                f"classes must name every label, got {len(classes)} names, for labels in "
                f"range({len(classes)}), and label {array[place]} in row {place}"
            )
    return array, classes, None


def _of_names(
    labels: Sequence[Any], classes: list[str] | None
) -> tuple[NDArray[Any], list[str] | None, NDArray[np.bool_] | None]:
    for row, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(
                f"labels must be all names or all numbers, got {label!r} in row {row}"
                + (f": {_LEAVE_OUT}" if _is_missing(label) else "")
            )
    found = sorted(set(labels))
    names = found if classes is None else classes
    numbers = {name: number for number, name in enumerate(names)}
    array = np.array([numbers.get(label, -1) for label in labels], np.int64)
    kept = array >= 0
    if not kept.any():
        raise ValueError(f"classes must name some of {listed(found)}, got {listed(names)}")
    missing = sorted(set(names).difference(found))
    if missing and not kept.all():
        others = sorted(set(found).difference(names))
        log.warning(
            "classes: %s have no samples, and %d rows of %s are left out",
            *(listed(missing), np.count_nonzero(~kept), listed(others)),
        )
    return array[kept], list(names), None if kept.all() else kept


def _is_missing(label: Any) -> bool:
    return str(label) in ("None", "nan", "<NA>", "NaT")


def _of_numbers(labels: Sequence[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(labels)
    except ValueError:  # Variable lengths.
        return _one_by_one(labels)
    floats, is_flat = array.dtype.kind == "f", array.ndim == 1
    if floats and is_flat and all(isinstance(label, (int, np.integer)) for label in labels):
        raise ValueError(  # NumPy rounds 2**63 next to negative numbers.
            f"labels must be numbers that int64 holds, got {max(labels, key=abs)}"
        )
    if array.dtype.kind not in "biuf" or array.ndim > 2 or not array.size or np.isnan(array).any():
        return _one_by_one(labels)
    if floats:
        return array.astype(np.float64) if is_flat else _as_float32(array)
    return _as_int64(array)


def _as_int64(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"labels must be numbers that int64 holds, got {array.max()}")
    return array.astype(np.int64)


def _as_float32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Round to float32; whole numbers, which may be ids, must stay exact."""
    with np.errstate(over="ignore"):
        held: NDArray[np.float32] = array.astype(np.float32)
    wrong = array[(held != array) & (np.floor(array) == array)]
    if len(wrong):
        raise ValueError(
            "labels must be numbers that float32 holds, where a sample has several and they are no "
            f"integers, got {wrong[0]:.17g}: leave that column out, or make it smaller"
        )
    return held


def _one_by_one(labels: Sequence[Any]) -> NDArray[Any]:
    """Convert labels that form no array: variable lengths, or invalid labels."""
    arrays = [np.asarray(label) for label in labels]
    for row, array in enumerate(arrays):
        is_number = array.dtype.kind in "biuf" and array.ndim <= 1
        if not is_number or not array.size or np.isnan(array).any():
            boxes = (
                "of others, such as boxes, give the row's number as the label, and have a "
                "transform look them up by it"
            )
            raise ValueError(
                f"labels must be names, numbers, or several numbers, got {labels[row]!r:.80} in "
                f"row {row}: {_LEAVE_OUT if _is_missing(labels[row]) else boxes}"
            )
    whole = all(array.dtype.kind != "f" for array in arrays)
    ragged = np.empty(len(arrays), object)
    flat = [array.reshape(-1) for array in arrays]
    ragged[:] = [_as_int64(array) if whole else _as_float32(array) for array in flat]
    return ragged
