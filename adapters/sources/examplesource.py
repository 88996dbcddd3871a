"""``ExampleSource``: record files of tf.train.Examples as samples of typed features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.generators import RngOf, chosen
from adapters.images import ImageDecoder
from adapters.records import RecordFiles
from adapters.records.envelope import LABEL
from adapters.sources.contents import cut_out
from adapters.sources.examples import Examples, told
from adapters.sources.featurerows import FeatureRows, feature_rows
from adapters.sources.features import Field
from adapters.sources.origin import Origin
from adapters.sources.records import RecordSource
from adapters.sources.source import Leaf


class ExampleSource(RecordSource):
    """Source that ``open_records`` returns for a mapping of features.

    If all features have one shape, ``featurerows`` gathers a batch at once and says where encoded
    images lie. Records that it can't read are parsed one by one, straight into the batch. Text and
    variable-length features are returned as samples.

    Args:
        files: The records.
        content: Decodes the records.
    """

    def __init__(self, files: RecordFiles, content: Examples) -> None:
        super().__init__(files, content)
        self._examples = content
        leaves = [field.leaf for field in content.fields]
        known = tuple(leaf for leaf in leaves if leaf is not None)
        self._numbers_known = known if len(known) == len(leaves) else None
        self._fixed = all(field.is_fixed for field in content.fields)
        self._encoded = [place for place, field in enumerate(content.fields) if field.decoder]
        self._pads = any(field.varies and field.default is not None for field in content.fields)
        # Made on first use; False if each record must be read by itself.
        self._gatherer: FeatureRows | Literal[False] | None = None

    def _let_go(self) -> None:
        super()._let_go()
        self._gatherer = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_gatherer": None}

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        if self._fixed and not transformed:
            return "features of records, gathered a batch at a time"
        return super().way(transformed)

    python_numbers = False

    @property
    def holds_images(self) -> bool:
        """True if samples are tuples that begin with an image."""
        first = self._examples.fields[0]
        is_image = first.decoder is not None or (first.is_fixed and len(first.shape) > 1)
        return self._examples.as_tuple and is_image

    @property
    def decodes(self) -> bool:
        """True if images are decoded, which runs without the interpreter lock."""
        return any(type(field.decoder) is ImageDecoder for field in self._examples.fields)

    @property
    def makes_samples(self) -> bool:
        """True if a subclass of ``ImageDecoder`` makes samples."""
        decoders = {type(field.decoder) for field in self._examples.fields}
        return not decoders <= {ImageDecoder, type(None)}

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of each feature; None if they aren't fixed."""
        return self._numbers_known

    @property
    def skeleton(self) -> Any:
        """Sample structure (dict or tuple) with leaf numbers as leaves."""
        return self._examples.skeleton

    def fill(
        self,
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
    ) -> list[tuple[int, Exception]]:
        """Write samples into rows of a batch, one array for each feature."""
        self._files.check_open()
        gatherer = self._gatherer
        if gatherer is None:
            made = feature_rows(self._files, self._examples.fields, self._examples.moves)
            gatherer = self._gatherer = False if made is None else made
        images = self._encoded
        failures: dict[int, Exception] = {}
        todo = numbers.argsort(kind="stable") if images or not gatherer else None
        if gatherer:
            wrong, buffers, places = gatherer.gather(numbers, todo, rows)
            if wrong is None and not images:
                return []
            todo = np.arange(len(numbers)) if todo is None else todo
            done = todo if wrong is None else todo[~wrong[todo]]
            todo = todo[:0] if wrong is None else todo[wrong[todo]]
            for place in images if len(done) else ():
                decode, rng = self._decoder(place).decode_pieces, chosen(rng_of, done)
                failed = decode(buffers, places[place][done], rng, done, rows[place])
                self._note(failures, place, done, failed)
        if todo is not None and len(todo):
            self._one_by_one(todo, images, numbers, rng_of, rows, failures)
        return [(row, self._told(int(numbers[row]), error)) for row, error in failures.items()]

    def _one_by_one(
        self,
        todo: NDArray[np.int64],
        images: Sequence[int],
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
        failures: dict[int, Exception],
    ) -> None:
        """Parse records one after another, and write their rows."""
        wanted: list[int] = []
        encoded: list[list[memoryview]] = [[] for _ in images]
        for row in todo.tolist():
            number = int(numbers[row])
            try:
                payload = self._files.read(number)
                values = self._examples.values(payload, self._files.locate(number)[0].format)
            except Exception as error:
                failures[row] = error
                continue
            for place, column in enumerate(rows):
                if place not in images:
                    column[row] = values[place]
            for place, group in zip(images, encoded):
                group.append(values[place])
            wanted.append(row)
        for place, group in zip(images, encoded):
            rng = chosen(rng_of, wanted)
            failed = self._decoder(place).decode_rows(group, rng, wanted, rows[place])
            self._note(failures, place, wanted, failed)

    def _with_image(
        self, place: Origin, payload: memoryview, format: str, rng: np.random.Generator
    ) -> Origin:
        """Add the first image of a record and its crop to an origin."""
        field = next((field for field in self._examples.fields if field.decoder is not None), None)
        if field is None:
            return place
        (encoded,) = Examples([field], True).values(payload, format)
        return cut_out(place, field.decoder, bytes(encoded), rng)

    @property
    def _label_in(self) -> Callable[[memoryview, str], Any] | None:
        """Reader of the label: the second member of tuples, or the feature of that name."""
        if self._examples.as_tuple:
            found = self._examples.fields[1:2]
        else:
            named = ("label", LABEL)
            found = [field for field in self._examples.fields if field.name in named]
        classes = [field for field in found if field.leaf and field.leaf[1].kind in "iu"]
        if len(classes) != 1 or classes[0].shape or classes[0].decoder is not None:
            return None
        label = Examples(classes, True)
        return lambda payload, format: label.values(payload, format)[0]

    def _decoder(self, place: int) -> ImageDecoder:
        decoder = self._examples.fields[place].decoder
        assert decoder is not None
        return decoder

    def _note(
        self,
        failures: dict[int, Exception],
        place: int,
        wanted: Sequence[int] | NDArray[np.int64],
        failed: Sequence[tuple[int, Exception]],
    ) -> None:
        """Record the first failure of each row, with the name of the feature."""
        field = self._examples.fields[place]
        for at, why in failed:
            called = told(field, why) if isinstance(why, ContentError) else why
            failures.setdefault(int(wanted[at]), called)

    @property
    def pads(self) -> bool:
        """True if there are variable-length features with a fill value."""
        return self._pads

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal; names the features."""
        sizes = [each.name for each in self._examples.fields if each.decoder and not each.leaf]
        if sizes and len(shape) == 3:
            named = ", ".join(f"{name!r}: ImageDecoder(224)" for name in sizes)
            return f"images of several sizes need {named} in decode, or another size"
        if len(shape) < 3 and any(each.target is not None for each in self._examples.fields):
            like = "(None, -1)" if self._examples.as_tuple else '{"image": None, "boxes": -1}'
            return (
                "samples have as many boxes as they have: pad() fills them up, with a value for "
                f"each member of a sample and None for an image, such as pad({like}), as collate= "
                "of SafeSequence or batchify_fn= of gluon_loader"
            )
        varying = [each for each in self._examples.fields if each.varies and each.default is None]
        if not varying:
            return super().remedy(shape)
        named = ", ".join(f"{each.name!r}: {_with_default(each)}" for each in varying)
        return (
            f"features of several lengths need {named} in decode, which fills a batch up to its "
            "longest, or collate=pad() or ragged()"
        )

    def padded(self, samples: list[Any], extra: int = 0) -> list[Any]:
        """Pad variable-length arrays that have a fill value to the longest of the batch."""
        keys: Sequence[Any] = range(len(self._examples.fields))
        if not self._examples.as_tuple:
            keys = [field.name for field in self._examples.fields]
        kind = tuple if self._examples.as_tuple else dict
        if any(type(sample) is not kind or len(sample) != len(keys) for sample in samples):
            return samples  # A sample from on_error, which collating checks.
        padded = [dict(zip(keys, sample)) if kind is tuple else dict(sample) for sample in samples]
        for key, field in zip(keys, self._examples.fields):
            if not field.varies or field.default is None:
                continue
            # Samples of other sources may lack the feature, which collating reports.
            alike = [sample for sample in padded if key in sample]
            arrays = [np.asarray(sample[key]) for sample in alike]
            if any(array.shape[1:] != field.shape or not array.ndim for array in arrays):
                continue
            longest = max(map(len, arrays), default=0) + extra
            for sample, array in zip(alike, arrays):
                if len(array) < longest:
                    whole = np.full((longest, *field.shape), field.default, field.dtype)
                    whole[: len(array)] = array
                    sample[key] = whole
        return [tuple(sample.values()) if kind is tuple else sample for sample in padded]


def _with_default(field: Field) -> str:
    dtype = field.text.__name__ if field.text else f'"{field.dtype}"'
    shape = f"({', '.join(map(str, (None, *field.shape)))}{',' * (not field.shape)})"
    default = {"bytes": 'b""', "str": '""'}.get(dtype, "0")
    return f"Feature({dtype}, {shape}, default={default})"
