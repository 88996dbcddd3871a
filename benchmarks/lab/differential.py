"""Random programs, run with two versions of the package: the same batches, the same errors?

    python benchmarks/lab/differential.py run 0 1000 > batches.jsonl
    python benchmarks/lab/differential.py compare OLD_CHECKOUT NEW_CHECKOUT 0 1000

A program is chosen by its number: a source, an order, transforms, collation, shards, workers, a
resume, faults. It reads two epochs by a public front end and yields one line for each batch, a hash
of every array's dtype, shape and bytes; or the type and message of the error that ended it. Two
versions differ if a line does. ``compare`` runs each version in a process of its own, with the
checkout first on its path, and prints the programs that differ; the exit status is 1 if any does.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FRONT_ENDS = ("keras", "gluon")
PROGRAM_SECONDS = 60


# --- what users write ---


class Items:
    """A map-style source whose sample ``number`` is a function of it; some can't be read."""

    def __init__(self, count: int, kind: str, bad: int = 0) -> None:
        self.count, self.kind, self.bad = count, kind, bad

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        if self.bad and number % self.bad == self.bad - 1:
            raise LookupError(f"no sample {number}")
        values = np.arange(6, dtype=np.float32).reshape(2, 3) + number
        if self.kind == "pair":
            return values, number % 5
        if self.kind == "dict":
            return {"image": values, "meta": {"id": number, "name": f"s{number}"}}
        if self.kind == "ragged":
            return values.ravel()[: number % 6 + 1], number
        return values


class Drawing(Items):
    """A source that draws from the global generators."""

    def __getitem__(self, number: int) -> Any:
        return np.float32(np.random.rand(3)), random.random()


def scaled(sample: Any) -> Any:
    """Scale the first member."""
    if isinstance(sample, tuple):
        return (sample[0] / np.float32(7), *sample[1:])
    return sample


def noisy(sample: Any, rng: np.random.Generator) -> Any:
    """Add noise from the sample's generator to the first member."""
    if isinstance(sample, tuple):
        return (sample[0] + rng.standard_normal(np.shape(sample[0])), *sample[1:])
    return sample


def drawing(sample: Any) -> Any:
    """Add what the global generators give to the first member."""
    if isinstance(sample, tuple):
        return (sample[0] + np.random.rand() + random.random(), *sample[1:])
    return sample


def failing(sample: Any) -> Any:
    """Fail for some labels."""
    if isinstance(sample, tuple) and np.any(np.asarray(sample[-1]) == 3):
        raise ArithmeticError("a label of 3")
    return sample


def halved(batch: Any) -> Any:
    """Halve the first member of a batch."""
    if isinstance(batch, tuple):
        return (batch[0] * np.float32(0.5), *batch[1:])
    return batch


def permuted(batch: Any, rng: np.random.Generator) -> Any:
    """Add one number of the batch's generator to the first member."""
    if isinstance(batch, tuple):
        return (batch[0] + rng.random(), *batch[1:])
    return batch


# --- files ---


