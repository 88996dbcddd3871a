"""What docs/comparison.md says of other loaders, asked of those that are installed.

Each fact is a program of its own, in a fresh process, and what it prints: a peer that has changed
shows here, and its cell is then rewritten.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Programs begin with this,
_NUMBERS = """
import os, signal, time
import numpy as np

class Numbers:
    def __init__(self, seconds=0.0):
        self.seconds = seconds
    def __len__(self):
        return 40
    def __repr__(self):
        return "Numbers"
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return np.array([index, np.random.randint(1_000_000)])

def numbers(batches):
    return [[row[0] for row in batch] for batch in batches]
"""

# and with what belongs to the package that they are about.
PRELUDES = {
    "torch": """
import torch
from torch.utils.data import DataLoader

class Drawn(Numbers):
    def __getitem__(self, index):
        return np.array([index, torch.randint(1_000_000, ()).item()])

def epoch(workers):
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(Drawn(), 8, shuffle=True, num_workers=workers, generator=order)
    return [batch.tolist() for batch in loader]
""",
    "mxnet": """
from adapters.gluon import import_mxnet; import_mxnet()
import psutil
from mxnet.gluon.data import DataLoader

def epoch(workers):
    np.random.seed(1)
    return [batch.asnumpy().tolist() for batch in DataLoader(Numbers(), 8, num_workers=workers)]
""",
    "tensorflow": """
import tempfile
import tensorflow as tf

def data(calls, stateless):
    def drawn(number):
        if stateless:
            seed = tf.stack([number, 7])
            return number, tf.random.stateless_uniform((), seed, 0, 10**6, tf.int32)
        return number, tf.random.uniform((), 0, 10**6, tf.int32, seed=5)
    return tf.data.Dataset.range(400).shuffle(400, seed=3).map(drawn, calls).batch(8)

def epoch(calls, stateless):
    tf.random.set_seed(1)
    return [[part.numpy().tolist() for part in batch] for batch in data(calls, stateless)]
""",
    "grain": """
import grain.python as grain

def loader(workers, seconds=0.0):
    sampler = grain.IndexSampler(40, grain.NoSharding(), shuffle=True, num_epochs=1, seed=3)
    return grain.DataLoader(
        data_source=Numbers(seconds), sampler=sampler, operations=[grain.Batch(8)],
        worker_count=workers,
    )

def epoch(workers):
    return [sorted(map(int, batch[:, 0])) for batch in loader(workers)]

def chain(workers):
    made = grain.MapDataset.source(Numbers()).shuffle(seed=1).batch(8).to_iter_dataset()
    if workers:
        made = made.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return [batch[:, 0].tolist() for batch in made]
""",
    "nvidia.dali": """
import tempfile
from nvidia.dali import fn, pipeline_def, tfrecord
from adapters import RecordWriter
from tests.sources.example_files import encoded

path = os.path.join(tempfile.mkdtemp(), "numbers.tfrecord")
with RecordWriter(path, format="tfrecord") as writer:
    for number in range(40):
        writer.write(encoded({"x": [number]}))

def made(threads, checkpoint=None):
    @pipeline_def(batch_size=8, num_threads=threads, device_id=None, seed=7,
                  enable_checkpointing=True)
    def pipeline():
        features = {"x": tfrecord.FixedLenFeature([1], tfrecord.int64, -1)}
        read = fn.readers.tfrecord(path=path, index_path=path.replace(".tfrecord", ".idx"),
                                   features=features, random_shuffle=True, initial_fill=40)
        return read["x"], fn.random.uniform(range=(0, 1))
    built = pipeline(checkpoint=checkpoint) if checkpoint else pipeline()
    built.build()
    return built

def batches(pipeline, count):
    found = [pipeline.run() for _ in range(count)]
    return [[part.as_array().ravel().tolist() for part in batch] for batch in found]
""",
    "keras": """
import multiprocessing, threading
import keras

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(0.1)
        return np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")

class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 5:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

def ends(callbacks):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = Batches(workers=2, use_multiprocessing=True)
    options = {"verbose": 0, "callbacks": callbacks}
    fit = threading.Thread(target=lambda: model.fit(data, **options), daemon=True)
    fit.start()
    fit.join(30)
    return not fit.is_alive()
