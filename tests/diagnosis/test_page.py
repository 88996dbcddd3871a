"""A diagnosis as a page: one file, whose numbers are those of the text."""

from __future__ import annotations

import dataclasses
import html
import html.parser
import re

import pytest

from adapters.diagnosis.page import page_of
from tests.diagnosis.made_up import made_up
from tests.diagnosis.test_doubts import BUSY, SOUND, rounds_of

FOUND = made_up(storage=0.038, waits_seconds=(0.03, 0.01) * 50)


class Reader(html.parser.HTMLParser):
    """Counts elements, and sees that all are closed."""

    VOID = frozenset({"meta", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of_class(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.seen if attributes.get("class") == name]


def test_it_asks_for_no_other_file():
    page = page_of(FOUND, "train.py")
    assert not re.search(r'https?:|src=|href="(?!data:)|url\(|@import|<script', page)
    tags = [tag for tag, _ in Reader(page).seen]
    assert tags.count("svg") == 1


def test_it_is_as_wide_as_the_screen_and_as_dark_as_the_system():
    page = page_of(FOUND)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    assert "width: 100%" in page


def test_what_was_found_and_what_to_change_is_there():
    page = page_of(FOUND, "train.py")
    assert "<h1>bottleneck: storage: fetching the samples</h1>" in page
    for line in FOUND.advice:
        assert html.escape(line) in page
    assert html.escape(str(FOUND)) in page


def test_each_of_the_last_waits_is_drawn_as_wide_as_it_was():
    drawn = [each for each in Reader(page_of(FOUND)).of_class("wait") if "width" in each]
    assert len(drawn) == 72
    widths = [float(each["width"]) for each in drawn]
    assert widths[0] / widths[1] == pytest.approx(3, rel=0.02)
    assert "batch 28: waited 30 ms" in page_of(FOUND)


def test_no_bar_is_wider_than_the_drawing():
    for _, attributes in Reader(page_of(FOUND)).seen:
        if "x" in attributes and "width" in attributes:
            assert float(attributes["x"]) + float(attributes["width"]) <= 641


def test_without_waits_that_is_said():
    page = page_of(made_up(waits_seconds=()))
    assert "<svg" not in page
    assert "Not measured" in page


def test_waits_of_nothing_are_a_page_too():
    Reader(page_of(made_up(waits_seconds=(0.0,), whole=1e-9, same=1e-9, loader=0.0)))


def test_ranges_and_doubts_are_shown():
    rounds = rounds_of(SOUND, loader=[0.016, 0.04, 0.08])
    page = page_of(dataclasses.replace(SOUND, rounds=rounds, contention=BUSY))
    assert "16 to 80" in page
    assert re.search(r"<strong>noise:</strong>\s+other programs took 60%", page)


def test_names_of_files_are_no_markup():
    assert "<b>" not in page_of(FOUND, "<b>.py")
