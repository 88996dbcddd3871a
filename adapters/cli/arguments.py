"""Parsers of command-line values, for ``type=`` of ``argparse``."""

from __future__ import annotations

import argparse
import math

from adapters.records import CODECS
from adapters.records.formats import codec_of
from adapters.records.sidecar import record_files


def size(text: str) -> int:
    """A number of bytes: 65536, 64KB, 64MiB and so on, in powers of 1,024."""
    number, unit = text.strip().upper().removesuffix("B").removesuffix("I"), 1
    for power, letter in enumerate("KMGT", 1):
        if number.endswith(letter):
            number, unit = number[:-1], 1 << (10 * power)
    if not number.isdecimal() or not int(number):
        raise argparse.ArgumentTypeError(f"must be bytes such as 65536 or 64MB, got {text!r}")
    return int(number) * unit


def from_zero(text: str, least: int = 0) -> int:
    """An integer of at least 0."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be an integer >= {least}, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """An integer of at least 1."""
    return from_zero(text, 1)


def above_zero(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number > 0, got {text!r}")
    return value


def quality(text: str) -> int:
    """A JPEG quality, 1 to 100."""
    if (value := positive(text)) > 100:
        raise argparse.ArgumentTypeError(f"must be <= 100, got {text!r}")
    return value


def workers(text: str, *others: str) -> int | str:
    """A number, "auto" or one of the others."""
    if text in ("auto", *others):
        return text
    if not text.isdecimal():
        listed = " or ".join(f'"{word}"' for word in ("auto", *others))
        raise argparse.ArgumentTypeError(f"must be a number or {listed}, got {text!r}")
    return int(text)


def seed(text: str) -> int | str | None:
    """A number, "auto" or "none"."""
    return None if text == "none" else workers(text, "none")


def files(given: list[str], manifests: bool = False) -> list[str]:
    """Drop the indexes and, unless ``manifests``, the manifests that ``train*`` matches, too."""
    return record_files(given, manifests) or given


def format_of(out: str) -> str:
    """The record format for the suffix of a file name."""
    codec = codec_of(out)
    if codec is not None:
        return codec.name
    listed = " or ".join(f"{CODECS[name].suffix} ({name})" for name in sorted(CODECS))
    raise argparse.ArgumentError(
        None, f"--format must be given where OUT doesn't end in {listed}, got {out!r}"
    )
