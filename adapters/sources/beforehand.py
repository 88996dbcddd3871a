"""``Beforehand``: what samples are before anything is drawn for them, kept in a cache.

    number -> slot there? --no--> before: the source, with decoders that draw nothing --> slot
                  |                                                                        |
                  +--> after: the rest of each decoder, out of the mapped slot <-----------+

``before`` makes a sample in the same way whether it is kept or not, and ``after`` has the same
bytes. So batches don't depend on what the cache holds, or on how much room it has.

Any thread may ask. In another process the file is opened anew; where it can't be had, every sample
is made each time.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.generators import RngOf, chosen
from adapters.images import ImageDecoder, kernel
from adapters.remote.cache import Cache
from adapters.sources.rows import put_label
from adapters.sources.slotfile import NOT_THERE, SlotFile
from adapters.sources.slotparts import Array, Numbers, Part, header
from adapters.sources.source import Source

# Pictures that are decoded before they go into the batch: of 500x375, 4 MB.
_AT_ONCE = 8
# Of numbers that are gathered by one index for each byte.
_FEW_BYTES = 256


class Member(NamedTuple):
    """One member of a sample, as it is kept."""

    part: Part
    after: ImageDecoder | None = None
    """What is left to do with a picture."""
    exact: Callable[[int], Any] | None = None
    """Of a sample, by number, what a batch may have in the dtype of the first one."""


class Stamps(Protocol):
    """Who tells versions of samples apart."""

    def early(self, number: int) -> bool:
        """Whether it must be asked before the sample is read."""
        ...

    def of(self, numbers: Sequence[int]) -> list[int | None]:
        """A number for each sample, another one for another version; None where there is none."""
        ...


class Beforehand:
    """Samples of a source from a cache, or made and kept there.

    Args:
        cache: Where they are kept.
        name: Of the source, what is done to it, and the version.
        about: The same for people.
        before: The source, where nothing is drawn.
        members: Of a sample that are kept, as leaves are numbered.
        leaves_of: A sample of ``before`` as those members.
        stamps: What tells versions of a sample apart, if they change one by one.
    """

    def __init__(
        self,
        cache: Cache,
        name: str,
        about: str,
        before: Source,
        members: Sequence[Member],
        leaves_of: Callable[[Any], Sequence[Any]],
        stamps: Stamps | None = None,
    ) -> None:
        self.cache = cache
        self._place = name, about
        self._before, self._members = before, members
        self._leaves_of, self._stamps = leaves_of, stamps
        self._opened: list[SlotFile | None] = []
        self._begin_process()

    def _begin_process(self) -> None:
        self._opening = threading.Lock()
        _places[self] = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opening": None, "_opened": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_process()

    def close(self) -> None:
        """Let go of the file; who asks has it opened again."""
        self._opened = []

    def missing(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these samples aren't kept, as far as that is known without reading them."""
        file = self._file()
        return np.ones(len(numbers), bool) if file is None else ~file.are_filled(numbers)

    def leaves(self, number: int, rng: np.random.Generator | None) -> list[Any]:
        """The members of a sample, with what is drawn by ``rng``, alike for all pictures."""
        file, begins = self._found(np.array([number]))
        if file is not None and begins[0] != NOT_THERE:
            view = file.view()
            starts, sizes = file.parts(begins, len(self._members))
            slot = [view[at : at + size] for at, size in zip(starts[0].tolist(), sizes[0].tolist())]
            return self._after(slot, rng)
        stamps = self._early([number])
        values = self._leaves_of(self._before.sample(number))
        made = self._packed(values)
        self._keep(file, [number], stamps, [made])
        return self._after(made, rng, values)

    def fill(
        self, numbers: NDArray[np.int64], rng_of: RngOf | None, rows: Sequence[NDArray[Any]]
    ) -> list[tuple[int, Exception]]:
        """Write members into rows of a batch; as ``Source.fill``."""
        file, begins = self._found(numbers)
        failures: dict[int, Exception] = {}
        here = np.flatnonzero(begins != NOT_THERE)
        if file is not None and len(here):
            self._read(file, begins[here], here, rng_of, rows, failures)
        todo = np.flatnonzero(begins == NOT_THERE)
        todo = todo[numbers[todo].argsort(kind="stable")]  # As the files have them.
        for first in range(0, len(todo), _AT_ONCE):
            self._make(file, numbers, todo[first : first + _AT_ONCE], rng_of, rows, failures)
        return list(failures.items())

    def _read(
        self,
        file: SlotFile,
        begins: NDArray[np.int64],
        places: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
        failures: dict[int, Exception],
    ) -> None:
        """Write rows out of slots."""
        starts, sizes = file.parts(begins, len(self._members))
        view = file.view()
        whole = np.frombuffer(view, np.uint8)
        for leaf, (member, out) in enumerate(zip(self._members, rows)):
            own, length = starts[:, leaf], sizes[:, leaf]
            if member.after is not None:
                pieces = np.stack([np.zeros_like(own), own, length], axis=1)
                rng = chosen(rng_of, places)
                for at, error in member.after.decode_pieces([view], pieces, rng, places, out):
                    failures.setdefault(int(places[at]), error)
            elif not _gathered(member.part, whole, own, length, out, places):
                slots = zip(places.tolist(), own.tolist(), length.tolist())
                for row, at, size in slots:
                    _put(member, view[at : at + size], None, out, row, failures)

    def _make(
        self,
        file: SlotFile | None,
        numbers: NDArray[np.int64],
        places: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
        failures: dict[int, Exception],
    ) -> None:
        """Make samples, keep them, and write their rows."""
        stamps = self._early(numbers[places].tolist())
        samples = self._made(numbers[places], places, failures)
        made: list[list[Any]] = []
        wanted: list[int] = []
        for row, values in zip(places.tolist(), samples):
            if values is None:
                continue
            made.append(self._packed(values))
            wanted.append(row)
            for leaf, (member, out) in enumerate(zip(self._members, rows)):
                if member.after is None:
                    _put(member, None, values[leaf], out, row, failures)
        known = [stamp for stamp, values in zip(stamps, samples) if values is not None]
        self._keep(file, numbers[wanted].tolist(), known, made)
        for leaf, member in enumerate(self._members):
            if member.after is not None:
                rng = chosen(rng_of, wanted)
                parts = [each[leaf] for each in made]
                for at, error in member.after.decode_rows(parts, rng, wanted, rows[leaf]):
                    failures.setdefault(wanted[at], error)

    def _made(
        self,
        numbers: NDArray[np.int64],
        places: NDArray[np.int64],
        failures: dict[int, Exception],
    ) -> list[Sequence[Any] | None]:
        """The members of samples, made anew; None of those that failed."""
        samples: list[Sequence[Any] | None] = []
        leaves = self._before.leaves
        if leaves is not None:
            arrays = [np.empty((len(numbers), *shape), dtype) for shape, dtype in leaves]
            failed = dict(self._before.fill(numbers, None, arrays))
            failures.update((int(places[at]), error) for at, error in failed.items())
            columns = list(zip(self._members, arrays))
            return [
                None
                if at in failed
                else [
                    column[at] if member.exact is None else member.exact(number)
                    for member, column in columns
                ]
                for at, number in enumerate(numbers.tolist())
            ]
        for place, number in zip(places.tolist(), numbers.tolist()):
            try:
                samples.append(self._leaves_of(self._before.sample(number)))
            except Exception as error:
                failures[place] = error
                samples.append(None)
        return samples

    def _after(
        self,
        slot: Sequence[Any],
        rng: np.random.Generator | None,
        values: Sequence[Any] | None = None,
    ) -> list[Any]:
        state: Any = rng.bit_generator.state if rng is not None else None
        leaves = []
        for leaf, (member, part) in enumerate(zip(self._members, slot)):
            if member.after is not None:
                if rng is not None:
                    rng.bit_generator.state = state
                leaves.append(member.after.decode(part, rng))
            else:
                leaves.append(member.part.unpacked(part) if values is None else values[leaf])
        return leaves

    def _packed(self, values: Sequence[Any]) -> list[Any]:
        return [member.part.packed(value) for member, value in zip(self._members, values)]

    def _early(self, numbers: list[int]) -> list[int | None]:
        """The stamps of samples, before these are read; None of those that are asked for later."""
        stamps = self._stamps
        if stamps is None:
            return [0] * len(numbers)
        found: list[int | None] = [None] * len(numbers)
        asked = [place for place, number in enumerate(numbers) if stamps.early(number)]
        for place, stamp in zip(asked, stamps.of([numbers[place] for place in asked])):
            found[place] = stamp
        return found

    def _keep(
        self,
        file: SlotFile | None,
        numbers: list[int],
        stamps: list[int | None],
        made: Sequence[Sequence[Any]],
    ) -> None:
        if file is None or file.is_full:
            return
        for number, stamp, parts in zip(numbers, stamps, made):
            if any(part is None for part in parts) or not file.has_room(parts):
                continue
            if stamp is None and self._stamps is not None and not self._stamps.early(number):
                (stamp,) = self._stamps.of([number])
            if stamp is not None:
                file.put(number, stamp, parts)

    def _found(self, numbers: NDArray[np.int64]) -> tuple[SlotFile | None, NDArray[np.int64]]:
        """The file, and where the slots of samples begin in it."""
        file = self._file()
        if file is None:
            return None, np.full(len(numbers), NOT_THERE)
        return file, file.find(numbers, None if self._stamps is None else self._stamps.of)

    def _file(self) -> SlotFile | None:
        opened = self._opened
        if opened:
            return opened[0]
        with self._opening:
            if not self._opened:
                name, about = self._place
                # Of whose values those of OpenCV may differ by 1: whatever this process has.
                name += "" if kernel.load() is None else "-kernel"
                try:
                    file = SlotFile(self.cache, name, about, len(self._before))
                    self._opened = [file]
                except OSError as error:
                    self.cache.failed(error)
                    self._opened = [None]
            return self._opened[0]


