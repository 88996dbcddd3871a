"""``Chain``: several transforms of a batch, one after the other."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_function
from adapters.generators import call_with, generator_argument
from adapters.transforms.transform import BatchTransform
from adapters.user_code import is_thread_safe


class Chain(BatchTransform):
    """Several transforms of a batch, one after the other, for ``batch_transform=``.

    Each has its own generator, derived from its name and the number of earlier transforms of that
    name: what it draws doesn't depend on the other transforms.

    Args:
        transforms: Transforms of ``adapters.transforms``, or any functions ``t(batch)`` or
            ``t(batch, rng)``.

    Raises:
        TypeError: They are something else.
        ValueError: The list is empty.

    Example:
        >>> import numpy as np
        >>> from adapters.transforms import Chain, MixUp, OneHot
        >>> chain = Chain([OneHot(3), MixUp(0.2)])
        >>> batch = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 2, 0])
        >>> images, labels = chain(batch, np.random.default_rng(0))
        >>> labels.shape, labels.sum(axis=1).round(5).tolist()
        ((4, 3), [1.0, 1.0, 1.0, 1.0])
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        if callable(transforms) or not isinstance(transforms, Sequence):
            raise TypeError(f"transforms must be a list of callables, got {transforms!r}")
        if not transforms:
            raise ValueError("transforms must hold at least one transform, got none")
        for place, transform in enumerate(transforms):
            check_function(f"transforms[{place}]", transform, "batch")
            if transform is None:
                raise TypeError(f"transforms[{place}] must be callable, got None")
        self.functions = tuple(transforms)
        """Transforms that it calls, in order."""
        self.keeps_nothing = all(getattr(each, "keeps_nothing", False) for each in transforms)
        self.thread_safe = all(map(is_thread_safe, transforms))
        """True if several threads may call it at once."""
        self._arguments = [generator_argument(transform) for transform in transforms]
        self._tags = _tags(self.functions)

    def __repr__(self) -> str:
        return f"Chain([{', '.join(map(_name_of, self.functions))}])"

    def on_own_batch(self, batch: Any, rng: np.random.Generator) -> Any:
        """Transform a batch, in its own memory if the transforms support that."""
        own = True
        base = rng.integers(0, 2**64, 2, np.uint64)
        for place, transform in enumerate(self.functions):
            ours = transform if isinstance(transform, BatchTransform) else None
            function = ours.on_own_batch if ours is not None and own else transform

            def rng_of(tag: NDArray[np.uint64] = self._tags[place]) -> np.random.Generator:
                return np.random.Generator(np.random.Philox(key=base ^ tag))

            batch = call_with(rng_of, self._arguments[place], function, batch)
            if batch is None:
                raise ValueError(
                    f"transforms[{place}] ({_name_of(transform)}) must return a batch, got None"
                )
            # A user's function may keep a reference to what it returns.
            own = own and ours is not None and ours.keeps_nothing
        return batch


def _tags(transforms: Sequence[Callable[..., Any]]) -> list[NDArray[np.uint64]]:
    seen: Counter[str] = Counter()
    tags = []
    # What a transform draws depends on this name, and so on the module of its class.
    for transform in transforms:
        kind = type(transform)
        name = getattr(transform, "__qualname__", f"{kind.__module__}.{kind.__qualname__}")
        tags.append(np.array([zlib.crc32(name.encode()), seen[name]], np.uint64))
        seen[name] += 1
    return tags


def _name_of(transform: Any) -> str:
    if isinstance(transform, BatchTransform):
        return repr(transform)
    return str(getattr(transform, "__qualname__", type(transform).__name__))
