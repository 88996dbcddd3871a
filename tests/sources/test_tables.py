"""``open_images`` of lists and tables: as Python, CSV, pandas and MXNet have files and labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import open_images
from tests.images.pictures import encoded, picture
from tests.sources.image_folders import jpeg, put


@pytest.fixture
def photos(tmp_path) -> Path:
    """Four files, in folders that say something else than the tables."""
    return put(tmp_path / "photos", "x/1.jpg", "x/2.jpg", "y/3.jpg", "y/4.jpg")


def seen(source: Any, root: Path) -> list[tuple[str, Any]]:
    """Path below the folder and label of each sample, as the source says and as it gives them."""
    paths = [os.path.relpath(path, root) for path in source.files]
    labels = [label.tolist() if isinstance(label, np.ndarray) else label for _, label in source]
    whole = [np.asarray(label).tolist() for label in source.labels]
    assert whole == labels
    return list(zip(paths, labels))


class Frame:
    """A table as pandas has it, by the attributes that are asked for."""

    def __init__(self, **columns: Any) -> None:
        self._columns = {name: np.array(values, object) for name, values in columns.items()}
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def test_list_of_files_has_classes_of_folders(photos):
    source = open_images([photos / "y/4.jpg", photos / "x/1.jpg", photos / "y/3.jpg"])
    assert seen(source, photos) == [("y/4.jpg", 1), ("x/1.jpg", 0), ("y/3.jpg", 1)]
    assert source.classes == ["x", "y"]


@pytest.mark.parametrize("kind", [list, tuple, np.array, iter])
def test_lists_of_every_kind(photos, kind):
    (photos / "x/odd").write_bytes(encoded(picture(4, 5), "PNG"))
    source = open_images(kind([str(photos / "x/odd")] * 2))
    assert [image.shape for image, _ in source] == [(4, 5, 3)] * 2


def test_list_of_relative_paths(photos, monkeypatch):
    monkeypatch.chdir(photos / "x")
    assert seen(open_images(["1.jpg", "../y/3.jpg"]), photos) == [("x/1.jpg", 0), ("y/3.jpg", 1)]
    assert seen(open_images(["y/4.jpg"], root=photos), photos) == [("y/4.jpg", 0)]


@pytest.mark.parametrize(
    ("labels", "expected", "dtype"),
    [
        ([3, 1], [3, 1], np.int64),
        ([True, False], [1, 0], np.int64),
        ([0.5, 2], [0.5, 2.0], np.float64),
        ([np.array([0.5, 2]), [3, 4]], [[0.5, 2.0], [3.0, 4.0]], np.float32),
        ([[1, 2, 3], [4]], [[1, 2, 3], [4]], object),
        ([[0.5, 2], 4], [[0.5, 2.0], [4.0]], object),
        (["dog", "cat"], [1, 0], np.int64),
    ],
)
def test_list_of_pairs(photos, labels, expected, dtype):
    source = open_images(list(zip([photos / "x/1.jpg", photos / "y/3.jpg"], labels)))
    assert seen(source, photos) == list(zip(["x/1.jpg", "y/3.jpg"], expected))
    assert source.labels.dtype == dtype
    kinds = {type(label) for _, label in source}
    assert kinds <= {int, float, np.ndarray}
    assert source.classes == (["cat", "dog"] if isinstance(labels[0], str) else None)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [([10, 2], None, [10, 2]), (["dog", "cat"], None, [1, 0]), (["1", "0"], ["1", "0"], [0, 1])],
)
def test_array_of_pairs(photos, labels, classes, expected):
    files = [str(photos / "x/1.jpg"), str(photos / "y/3.jpg")]
    source = open_images(np.array([files, labels]).T, classes=classes)
    assert seen(source, photos) == list(zip(["x/1.jpg", "y/3.jpg"], expected))


def test_classes_choose_among_names(photos, caplog):
    pairs = [(photos / "x/1.jpg", "dog"), (photos / "x/2.jpg", "cat"), (photos / "y/3.jpg", "cow")]
    source = open_images(pairs, classes=["dog", "cow", "emu"])
    assert seen(source, photos) == [("x/1.jpg", 0), ("y/3.jpg", 1)]
    assert source.classes == ["dog", "cow", "emu"]
    assert "['emu'] have no samples, and 1 rows of ['cat'] are left out" in caplog.text
    caplog.clear()
    numbered = open_images([(photos / "x/1.jpg", 1)], classes=["cat", "dog"])
    assert (numbered.classes, numbered.labels.tolist()) == (["cat", "dog"], [1])
    source = open_images(sorted(photos.glob("*/*")), classes=["y"])
    assert seen(source, photos) == [("y/3.jpg", 0), ("y/4.jpg", 0)]
    assert not caplog.records


@pytest.mark.parametrize(
    ("labels", "classes", "error", "message"),
    [
        ([0, 2], ["a", "b"], ValueError, r"range\(2\), and label 2 in row 1"),
        ([0.5, 1.0], ["a", "b"], ValueError, "names, or one whole number each"),
        (["a", "b"], ["c"], ValueError, r"classes must name some of \['a', 'b'\], got \['c'\]"),
        (["a", 1], None, TypeError, "got 1 in row 1"),
        ([0.5, float("nan")], None, ValueError, "got nan in row 1: leave the row out"),
        (["a", None], None, TypeError, "got None in row 1: leave the row out"),
        ([0, []], None, ValueError, r"got \[\] in row 1"),
        ([2**63, 2**63], None, ValueError, "numbers that int64 holds, got 9223372036854775808"),
        ([[2**63], [0, 1]], None, ValueError, "that int64 holds, got 9223372036854775808"),
        ([0, 2**64], None, ValueError, "got 18446744073709551616 in row 1"),
        ([[2**24 + 1], [0.5, 2]], None, ValueError, r"float32 holds.* got .*16777217"),
        ([["a"], ["b"]], None, ValueError, r"got \['a'\] in row 0"),
    ],
)
def test_wrong_labels_are_refused_by_row(photos, labels, classes, error, message):
    with pytest.raises(error, match=message):
        open_images([(photos / "x/1.jpg", label) for label in labels], classes=classes)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([("a.jpg", 1), "b.jpg"], "got some of both: 'b.jpg' in place 1"),
        ((["a.jpg", "b.jpg"], [0, 1]), r"got a tuple of lists: list\(zip\("),
        (["a.jpg", 7], "got 7 in place 1"),
        ({"a.jpg": 1}, "got dict"),
        ({"a.jpg", "b.jpg"}, "got a set, which has no order: sorted makes a list of it"),
        (b"photos", "got bytes"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_list_is_told(where, message):
    with pytest.raises(TypeError, match=f"where must be a folder, a table, or a list.*{message}"):
        open_images(where)
    with pytest.raises(ValueError, match="at least one image, got a list or a table of none"):
        open_images([])


def csv_file(photos: Path, text: str | bytes, name: str = "labels.csv") -> Path:
    path = photos / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("filename,class\nx/1.jpg,dog\ny/3.jpg,cat\n", [("x/1.jpg", 1), ("y/3.jpg", 0)]),
        ("class,filename\ndog,x/1.jpg\ncat,y/3.jpg", [("x/1.jpg", 1), ("y/3.jpg", 0)]),
        ("id,filename,label,split\n7,x/1.jpg,3,a\n", [("x/1.jpg", 3)]),
        ("x/1.jpg,5\nx/2.jpg,6\n", [("x/1.jpg", 5), ("x/2.jpg", 6)]),
        ("x/1.jpg;0.5\nx/2.jpg;1\n", [("x/1.jpg", 0.5), ("x/2.jpg", 1.0)]),
        ("sep=;\nfilename;label\nx/1.jpg;5\n", [("x/1.jpg", 5)]),
        ("filename\nx/1.jpg\ny/3.jpg\n", [("x/1.jpg", 0), ("y/3.jpg", 1)]),
        ("\ufefffilename,label\n\nx/1.jpg,1\n\n", [("x/1.jpg", 1)]),
        ("filename, class\nx/1.jpg, dog\nx/2.jpg,dog \n", [("x/1.jpg", 0), ("x/2.jpg", 0)]),
        ('class, filename\ndog, x/1.jpg\ncat, "y/3.jpg"', [("x/1.jpg", 1), ("y/3.jpg", 0)]),
        ("filename,label\nx/1.jpg,1_1\nx/2.jpg,11\n", [("x/1.jpg", 1), ("x/2.jpg", 0)]),
    ],
)
def test_csv_beside_the_images(photos, text, expected):
    assert seen(open_images(csv_file(photos, text)), photos) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (("name", "kind"), [0, 1]),
        (["name", "x", "y"], [[0.5, 1.0], [0.25, 2.0]]),
        (("name",), [0, 1]),
    ],
)
def test_csv_columns(photos, columns, expected):
    text = "name,kind,x,y\nx/1.jpg,ant,0.5,1\ny/3.jpg,bee,0.25,2\n"
    source = open_images(csv_file(photos, text), columns=columns)
    assert [label for _, label in seen(source, photos)] == expected


@pytest.mark.parametrize(
    ("header", "columns"),
    [("", (0, 1)), ("photo,kind\n", ("photo", "kind")), ("filename,class\n", None)],
)
def test_csv_of_files_without_an_ending(photos, header, columns):
    (photos / "one").write_bytes(jpeg(1))
    for labels in ([3], [3, 4]):
        path = csv_file(photos, header + "".join(f"one,{label}\n" for label in labels))
        expected = [("one", label) for label in labels]
        assert seen(open_images(path, columns=columns), photos) == expected


def test_csv_root(photos, tmp_path):
    path = csv_file(tmp_path, "filename,class\n1.jpg,a\n")
    assert seen(open_images(path, root=photos / "x"), photos) == [("x/1.jpg", 0)]


def test_csv_digits_as_classes(photos):
    path = csv_file(photos, "filename,class\nx/1.jpg,7\nx/2.jpg,9\nx/2.jpg,8\n")
    assert seen(open_images(path, classes=["9", "7"]), photos) == [("x/1.jpg", 1), ("x/2.jpg", 0)]
    path = csv_file(photos, "filename;class\nx/1.jpg;1,2\n")
    assert seen(open_images(path, classes=["1,2"]), photos) == [("x/1.jpg", 0)]


def test_csv_of_a_name_that_is_not_utf_8(photos):
    odd = os.fsdecode(b"odd \xff.jpg")
    (photos / odd).write_bytes(jpeg(3))
    source = open_images(csv_file(photos, b"filename,class\nodd \xff.jpg,a\n"), decode=bytes)
    assert source[0] == (jpeg(3), 0)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b,c\nx/1.jpg,1,2\n", None, r"columns must say which .*\['a', 'b', 'c'\]"),
        ("a,b\nx/1.jpg,1\n", ("a", "z"), r"columns must be of the table's \['a', 'b'\], got 'z'"),
        ("a,b\nx/1.jpg,1\nx/2.jpg\n", None, "labels.csv, line 3: must have 2 cells .* got 1"),
        ("a,b\nx/1.jpg,1\nx/2.jpg,\n", None, "'b' must have a label in each row, .*'x/2.jpg'"),
        ("one,3\ntwo,4\n", None, r"\['one', '3'\] are the names of columns, .* columns=\(0, 1\)"),
        ("filename,label,label\nx/1.jpg,1,2\n", None, "must be named once .* 'label' isn't"),
        ("a,b\nx/1.jpg,1\n ,2\n", None, "'a' must have a file in each row, got none in row 1"),
        ("a,b,c\nx/1.jpg,16777217,0.5\n", tuple("abc"), "float32 holds.* got .*16777217:"),
        ("a;b\nx/1.jpg;1,5\nx/2.jpg;6\n", None, "'b' must have numbers with a .*'1,5': give .*';'"),
        ('a,b\nx/1.jpg,"5 inch\nx/2.jpg,6\n', None, "labels.csv, line 3: .*unexpected end"),
        ("x/1.heic,1\nx/2.jpg,2\n", None, "columns must say whether"),
        ("", None, "at least one image"),
    ],
)
def test_csv_that_is_wrong_says_why(photos, text, columns, message):
    with pytest.raises(ValueError, match=message):
        open_images(csv_file(photos, text), columns=columns)


def test_csv_of_long_cells(photos):
    path = csv_file(photos, f"filename,label,mask\nx/1.jpg,1,{'1 2 ' * 40_000}\n")
    assert len(open_images(path, columns=("filename", "label"))) == 1


def test_frame_by_its_attributes(photos):
    frame = Frame(filename=["x/1.jpg", "y/3.jpg"], **{"class": ["dog", "cat"]})
    assert seen(open_images(frame, root=photos), photos) == [("x/1.jpg", 1), ("y/3.jpg", 0)]
    with pytest.raises(TypeError, match="'filename' must hold paths of files, got nan in row 1"):
        open_images(Frame(filename=["x/1.jpg", float("nan")], label=[1, 2]), root=photos)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["dog", "cat"], [1, 0]), ([3, 1], [3, 1]), ([0.5, 1.0], [0.5, 1.0]), ([True, False], [1, 0])],
)
def test_data_frame(photos, library, labels, expected):
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"filename": ["x/1.jpg", "y/3.jpg"], "class": labels, "other": [1, 2]})
    source = open_images(frame, root=photos)
    assert seen(source, photos) == list(zip(["x/1.jpg", "y/3.jpg"], expected))


def test_data_frame_of_chosen_rows(photos):
    """Whose index isn't 0, 1, 2 any more."""
    frames = pytest.importorskip("pandas")
    frame = frames.DataFrame({"filename": [f"x/{n}.jpg" for n in range(5)], "label": range(5)})
    source = open_images(frame[frame.label.isin([1, 2])], root=photos)
    assert seen(source, photos) == [("x/1.jpg", 1), ("x/2.jpg", 2)]