class Files:
    """Files for the sources, made once for each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, str] = {}

    def get(self, kind: str) -> str:
        """Return the path of files of this kind."""
        if kind not in self._made:
            self._made[kind] = getattr(self, f"_{kind}")()
        return self._made[kind]

    def _images(self) -> str:
        import cv2

        rng = np.random.default_rng(5)
        for number in range(30):
            folder = self.folder / "images" / f"class{number % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            height, width = rng.integers(20, 60, 2)
            pixels = cv2.resize(
                rng.integers(0, 256, (6, 6, 3), dtype=np.uint8), (int(width), int(height))
            )
            cv2.imwrite(str(folder / f"{number:03}.{('jpg', 'png')[number % 7 == 0]}"), pixels)
        return str(self.folder / "images")

    def _packed(self, format_: str, name: str) -> str:
        from adapters import open_images, pack

        out = self.folder / name
        pack(open_images(self.get("images")), str(out), format=format_, workers=0)
        return str(next(iter(sorted(out.parent.glob(out.name + "*")))))

    def _tfrecord(self) -> str:
        from adapters import RecordWriter
        from adapters.records.example import encode

        path = str(self.folder / "features.tfrecord")
        with RecordWriter(path, format="tfrecord") as writer:
            for number in range(40):
                writer.write(
                    encode(
                        {
                            "x": [float(number), number / 3],
                            "y": [number % 4],
                            "words": [b"ab"] * (number % 3),
                        }
                    )
                )
        return path

    def _memmap(self) -> str:
        path = str(self.folder / "rows.npy")
        np.save(path, np.arange(300, dtype=np.int16).reshape(50, 3, 2))
        return path


# --- programs ---


def source_of(draw: random.Random, files: Files) -> tuple[str, Any]:
    """Draw a source, and say what its samples are."""
    import adapters

    count = draw.choice([1, 5, 16, 33, 64])
    kind = draw.choice(
        ["arrays", "dict", "nested", "memmap", "items", "items", "items", "bad", "drawing"]
        + ["features", "features", "images", "records", "sequence"]
        + ["concatenated", "mixed", "split"]
    )
    x = np.arange(count * 4, dtype=draw.choice(["float32", "uint8", "int64"])).reshape(count, 2, 2)
    y = np.arange(count) % 5
    if kind == "arrays":
        return "pair", draw.choice([(x, y), (x, y, np.linspace(0, 1, count))])
    if kind == "dict":
        return "dict", {"image": x, "label": y}
    if kind == "nested":
        return "pair", ([x, {"a": x[:, 0]}], y)
    if kind == "memmap":
        return "single", np.load(files.get("memmap"), mmap_mode="r")
    if kind == "items":
        sort = draw.choice(["pair", "dict", "ragged", "single"])
        return sort, Items(count, sort)
    if kind == "bad":
        return "pair", Items(count, "pair", bad=draw.choice([2, 5, 11]))
    if kind == "drawing":
        return "pair", Drawing(count, "pair")
    if kind == "features":
        decode: dict[str, Any] = {
            "x": adapters.Feature("float32", (2,)),
            "y": adapters.Feature("int64"),
        }
        if draw.random() < 0.3:
            decode["words"] = adapters.Feature("bytes", (None,))
            return "dict", adapters.open_records(files.get("tfrecord"), decode=decode)
        outputs = draw.choice([None, ("x", "y")])
        options = {} if outputs is None else {"outputs": outputs}
        return "pair" if outputs else "dict", adapters.open_records(
            files.get("tfrecord"), decode=decode, **options
        )
    decoder = adapters.ImageDecoder(
        draw.choice([16, (20, 12)]),
        crop=draw.choice([None, "center", "random", "random_resized"]),
        flip=draw.choice([False, True]),
        dtype=draw.choice(["uint8", "float32"]),
        layout=draw.choice(["NHWC", "NCHW"]),
    )
    if kind == "images":
        return "image", adapters.open_images(files.get("images"), decode=decoder)
    if kind == "records":
        return "single", adapters.open_records(
            files.get("tfrecord"), decode=draw.choice([None, "example"])
        )
    if kind == "sequence":
        return "batches", (count, draw.choice([1, 4]))
    if kind == "concatenated":
        return "pair", adapters.concatenate([Items(count, "pair"), Items(7, "pair")])
    if kind == "mixed":
        return "pair", adapters.mix([Items(count, "pair"), Items(9, "pair")], [0.75, 0.25])
    return "pair", adapters.split(Items(count + 20, "pair"), [0.6, 0.4], seed=count)[0]


def keras_sequence(x: Any, size: int) -> Any:
    """A stock ``PyDataset``."""
    import keras

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return -(-len(x) // size)

        def __getitem__(self, index: int) -> Any:
            rows = slice(index * size, index * size + size)
            return x[rows], x[rows].sum(axis=(1, 2))

    return Batches()


def keras_program(draw: random.Random, files: Files) -> Callable[[], Any]:
    """Draw the arguments of a ``SafeSequence``."""
    import adapters

    sort, source = source_of(draw, files)
    options: dict[str, Any] = {"seed": draw.randrange(5)}
    if sort == "batches":
        count, size = source
        source = keras_sequence(np.arange(count * 4.0).reshape(count, 2, 2), size)
        options["shuffle"] = draw.choice([False, True])
    else:
        options["batch_size"] = draw.choice([1, 3, 8, 32])
        options["shuffle"] = draw.choice(
            [False, True, True, "blocks", adapters.Blocks(block_bytes=512, window=2)]
        )
        options["drop_remainder"] = draw.random() < 0.3
        options["transform"] = draw.choice([None, None, scaled, noisy, drawing, failing])
        options["on_error"] = draw.choice(["raise", "raise", "skip"])
        if sort == "ragged":
            options["collate"] = draw.choice([None, adapters.pad(), adapters.ragged()])
        if draw.random() < 0.1 and not isinstance(source, (tuple, dict)):
            options["weights"] = np.arange(len(source)) % 3 + 0.5
        elif draw.random() < 0.1 and not isinstance(source, (tuple, dict)):
            options["bucket_by"] = np.arange(len(source)) % 4
    options["batch_transform"] = draw.choice([None, None, halved, permuted])
    if draw.random() < 0.25:
        options["shard"] = (draw.randrange(2), 2)
    workers, processes = draw.choice(
        [(0, False), (0, False), ("auto", False), (2, False), (3, False), (2, True)]
    )
    options.update(workers=workers, use_multiprocessing=processes)
    options["thread_safe"] = draw.choice([None, True])
    options["max_queue_size"] = draw.choice([1, 2, 10])
    return lambda: adapters.SafeSequence(source, **known(adapters.SafeSequence, options))


def gluon_program(draw: random.Random, files: Files) -> Callable[[], Any]:
    """Draw the arguments of a ``gluon_loader``."""
    import adapters
    from adapters.gluon import import_mxnet

    mx = import_mxnet()
    gluon = mx.gluon.data
    vision = gluon.vision.transforms
    count = draw.choice([1, 5, 16, 33])
    pixels = np.random.default_rng(count).integers(0, 256, (count, 12, 10, 3), np.uint8)
    labels = np.arange(count, dtype=np.float32) % 5
    kind = draw.choice(["nd", "numpy", "list", "items", "map", "source"])
    if kind == "nd":
        data = gluon.ArrayDataset(mx.nd.array(pixels, dtype="uint8"), labels)
    elif kind == "numpy":
        data = gluon.ArrayDataset(pixels, labels)
    elif kind == "list":
        data = gluon.SimpleDataset([(float(number), number) for number in range(count)])
    elif kind == "items":
        data = Items(count, draw.choice(["pair", "single"]), bad=draw.choice([0, 0, 5]))
    elif kind == "map":
        data = gluon.SimpleDataset(list(range(count))).transform(lambda item: item * 3)
    else:
        data = source_of(draw, files)[1]
    if kind == "nd":
        steps = draw.sample(
            [vision.ToTensor(), vision.Resize(8), vision.CenterCrop(6), vision.Cast("float32")], 2
        )
        transform = draw.choice(
            [None, vision.ToTensor(), vision.Compose(steps), lambda x: x.astype("float32") / 255]
        )
        if draw.random() < 0.3:
            transform = vision.Compose([vision.RandomFlipLeftRight(), vision.ToTensor()])
        if transform is not None:
            lazy = draw.choice([True, False])
            first = data.transform_first
            data = first(transform, lazy) if lazy else first(transform)
    options: dict[str, Any] = {
        "batch_size": draw.choice([1, 4, 16]),
        "shuffle": draw.choice([False, True]),
        "last_batch": draw.choice([None, "keep", "discard", "rollover"]),
        "seed": draw.randrange(4),
        "num_workers": draw.choice([0, 0, "auto", 2]),
        "thread_pool": draw.choice(["auto", False, True]),
        "batch_transform": draw.choice([None, None, halved, permuted]),
        "on_error": draw.choice(["raise", "raise", "skip"]),
        "thread_safe": draw.choice([None, True]),
    }
    if draw.random() < 0.2:
        options["batchify_fn"] = gluon.batchify.Stack() if kind == "list" else None
    if draw.random() < 0.2:
        options["shard"] = (draw.randrange(2), 2)
    return lambda: adapters.gluon_loader(data, **known(adapters.gluon_loader, options))


def known(callable_: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Leave out ``thread_safe``, which changes no batch, where a version doesn't know it."""
    if "thread_safe" in inspect.signature(callable_).parameters:
        return options
    return {name: value for name, value in options.items() if name != "thread_safe"}


