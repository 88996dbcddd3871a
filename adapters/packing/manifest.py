"""The manifest beside packed files: what was read, what became a record, and what didn't."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class PackedFile:
    """One file of records.

    Args:
        name: In the folder of the manifest.
        records: How many.
        bytes: Its size.
        sha256: Of its content, in hexadecimal.
    """

    name: str
    records: int
    bytes: int
    sha256: str

    def check(self) -> None:
        """Whether it may be what ``pack`` wrote.

        Raises:
            ValueError: It isn't.
        """
        named = isinstance(self.name, str) and self.name == os.path.basename(self.name) != ""
        counted = isinstance(self.records, int) and isinstance(self.bytes, int)
        if not (named and counted and isinstance(self.sha256, str)):
            raise ValueError(f"{self} is no file of its folder")


@dataclass(frozen=True)
class Skipped:
    """One input that didn't become a record.

    Args:
        name: The file, or the sample's number.
        reason: Why not.
    """

    name: str
    reason: str


@dataclass
class Manifest:
    """What ``pack`` returns, and writes as JSON beside the files.

    Args:
        format: "recordio" or "tfrecord".
        settings: How images were made smaller and encoded.
        classes: Names by label, or None.
        read: Inputs; always the sum of ``packed`` and the number of ``skipped``.
        packed: Records.
        skipped: What was left out.
        files: In order.
        seed: By which samples were shuffled; None: they are in the order of the input.
    """

    format: str
    settings: dict[str, Any]
    classes: list[str] | None
    read: int = 0
    packed: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    files: list[PackedFile] = field(default_factory=list)
    seed: int | None = None

    def write(self, path: Path) -> None:
        """Write it as JSON, the same bytes for the same content."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        # A file's name may hold bytes that aren't UTF-8: escaped as JSON does, too.
        path.write_bytes(text.encode("utf-8", "backslashreplace"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read what ``write`` wrote.

        Raises:
            OSError: It can't be read.
            ValueError: Not a manifest.
        """
        return cls.parse(Path(path).read_bytes(), os.fspath(path))

    @classmethod
    def parse(cls, text: bytes, name: str) -> Manifest:
        """What a manifest's text says.

        Raises:
            ValueError: Not a manifest.
        """
        try:
            content = json.loads(text)
            content["skipped"] = [Skipped(**each) for each in content["skipped"]]
            content["files"] = [PackedFile(**each) for each in content["files"]]
            for packed in content["files"]:
                packed.check()
            return cls(**content)
        except (KeyError, TypeError) as error:  # Which speaks of Python.
            raise ValueError(
                f"{name} is not a manifest: it must be the JSON file that pack writes beside its "
                "files"
            ) from error
        except ValueError as error:
            raise ValueError(f"{name} is not a manifest: {error}") from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