@pytest.mark.parametrize(
    ("text", "expected", "dtype"),
    [
        ("0\t3\tx/1.jpg\n1\t4\ty/3.jpg\n", [("x/1.jpg", 3), ("y/3.jpg", 4)], np.int64),
        ("9\t3.000000\tx/1.jpg\r\n\r\n2\t4\ty/3.jpg", [("x/1.jpg", 3), ("y/3.jpg", 4)], np.int64),
        ("0\t9007199254740993\tx/1.jpg\n", [("x/1.jpg", 2**53 + 1)], np.int64),
        ("0\tinf\tx/1.jpg\n", [("x/1.jpg", float("inf"))], np.float64),
        ("0\t0.5\tx/1.jpg\n1\t4\ty/3.jpg\n", [("x/1.jpg", 0.5), ("y/3.jpg", 4.0)], np.float64),
        ("0\t1\t2.5\tx/1.jpg\n", [("x/1.jpg", [1.0, 2.5])], np.float32),
        ("0\t1\tx/1.jpg\n1\t1\t2\tx/2.jpg\n", [("x/1.jpg", [1]), ("x/2.jpg", [1, 2])], "O"),
    ],
)
def test_mxnet_list(photos, text, expected, dtype):
    source = open_images(csv_file(photos, text, "train.lst"))
    assert seen(source, photos) == expected
    assert source.labels.dtype == dtype