# --- what came of them ---


def lines_of(value: Any) -> Iterator[str]:
    """Describe a batch: its structure, and every leaf to the bit."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield f"{key}:"
            yield from lines_of(value[key])
    elif isinstance(value, (list, tuple)):
        yield f"{type(value).__name__} {len(value)}"
        for each in value:
            yield from lines_of(each)
    elif hasattr(value, "asnumpy"):
        yield "NDArray"
        yield from lines_of(value.asnumpy())
    else:
        array = np.asarray(value)
        content = pickle.dumps(array.tolist()) if array.dtype.hasobject else array.tobytes()
        kind = type(value).__name__
        yield f"{kind} {array.dtype} {array.shape} {hashlib.sha256(content).hexdigest()[:16]}"


def description(error: BaseException) -> str:
    """Describe an error, without what differs from process to process."""
    notes = [text for text in getattr(error, "__notes__", ()) if "Traceback" not in text]
    text = " | ".join([f"{type(error).__name__}: {error}", *notes])
    text = re.sub(r"0x[0-9a-f]+|/\S*/|process \d+|line \d+", "_", text)
    return f"error {text}"


def outcome(number: int, front_end: str, files: Files) -> list[str]:
    """Run a program."""
    draw = random.Random(f"{front_end} {number}")
    lines: list[str] = []
    data: Any = None
    try:
        make = (keras_program if front_end == "keras" else gluon_program)(draw, files)
        stop = draw.choice([None, None, 1, 3])
        np.random.seed(number)
        random.seed(number)
        data = make()
        for epoch in range(2):
            for step, batch in enumerate(data):
                lines.append(f"{epoch} {step} " + "; ".join(lines_of(batch)))
                if stop is not None and (epoch, step) == (0, stop):
                    state = data.state_dict()
                    lines.append(f"state {json.dumps(state, default=str, sort_keys=True)}")
                    data.close()
                    data = make()
                    data.load_state_dict(state)
                    break
    except Exception as error:
        lines.append(description(error))
    finally:
        if data is not None and hasattr(data, "close"):
            data.close()
    untouched = np.random.RandomState(number).rand(), random.Random(number).random()
    drawn = np.random.rand(), random.random()
    lines.append("end" if drawn == untouched else "end, with the global generators touched")
    return lines


def run(first: int, last: int, front_ends: list[str]) -> None:
    """Print the outcomes of programs as JSON lines."""
    import logging

    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        for number in range(first, last):
            for front_end in front_ends:
                lines = outcome(number, front_end, files)
                print(json.dumps([front_end, number, lines]), flush=True)


def outcomes(checkout: str, arguments: list[str]) -> dict[tuple[str, int], list[str]]:
    """Run programs with the version in a checkout."""
    command = [sys.executable, os.path.abspath(__file__), "run", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.path.abspath(checkout)}
    done = subprocess.run(
        command, env=environment, cwd=checkout, stdout=subprocess.PIPE, check=True, text=True
    )
    rows = map(json.loads, done.stdout.splitlines())
    return {(front_end, number): lines for front_end, number, lines in rows}


def typed(lines: list[str]) -> list[str]:
    """Leave out the messages of errors."""
    return [line.split(":")[0] if line.startswith("error ") else line for line in lines]


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["run", "compare"])
    parser.add_argument("rest", nargs="+")
    parser.add_argument("--front-end", choices=FRONT_ENDS)
    parser.add_argument("--types", action="store_true", help="compare errors by type alone")
    chosen = parser.parse_args()
    *checkouts, first, last = chosen.rest
    front_ends = [chosen.front_end] if chosen.front_end else list(FRONT_ENDS)
    if chosen.action == "run":
        run(int(first), int(last), front_ends)
        return 0
    arguments = [first, last, *(["--front-end", chosen.front_end] if chosen.front_end else [])]
    old, new = (outcomes(checkout, arguments) for checkout in checkouts)
    if chosen.types:
        old, new = (
            {program: typed(lines) for program, lines in each.items()} for each in (old, new)
        )
    differing = [program for program in old if old[program] != new.get(program)]
    for program in differing:
        print(program)
        before, after = old[program], new.get(program, [])
        pairs = [(a, b) for a, b in zip(before + ["-"], after + ["-"], strict=False) if a != b]
        print("  old:", pairs[0][0][:600], "\n  new:", pairs[0][1][:600])
    print(f"{len(old):,} programs, {len(differing):,} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
