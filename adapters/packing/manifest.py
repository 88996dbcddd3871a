"""Manifest of packed files: number of inputs read, records packed, inputs skipped."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from adapters.remote.privatefiles import write_whole


@dataclass(frozen=True)
class PackedFile:
    """Record file in a manifest.

    Args:
        name: File name, in the manifest's folder.
        records: Number of records.
        bytes: Size of the file.
        sha256: SHA-256 of its content, in hexadecimal.
    """

    name: str
    records: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        """Check that ``pack`` may have written these values; a manifest may be anyone's file."""
        named = isinstance(self.name, str) and self.name == os.path.basename(self.name) != ""
        counted = isinstance(self.records, int) and isinstance(self.bytes, int)
        if not (named and counted and isinstance(self.sha256, str)):
            raise ValueError(f"{self} is no file of its folder")


@dataclass(frozen=True)
class Skipped:
    """Input that was skipped.

    Args:
        name: The file, or the sample's number.
        reason: Reason for skipping it.
    """

    name: str
    reason: str


@dataclass
class Manifest:
    """Result of ``pack``, also written as JSON next to the files.

    Args:
        format: "recordio" or "tfrecord".
        settings: Settings of resizing and encoding.
        classes: Names by label, or None.
        read: Number of inputs; always the sum of ``packed`` and the number of ``skipped``.
        packed: Number of records.
        skipped: Inputs that were skipped.
        files: Files, in order.
        seed: Seed of the shuffled order; None for the order of the input.
    """

    format: str
    settings: dict[str, Any]
    classes: list[str] | None
    read: int = 0
    packed: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    files: list[PackedFile] = field(default_factory=list)
    seed: int | None = None

    def add(self, packed: PackedFile, read: int, skipped: list[Skipped]) -> None:
        """Add a file and the inputs skipped for it; ``read`` counts all inputs so far."""
        self.files.append(packed)
        self.packed += packed.records
        self.skipped += skipped
        self.read = read

    def write(self, path: Path) -> None:
        """Write as JSON, whole or not at all: the same bytes for the same content."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        # File names may hold bytes that aren't UTF-8: escape them, as in JSON.
        write_whole(path, text.encode("utf-8", "backslashreplace"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read a manifest that ``write`` wrote.

        Raises:
            OSError: It can't be read.
            ValueError: This is no manifest.
        """
        return cls.parse(Path(path).read_bytes(), os.fspath(path))

    @classmethod
    def parse(cls, text: bytes, name: str) -> Manifest:
        """Parse a manifest's text; ``name`` is for the ``ValueError`` if this is no manifest."""
        try:
            content = json.loads(text)
            content["skipped"] = [Skipped(**each) for each in content["skipped"]]
            content["files"] = [PackedFile(**each) for each in content["files"]]
            return cls(**content)
        except (KeyError, TypeError) as error:  # Their messages are about Python.
            raise ValueError(
                f"{name} is not a manifest: it must be the JSON file that pack writes beside its "
                "files"
            ) from error
        except ValueError as error:
            raise ValueError(f"{name} is not a manifest: {error}") from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Compute the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