@pytest.mark.parametrize(
    "line",
    ["0\tx/1.jpg", "0\t1\t", "zero\t1\tx/1.jpg", "0\tcat\tx/1.jpg", "0 1 x"]
    + ["1.5\t1\tx/1.jpg", "-1\t1\tx/1.jpg", f"{2**63}\t1\tx/1.jpg"],
)
def test_mxnet_list_names_a_wrong_line(photos, line):
    path = csv_file(photos, f"0\t1\tx/1.jpg\n\n{line}\n", "train.lst")
    with pytest.raises(ValueError, match=r"train\.lst, line 3: must be number, label"):
        open_images(path)


@pytest.mark.parametrize("name", ["nowhere", "nowhere/", "nowhere.csv", "nowhere.lst"])
def test_missing_path_or_another_file_is_told(photos, name):
    with pytest.raises(FileNotFoundError, match=f"{name}' isn't there; of a glob's"):
        open_images(f"{photos}/{name}")
    with pytest.raises(ValueError, match=r"record files are for open_records"):
        open_images(photos / "x/1.jpg")


@pytest.mark.parametrize(("where", "columns"), [(["a.jpg"], ("a", "b")), ("train.lst", ("a", "b"))])
def test_columns_are_for_tables_with_names(photos, where, columns, monkeypatch):
    csv_file(photos, "0\t1\tx/1.jpg\n", "train.lst")
    monkeypatch.chdir(photos)
    with pytest.raises(ValueError, match="columns are for tables"):
        open_images(where, columns=columns)
    for wrong in ("filename", (), {"filename", "label"}, 3):
        with pytest.raises(TypeError, match="columns must be names"):
            open_images(csv_file(photos, "filename,label\nx/1.jpg,1\n"), columns=wrong)
