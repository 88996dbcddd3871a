"""Which names are URLs, what of them is shown, and what globs mean."""

from __future__ import annotations

import pytest

from adapters.remote.urls import as_path, beside, clean, folder_of, has_magic, is_url, matching


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s3://bucket/train.rec", True),
        ("memory://train.rec", True),
        ("https://host/a", True),
        ("/data/train.rec", False),
        ("train.rec", False),
        ("C://train.rec", False),
        ("file:///data/train.rec", False),
        (b"s3://bucket/a", False),
        (None, False),
    ],
)
def test_a_url_is_told_from_a_path(name, expected):
    assert is_url(name) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:secret@host:80/a/b.rec?X-Amz-Signature=secret#x", "https://host:80/a/b.rec"),
        ("s3://key:secret@bucket/a.rec", "s3://bucket/a.rec"),
        ("s3://bucket/a?b#c.rec", "s3://bucket/a?b#c.rec"),
        ("/data/a?b.rec", "/data/a?b.rec"),
    ],
)
def test_what_may_be_secret_is_not_shown(url, expected):
    assert clean(url) == expected


def test_a_files_url_is_its_path():
    assert as_path("file:///data/my%20file.rec") == "/data/my file.rec"


def test_a_files_url_of_another_machine_is_refused():
    with pytest.raises(ValueError, match="file:///path"):
        as_path("file://elsewhere/data.rec")


@pytest.mark.parametrize(
    ("url", "replace", "expected"),
    [
        ("s3://b/a.tfrecord", True, "s3://b/a.idx"),
        ("s3://b/a.tfrecord", False, "s3://b/a.tfrecord.idx"),
        ("https://h/a.rec?sig=1", True, "https://h/a.idx?sig=1"),
    ],
)
def test_the_index_lies_beside(url, replace, expected):
    assert beside(url, ".idx", replace) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://b/train-*.rec", True),
        ("s3://b/train-?.rec", True),
        ("https://h/a.rec?sig=*", False),
        ("https://h/*.rec", True),
        ("s3://b/train.rec", False),
    ],
)
def test_a_glob_is_told(url, expected):
    assert has_magic(url) is expected


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("t/a-*.rec", ["t/a-1.rec", "t/a-2.rec"]),
        ("t/a-?.rec", ["t/a-1.rec", "t/a-2.rec"]),
        ("t/*", ["t/a-1.rec", "t/a-2.rec", "t/b.rec"]),
        ("t/**", ["t/a-1.rec", "t/a-2.rec", "t/b.rec", "t/u/a-3.rec"]),
        ("**/a-*.rec", ["t/a-1.rec", "t/a-2.rec", "t/u/a-3.rec"]),
        ("t/a-[!1].rec", ["t/a-2.rec"]),
        ("t/[ab]*.rec", ["t/a-1.rec", "t/a-2.rec", "t/b.rec"]),
    ],
)
def test_a_star_stays_within_a_folder(pattern, found):
    keys = ["t/a-1.rec", "t/a-2.rec", "t/b.rec", "t/u/a-3.rec", "v/a"]
    assert list(matching(pattern, iter(keys))) == found


def test_a_listing_begins_at_what_is_plain():
    assert folder_of("a/b/c-*/d.rec") == "a/b"
