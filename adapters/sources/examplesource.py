"""``ExampleSource``: record files of tf.train.Examples as samples of typed features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import ImageDecoder
from adapters.records import RecordFiles
from adapters.sources.examples import Examples, told
from adapters.sources.featurerows import FeatureRows
from adapters.sources.records import RecordSource
from adapters.sources.source import Leaf


class ExampleSource(RecordSource):
    """What ``open_records`` returns for a mapping of features.

    Where all of them have one shape and no image is decoded, a batch is gathered at once
    (``featurerows``); records that this can't read, and those of encoded images, are taken apart
    one by one, straight into the batch. Texts, and lengths that vary, come as samples.

    Args:
        files: The records.
        content: What they become.
    """

    def __init__(self, files: RecordFiles, content: Examples) -> None:
        super().__init__(files, content)
        self._examples = content
        leaves = [field.leaf for field in content.fields]
        known = tuple(leaf for leaf in leaves if leaf is not None)
        self._foretold = known if len(known) == len(leaves) else None
        self._fixed = all(field.is_fixed for field in content.fields)
        self._pads = any(field.varies and field.default is not None for field in content.fields)
        self._gatherer: FeatureRows | None = None

    def close(self) -> None:
        """Let go of the files."""
        self._gatherer = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_gatherer": None}

    def way(self, transformed: bool) -> str:
        """How samples come from it, for people."""
        if self._fixed and not transformed:
            return "features of records, gathered a batch at a time"
        return super().way(transformed)

    @property
    def holds_images(self) -> bool:
        """Whether samples are tuples whose first member is an image."""
        first = self._examples.fields[0]
        is_image = first.decoder is not None or (first.is_fixed and len(first.shape) > 1)
        return self._examples.as_tuple and is_image

    @property
    def decodes(self) -> bool:
        """Whether images are decoded, which takes no interpreter lock."""
        return any(type(field.decoder) is ImageDecoder for field in self._examples.fields)

    @property
    def makes_samples(self) -> bool:
        """Whether a subclass of ``ImageDecoder`` makes samples."""
        decoders = {type(field.decoder) for field in self._examples.fields}
        return not decoders <= {ImageDecoder, type(None)}

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of all samples' features; None where that can't be foretold."""
        return self._foretold

    @property
    def skeleton(self) -> Any:
        """A dict or a tuple, with leaf numbers in the leaves' places."""
        return self._examples.skeleton

    def fill(
        self,
        numbers: NDArray[np.int64],
        rng_of: Callable[[int], np.random.Generator] | None,
        rows: Sequence[NDArray[Any]],
    ) -> list[tuple[int, Exception]]:
        """Write samples into rows of a batch, an array for each feature."""
        todo: Sequence[int] = range(len(numbers))
        if self._fixed:
            gatherer = self._gatherer
            if gatherer is None:
                gatherer = self._gatherer = FeatureRows(self._files, self._examples.fields)
            done = gatherer.gather(numbers, rows)
            if done is None:
                return []
            todo = np.flatnonzero(~done).tolist()
        else:
            todo = numbers.argsort(kind="stable").tolist()
        own: list[int] = numbers.tolist()
        images = [place for place, field in enumerate(self._examples.fields) if field.decoder]
        failures: dict[int, Exception] = {}
        wanted: list[int] = []
        encoded: list[list[memoryview]] = [[] for _ in images]
        for row in todo:
            try:
                format = self._files.locate(own[row])[0].format
                values = self._examples.values(self._files.read(own[row]), format)
            except Exception as error:
                failures[row] = error
                continue
            for place, value in enumerate(values):
                if place not in images:
                    rows[place][row] = value
            for place, group in zip(images, encoded):
                group.append(values[place])
            wanted.append(row)
        for place, group in zip(images, encoded):
            field = self._examples.fields[place]
            assert field.decoder is not None
            rng = rng_of and (lambda at: rng_of(own[wanted[at]]))
            for at, why in field.decoder.decode_rows(group, rng, wanted, rows[place]):
                called = told(field, why) if isinstance(why, ContentError) else why
                failures.setdefault(wanted[at], called)
        return [(row, self._told(own[row], error)) for row, error in failures.items()]

    @property
    def pads(self) -> bool:
        """Whether there are arrays of lengths that vary, and something to fill them up with."""
        return self._pads

    def padded(self, samples: list[Any]) -> list[Any]:
        """The samples of a batch, with arrays that vary as long as the longest, where one may."""
        keys: Sequence[Any] = range(len(self._examples.fields))
        if not self._examples.as_tuple:
            keys = [field.name for field in self._examples.fields]
        kind = tuple if self._examples.as_tuple else dict
        if any(type(sample) is not kind or len(sample) != len(keys) for sample in samples):
            return samples  # One of on_error's, which collate has something to say about.
        padded = [dict(zip(keys, sample)) if kind is tuple else dict(sample) for sample in samples]
        for key, field in zip(keys, self._examples.fields):
            if not field.varies or field.default is None:
                continue
            arrays = [np.asarray(sample[key]) for sample in padded]
            if any(array.shape[1:] != field.shape or not array.ndim for array in arrays):
                continue
            longest = max(map(len, arrays))
            for sample, array in zip(padded, arrays):
                if len(array) < longest:
                    whole = np.full((longest, *field.shape), field.default, field.dtype)
                    whole[: len(array)] = array
                    sample[key] = whole
        return [tuple(sample.values()) if kind is tuple else sample for sample in padded]