""",
}

FACTS = {
    "Keras's PyDataset waits for what a killed worker process had": (
        "keras",
        "print(ends([]), ends([Kill()]), flush=True)\n"
        "for child in multiprocessing.active_children():\n    child.kill()\n"
        "os._exit(0)",
        "True False",
    ),
    "DALI gives the same batches for every number of threads, each sample once": (
        "nvidia.dali",
        "a = batches(made(1), 5)\n"
        "print(a == batches(made(4), 5), sorted(sum((x for x, _ in a), [])) == list(range(40)))",
        "True True",
    ),
    "DALI's checkpoint continues with other threads": (
        "nvidia.dali",
        "first = made(1); batches(first, 2); saved = first.checkpoint()\n"
        "print(batches(made(4, saved), 3) == batches(first, 3))",
        "True",
    ),
    "PyTorch's order is the same for every number of workers, its random numbers aren't": (
        "torch",
        "a, b = epoch(0), epoch(2)\nprint(numbers(a) == numbers(b), a == b)",
        "True False",
    ),
    "PyTorch notices a killed worker and raises": (
        "torch",
        "it = iter(DataLoader(Numbers(0.05), 8, num_workers=2)); next(it)\n"
        "os.kill(it._workers[0].pid, signal.SIGKILL)\n"
        "try:\n    print(len(list(it)))\nexcept RuntimeError as e:\n"
        "    print('exited' in str(e) or 'killed' in str(e))",
        "True",
    ),
    "PyTorch's loader has no state": (
        "torch",
        "print(hasattr(DataLoader(Numbers()), 'state_dict'))",
        "False",
    ),
    "MXNet's order is the same for every number of workers, its random numbers aren't": (
        "mxnet",
        "a, b = epoch(0), epoch(2)\nprint(numbers(a) == numbers(b), a == b)",
        "True False",
    ),
    "MXNet's forked workers draw the same random numbers": (
        "mxnet",
        "print(len({row[1] for batch in epoch(2) for row in batch}) < 40)",
        "True",
    ),
    "MXNet waits for a killed worker until its timeout": (
        "mxnet",
        "import multiprocessing\n"
        "it = iter(DataLoader(Numbers(0.05), 8, num_workers=2, timeout=5)); next(it)\n"
        "began = time.monotonic()\n"
        "os.kill(psutil.Process().children()[0].pid, signal.SIGKILL)\n"
        "try:\n    print(len(list(it)))\nexcept multiprocessing.context.TimeoutError:\n"
        "    print('timeout', time.monotonic() - began > 4)\n"
        "os.sys.stdout.flush(); os._exit(0)",
        "timeout True",
    ),
    "tf.data keeps the order with parallel calls, and random numbers where they are stateless": (
        "tensorflow",
        "a, b = epoch(1, False), epoch(8, False)\n"
        "print([x[0] for x in a] == [x[0] for x in b], epoch(1, True) == epoch(8, True))",
        "True True",
    ),
    "tf.data repeats seeded random numbers of parallel calls only by chance": (
        "tensorflow",
        "first = epoch(8, False)\nprint(all(epoch(8, False) == first for _ in range(5)))",
        "False",
    ),
    "tf.data's iterators can be saved, unless Python is called": (
        "tensorflow",
        "folder = tempfile.mkdtemp()\n"
        "it = iter(data(2, True)); next(it)\n"
        "saved = tf.train.Checkpoint(iterator=it).save(folder + '/a')\n"
        "again = iter(data(2, True)); tf.train.Checkpoint(iterator=again).restore(saved)\n"
        "print(next(it)[0].numpy().tolist() == next(again)[0].numpy().tolist())\n"
        "source = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int64)\n"
        "try:\n    tf.train.Checkpoint(iterator=iter(source)).save(folder + '/b')\n"
        "except tf.errors.FailedPreconditionError:\n    print('refused')",
        "True\nrefused",
    ),
    "Grain's Dataset API gives the same batches for every number of workers": (
        "grain",
        "if __name__ == '__main__':\n    a = chain(0)\n"
        "    print(a == chain(2) == chain(3), sorted(sum(a, [])) == list(range(40)))",
        "True True",
    ),
    "Grain's DataLoader makes other batches for other numbers of workers, each sample once": (
        "grain",
        "if __name__ == '__main__':\n    a, b = epoch(0), epoch(2)\n"
        "    print(a == b, b == epoch(2), sorted(sum(b, [])) == list(range(40)))",
        "False True True",
    ),
    "Grain's state continues with the same number of workers only": (
        "grain",
        "if __name__ == '__main__':\n"
        "    it = iter(loader(2)); next(it); state = it.get_state()\n"
        "    again = iter(loader(2)); again.set_state(state)\n"
        "    print((next(it)[:, 0] == next(again)[:, 0]).all())\n"
        "    try:\n        iter(loader(3)).set_state(state)\n"
        "    except ValueError:\n        print('refused')",
        "True\nrefused",
    ),
}


def is_installed(package: str) -> bool:
    """Also of a package in another one, which may be missing."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.full
@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_of_a_peer(fact, tmp_path):
    package, program, printed = FACTS[fact]
    if not is_installed(package):
        pytest.skip(f"{package} isn't installed")
    script = tmp_path / "fact.py"
    script.write_text(_NUMBERS + PRELUDES[package] + program)
    backend = "jax" if is_installed("jax") else "tensorflow"
    own = {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": backend}
    options = {"env": {**os.environ, **own}, "timeout": 100}
    command = [sys.executable, str(script)]
    finished = subprocess.run(command, capture_output=True, text=True, **options)
    # MXNet says something of its own before.
    assert finished.stdout.strip().endswith(printed), finished.stdout + finished.stderr[-2_000:]


def test_the_page_names_every_fact():
    page = " ".join((ROOT / "docs" / "comparison.md").read_text().split())
    assert [fact for fact in FACTS if f"“{fact}”" not in page] == []
