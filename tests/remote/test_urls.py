"""Which names are URLs, what of them is shown, and what globs mean."""

from __future__ import annotations

import pytest

from adapters.remote import client_of, obstore_client
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
        ("https://h/c#/1.npy?sig=secret#x", "https://h/c#/1.npy"),
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


def test_a_range_of_a_glob_from_back_to_front_is_refused():
    with pytest.raises(ValueError, match=r"a glob must have .* got 'x\[z-a\].rec'"):
        matching("x[z-a].rec", iter([]))


@pytest.mark.parametrize("url", ["s3://", "s3:///train.rec", "GS://", "http://", "https:///a.rec"])
def test_a_url_without_a_bucket_or_host_is_refused(url):
    with pytest.raises(ValueError, match=r"must name a bucket or a host, as .*, got"):
        client_of(url)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a/b.rec", True),
        ("a/", True),
        ("a%20b/%C3%A9%c3%a9.rec", True),
        ("a b/\N{LATIN SMALL LETTER E WITH ACUTE}%20[1]!$&'()*+,;=:@|~-._.rec", True),
        ("a%2Fb.rec", False),
        ("a%2Bb.rec", False),
        ("a%3Fb.rec", True),
        ("100% a.rec", True),
        ("a//b.rec", False),
        ("/b.rec", False),
        ("a/./b.rec", False),
        ("../b.rec", False),
        ("a.rec?sig=1", False),
    ],
)
def test_obstore_is_asked_for_what_it_would_ask_for(key, expected):
    assert obstore_client.asks_for("https://h", key) is expected
    assert obstore_client.asks_for("s3://h", key)
