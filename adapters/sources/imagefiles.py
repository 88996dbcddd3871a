"""``ImageSource``: image files as samples (image, label); ``ImageTuples``: several of them."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError
from adapters.generators import RngOf, chosen
from adapters.remote.urls import is_url
from adapters.sources.arrays import add_content
from adapters.sources.decoders import Custom, Decoded, Images, check_alike, cut_out
from adapters.sources.filereader import FileReader, InMemoryReader
from adapters.sources.files import Files
from adapters.sources.source import (
    BatchColumns,
    Composite,
    Failures,
    Group,
    Leaf,
    Numbers,
    Origin,
    RowNumbers,
)

_NO_FILE = "No such file, or a link to nothing"
# Bytes of the files that are decoded in one call, for each thread that fills a batch.
_AT_ONCE_BYTES = 4 << 20


class ImageSource(Decoded):
    """Source that ``open_images`` returns. Thread-safe; a process gets a pickled copy."""

    unit = "file"
    files: Files
    """Paths in sample order, as they were given."""
    labels: NDArray[Any]
    """Labels in sample order, read-only; no image is decoded.

    int64 or float64 ``(samples,)``; several are int64 or float32 ``(samples, labels)``, or an
    object array of variable-length arrays.
    """
    classes: list[str] | None
    """Class names by label; None if labels are numbers without names."""
    content: Images | Custom
    _files: FileReader

    def __init__(
        self,
        files: Files,
        labels: NDArray[Any],
        classes: list[str] | None,
        content: Images | Custom,
        reader: FileReader | None = None,
    ) -> None:
        super().__init__(FileReader(files) if reader is None else reader, content)
        self.files = files
        self.labels = labels
        self.labels.flags.writeable = False
        self.classes = classes
        # Memory for files that no thread is using.
        self._arenas: list[memoryview] = []

    def stamps(self, numbers: Sequence[int]) -> list[str]:
        """Fingerprint of each of these files, which changes when the file does."""
        return self._files.stamps(numbers)

    def only(self, number: int) -> ImageSource:
        """Return one of the files as a source, which is small when pickled."""
        reader = self._files.only(number)
        label = self.labels[number : number + 1].copy()
        return ImageSource(reader.files, label, None, self.content, reader)

    def with_content(self, content: Images | Custom) -> ImageSource:
        """Return a source of the same files, closed with this one, with another content."""
        return ImageSource(self.files, self.labels, self.classes, content, self._files)

    @property
    def version(self) -> str:
        """Fingerprint that changes when the files or their labels do."""
        found = hashlib.sha256(self.files.digest().encode())
        found.update("\n".join(self.stamps(range(len(self)))).encode())
        add_content(found, self.labels)
        return found.hexdigest()

    def close(self) -> None:
        """Free memory; files are open only while they are read."""
        super().close()
        self._arenas.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arenas": []}

    def in_memory(self, numbers: Numbers) -> ImageSource:
        """Return a source of the same images that keeps these in memory if they are remote."""
        if self.store_is_cached is None:
            return self
        self.fetch(numbers)
        found = {}
        for number in dict.fromkeys(numbers.tolist()):
            with contextlib.suppress(FileNotFoundError, RecordError):  # The batch reports it.
                found[number] = self.read(number)
        other = copy.copy(self)
        other._files = InMemoryReader(self.files, found, self._files)
        return other

    # Used by plans.

    def labels_of(self, numbers: Numbers) -> NDArray[Any] | None:
        """Labels of these files, if each has exactly one."""
        return self.labels[numbers] if self.labels.ndim == 1 else None

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return (image, label), cropped and flipped at random by ``rng``."""
        label = self.labels[number]
        label = label.copy() if isinstance(label, np.ndarray) else label.item()
        encoded, rng = self._read(number), self.fixed_rng(number, rng)
        if isinstance(self.content, Custom):
            return self.content.sample(encoded, "", rng), label
        try:
            return self.content.image(encoded, rng), label
        except ContentError as error:
            raise self._located(number, error) from error

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Return the file and the crop of its image."""
        place = Origin(self.files.named(number))
        if not isinstance(self.content, Images):
            return place
        try:
            return cut_out(place, self._read(number), self.content.decoder, rng)
        except (ContentError, RecordError, OSError):  # The batch reports it.
            return place

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of all samples; None if they depend on the image or the function."""
        decoder = self.content.decoder
        if decoder is None or decoder.shape is None or self.labels.dtype.hasobject:
            return None
        return (decoder.shape, decoder.dtype), (self.labels.shape[1:], self.labels.dtype)

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write samples into rows of a batch: arrays and labels, as in ``leaves``."""
        self._files.fetch(numbers)
        assert isinstance(self.content, Images)
        assert self.content.decoder is not None
        decoder = self.content.decoder
        images, labels = columns
        labels[... if rows is None else rows] = self.labels[numbers]
        failures: list[tuple[int, Exception]] = []
        encoded: list[memoryview] = []
        wanted: list[int] = []
        try:
            arena = self._arenas.pop()
        except IndexError:
            arena = np.empty(_AT_ONCE_BYTES, np.uint8).data
        held_bytes = 0

        def decode() -> None:
            rng = chosen(rng_of, wanted)
            image_rows = wanted if rows is None else rows[wanted].tolist()
            for at, error in decoder.decode_rows(encoded, rng, image_rows, images):
                failures.append((wanted[at], error))
            encoded.clear()
            wanted.clear()

        for place, number in enumerate(numbers.tolist()):
            try:
                data = self._files.read(number, arena[held_bytes:])
            except Exception as error:
                failures.append((place, error))
                continue
            encoded.append(data)
            wanted.append(place)
            held_bytes += len(data)
            if held_bytes > len(arena):
                decode()
                held_bytes = 0
        decode()
        self._arenas.append(arena)
        return [(place, self._located(int(numbers[place]), error)) for place, error in failures]

    def _read(self, number: int) -> memoryview:
        self._files.check_open()
        try:
            return self._files.read(number)
        except (ContentError, OSError) as error:
            raise self._located(number, error) from error

    def _located(self, number: int, error: Exception) -> Exception:
        """Add the path, as it was given, to an error."""
        located: Exception
        name = self.files.named(number)
        if isinstance(error, ContentError):
            located = RecordError(name, None, 0, error.expected, error.found)
        elif isinstance(error, FileNotFoundError):
            what = "No such object" if is_url(self.files[number]) else _NO_FILE
            again = 'open the images again, or on_error="skip"'
            located = FileNotFoundError(error.errno, f"{what}: {again}", name)
        elif isinstance(error, OSError) and error.errno is not None:
            located = OSError(error.errno, error.strerror, name)
        else:
            return error
        located.__cause__ = error
        return located


class ImageTuples(Composite):
    """Source that ``open_images`` returns for a tuple of decoders, as for (image, mask).

    All images of a sample are cropped and flipped alike: the sample's generator starts again for
    each. Thread-safe; a process gets a pickled copy.
    """

    parts: list[ImageSource]  # type: ignore[assignment]

    def __init__(self, parts: Sequence[ImageSource]) -> None:
        super().__init__(parts)
        check_alike([part.content.decoder for part in parts])
        moves = any(getattr(part.content, "moves", False) for part in parts)
        if moves and any(not (part.content.decoder or part.function) for part in parts):
            raise ValueError(
                "decode must crop and flip all images of a sample alike, got an ImageDecoder that "
                'does, and None or "image", which doesn\'t: give each an ImageDecoder with the '
                "same crop, area, ratio and flip"
            )
        self.holds_images, self.python_numbers = True, False

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.parts[0])

    @property
    def files(self) -> list[tuple[str, ...]]:
        """The paths of each sample, as they were given."""
        return list(zip(*(part.files for part in self.parts)))

    def sample(self, number: int, rng: np.random.Generator | None = None) -> tuple[Any, ...]:
        """Return the images, cropped and flipped at random by ``rng``."""
        rng = self.fixed_rng(number, rng)
        state: Any = None if rng is None else rng.bit_generator.state
        images = []
        for part in self.parts:
            if rng is not None:
                rng.bit_generator.state = state
            images.append(part.sample(number, rng)[0])
        return tuple(images)

    def by_part(self, numbers: Numbers) -> Iterable[Group]:
        """Find these samples in each column."""
        return ((at, numbers, None) for at in range(len(self.parts)))

    def close(self) -> None:
        """Free memory; files are open only while they are read."""
        for part in self.parts:
            part.close()

    def __enter__(self) -> ImageTuples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- a batch at a time ---

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of all images; None if one depends on the file or a function."""
        known = [part.leaves[0] for part in self.parts if part.leaves is not None]
        return tuple(known) if len(known) == len(self.parts) else None

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write images into rows of a batch, one array for each column."""
        failures: dict[int, Exception] = {}
        for part, images in zip(self.parts, columns):
            no_labels = np.empty(len(images), np.int64)
            for place, error in part.fill(numbers, rng_of, (images, no_labels), rows):
                failures.setdefault(place, error)
        return list(failures.items())

    # --- traits ---

    def labels_of(self, numbers: Numbers) -> None:
        """Labels of samples; there are none."""

    @property
    def sample_bytes(self) -> float | None:
        """Average bytes of the files of a sample."""
        known = [size for part in self.parts if (size := part.sample_bytes) is not None]
        return sum(known) if len(known) == len(self.parts) else None

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        return f"{len(self.parts)} files a sample: {self.parts[0].way(transformed)}"
