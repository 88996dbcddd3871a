"""Several files as one."""

from __future__ import annotations

import copy
import os
import pickle

import pytest

from adapters.errors import ClosedError, RecordError
from adapters.records import RecordFiles, tfrecord
from tests.records.materials import FORMATS, index_written, read, written


@pytest.fixture
def folder(tmp_path):
    """Files of 2, 0, 1 and 3 records, of both formats."""
    written(tmp_path, "recordio", [b"a0", b"a1"], "a")
    written(tmp_path, "tfrecord", [], "b")
    written(tmp_path, "tfrecord", [b"c0"], "c")
    written(tmp_path, "recordio", [b"d0", b"d1", b"d2"], "d")
    return tmp_path


RECORDS = [b"a0", b"a1", b"c0", b"d0", b"d1", b"d2"]


def test_records_are_numbered_through_in_the_order_of_a_globs_names(folder):
    assert read(str(folder / "*")) == RECORDS


def test_index_files_are_left_out_of_a_glob(folder):
    index_written(folder / "a.rec")
    assert "a.idx" in os.listdir(folder)
    assert read(str(folder / "*")) == RECORDS


def test_files_are_in_the_order_in_which_they_are_given(folder):
    files = RecordFiles([folder / "d.rec", str(folder / "[ab].*")])
    assert [bytes(files.read(number)) for number in range(5)] == [
        b"d0",
        b"d1",
        b"d2",
        b"a0",
        b"a1",
    ]


def test_a_path_that_exists_is_no_glob(tmp_path):
    path = written(tmp_path, "recordio", [b"x"], "a[1]")
    assert read(path) == [b"x"]


def test_files_of_both_formats_may_be_one(folder):
    files = RecordFiles(str(folder / "*"))
    assert [files.locate(number)[0].format for number in (0, 2)] == list(FORMATS)


def test_an_error_has_the_number_in_its_own_file(folder):
    (folder / "e.tfrecord").write_bytes(
        tfrecord.encode(b"fine") + tfrecord.encode(b"abc").replace(b"abc", b"abd")
    )
    files = RecordFiles(str(folder / "*"))
    with pytest.raises(RecordError) as caught:
        files.read(7)
    error = caught.value
    assert (error.file, error.record, error.offset) == (str(folder / "e.tfrecord"), 1, 20)


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_is_pickled_whole(copied):
    error = RecordError("a.rec", None, 5, "this", "that")
    assert (str(copied(error)), vars(copied(error))) == (str(error), vars(error))


def test_an_error_reads_like_this():
    assert str(RecordError("a.rec", 3, 5, "this", "that")) == (
        "a.rec, record 3, byte 5: expected this, found that"
    )


def test_after_close_reading_is_an_error(folder):
    files = RecordFiles(str(folder / "*"))
    files.close()
    with pytest.raises(ClosedError, match="open them again"):
        files.read(0)


def test_what_was_read_stays_valid_after_close(folder):
    files = RecordFiles(str(folder / "*"))
    payload = files.read(0)
    files.close()
    del files
    assert bytes(payload) == b"a0"


@pytest.mark.parametrize("name", ["none.rec", "none*"])
def test_a_missing_file_is_named(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        RecordFiles(str(tmp_path / name))


def test_no_path_is_refused():
    with pytest.raises(FileNotFoundError, match="at least one file, got none"):
        RecordFiles([])


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys])
def test_paths_without_an_order_are_refused(folder, kind):
    """That of a set is another in each process."""
    with pytest.raises(
        TypeError, match=r"whose order is that of the records, got .*: sorted makes"
    ):
        RecordFiles(kind([str(folder / "a.rec"), str(folder / "b.rec")]))


def test_an_unknown_format_is_refused(folder):
    with pytest.raises(ValueError, match='"auto", "recordio" or "tfrecord", got \'csv\''):
        RecordFiles(str(folder / "a.rec"), format="csv")