_places: weakref.WeakKeyDictionary[Beforehand, None] = weakref.WeakKeyDictionary()


def _in_child() -> None:
    for reference in _places.keyrefs():
        if (place := reference()) is not None:
            place._begin_process()


os.register_at_fork(after_in_child=_in_child)


def _gathered(
    part: Part,
    whole: NDArray[np.uint8],
    begins: NDArray[np.int64],
    sizes: NDArray[np.int64],
    out: NDArray[Any],
    places: NDArray[np.int64],
) -> bool:
    """Write small parts that are all as ``out`` has them; whether they were.

    Worth it: 1 instead of 9 us for a label (CPU time, 2026-11).
    """
    head = b"" if isinstance(part, Numbers) else header(out[0])
    size = len(head) + out[:1].nbytes
    if size > _FEW_BYTES or (sizes != size).any():
        return False
    taken = whole[begins[:, np.newaxis] + np.arange(size)]
    if not (taken[:, : len(head)] == np.frombuffer(head, np.uint8)).all():
        return False
    values = np.ascontiguousarray(taken[:, len(head) :])
    out[places] = values.view(out.dtype).reshape(-1, *out.shape[1:])
    return True


def _put(
    member: Member,
    part: memoryview | None,
    value: Any,
    out: NDArray[Any],
    row: int,
    failures: dict[int, Exception],
) -> None:
    """Write what is no encoded picture into its row, if it is what was foretold."""
    try:
        if part is not None:
            value = member.part.unpacked(part)
        if isinstance(member.part, Array) and out.ndim < 3:
            put_label(value, out, row)
            return
        array = np.asarray(value)
        if array.shape != out.shape[1:] or array.dtype != out.dtype:
            expected, found = (
                f"{each.dtype} {shape}"
                for each, shape in ((out, out.shape[1:]), (array, array.shape))
            )
            raise ContentError(expected, found)
        out[row] = array
    except Exception as error:
        failures.setdefault(row, error)
