"""``ExampleSource``: record files of tf.train.Examples as samples of typed features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adapters.images import ImageDecoder
from adapters.records import RecordFiles
from adapters.records.envelope import LABEL
from adapters.sources.contents import cut_out
from adapters.sources.examples import Examples
from adapters.sources.features import Field
from adapters.sources.origin import Origin
from adapters.sources.recordrows import FeatureRows, RecordRows
from adapters.sources.records import RecordSource
from adapters.sources.source import Leaf


class ExampleSource(RecordSource):
    """Source that ``open_records`` returns for a mapping of features.

    If all features have one shape, ``FeatureRows`` writes a batch at once. Text and variable-length
    features are returned as samples.

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
        self._pads = any(field.varies and field.default is not None for field in content.fields)

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

    def _make_rows(self) -> RecordRows:
        return FeatureRows(self._files, self._examples)

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
