"""The Gluon half of the MNIST sweep: one row.

The script of Gluon's blog post: its LeNet, its training loop and its transform, a lambda that works
on one sample at a time; SGD 0.1, batches of 64, one epoch. *Paced*, the loop waits in the place of
each step for as long as the post's V100 took.
"""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adapters.gluon import import_mxnet
from adapters.machine import gpu_names
from benchmarks.data.digits import load_digits
from benchmarks.experiments.steps import PACED, STEP_SECONDS, with_epochs
from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.rounds import rounds_of
from benchmarks.harness.row import Measurement

mx = import_mxnet()

BATCH_SIZE = 64
LEARNING_RATE = 0.1

# As it stands in the blog post.
verbatim = lambda data, label: (  # noqa: E731
    mx.nd.transpose(data.astype(np.float32), (2, 0, 1)) / 255,
    label.astype(np.float32),
)
# From a data set and whether it is for training to an iterable of batches.
Loader = Callable[[Any, bool], Any]


def mxnet_loader(workers: Any, thread_pool: bool) -> Loader:
    """MXNet's own, with the verbatim transform."""

    def load(data: Any, training: bool) -> Any:
        return mx.gluon.data.DataLoader(
            data.transform(verbatim),
            BATCH_SIZE,
            shuffle=training,
            num_workers=workers,
            thread_pool=thread_pool,
        )

    return load


def own_loader(workers: Any, seed: int, to_tensor: bool) -> Loader:
    """The package's own, with the verbatim transform or with Gluon's ToTensor."""
    from adapters import gluon_loader

    def load(data: Any, training: bool) -> Any:
        if to_tensor:
            data = data.transform_first(mx.gluon.data.vision.transforms.ToTensor())
        else:
            data = data.transform(verbatim)
        given = {"shuffle": training, "num_workers": workers, "seed": seed}
        return gluon_loader(data, BATCH_SIZE, **given, thread_safe=True)

    return load


CONTESTANTS: Mapping[str, Callable[[Any, int], Loader]] = {
    "DataLoader processes": lambda workers, seed: mxnet_loader(workers, thread_pool=False),
    "DataLoader threads": lambda workers, seed: mxnet_loader(workers, thread_pool=True),
    "gluon_loader verbatim": lambda workers, seed: own_loader(workers, seed, to_tensor=False),
    "gluon_loader ToTensor": lambda workers, seed: own_loader(workers, seed, to_tensor=True),
}


def lenet() -> Any:
    """The blog post's network."""
    nn = mx.gluon.nn
    net = nn.HybridSequential()
    for channels in (20, 50):
        net.add(nn.Conv2D(channels, 5, activation="relu"), nn.MaxPool2D(2, 2))
    net.add(nn.Flatten(), nn.Dense(512, activation="relu"), nn.Dense(10))
    return net


class Timed:
    """Batches, and how long the training loop waited for each.

    Attributes:
        waits_seconds: Of the batches so far.
        moments: When they were there.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self.waits_seconds: list[float] = []
        self.moments: list[float] = []

    def __iter__(self) -> Iterator[Any]:
        iterator = iter(self._batches)
        while True:
            begin = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self.moments.append(time.perf_counter())
            self.waits_seconds.append(self.moments[-1] - begin)
            yield batch


def train(net: Any, batches: Iterable[Any], ctx: Any) -> None:
    """One epoch of the blog post's loop."""
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": LEARNING_RATE})
    for data, label in batches:
        data, label = data.as_in_context(ctx), label.as_in_context(ctx)
        with mx.autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        trainer.step(data.shape[0])
        # As the post does, to print it; it also keeps the loop from running far ahead.
        mx.nd.mean(loss).asscalar()


def stand(batches: Iterable[Any], step_seconds: float) -> None:
    """The same loop, where a step is a wait once its batch is there."""
    for batch in batches:
        for each in batch:
            each.wait_to_read()
        time.sleep(step_seconds)


def accuracy(net: Any, batches: Iterable[Any], ctx: Any) -> float:
    """The share of digits that the network knows."""
    metric = mx.metric.Accuracy()
    for data, label in batches:
        metric.update([label.as_in_context(ctx)], [net(data.as_in_context(ctx))])
    return float(metric.get()[1])


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row; the options are those of the Keras half."""
    paced = options["step"] == PACED
    seed = options["seed"]
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)
    ctx = find_context()
    load = CONTESTANTS[options["loader"]](options["workers"], seed)
    train_set = _data_set(options, "train")
    test_set = _data_set(options, "test")
    net = lenet()
    net.initialize(mx.init.Xavier(magnitude=2.24), ctx=ctx)
    net(mx.nd.zeros((BATCH_SIZE, 1, 28, 28), ctx=ctx)).wait_to_read()
    window_begin, cpu_begin = time.monotonic(), tree_cpu_seconds()
    batches = Timed(load(train_set, True))
    if paced:
        stand(batches, STEP_SECONDS)
    else:
        train(net, batches, ctx)
    mx.nd.waitall()
    trained, cpu_end = time.monotonic(), tree_cpu_seconds()
    known = 0.0 if paced else accuracy(net, load(test_set, False), ctx)
    window_end = time.monotonic()
    train_seconds = trained - window_begin
    p50, p99 = np.percentile(batches.waits_seconds, [50, 99])
    measured: Measurement = {
        "software": f"MXNet {mx.__version__}",
        "device": "no accelerator: a step is a wait of 4 ms" if paced else _describe_device(ctx),
        "metrics": {
            "train_seconds": train_seconds,
            "eval_seconds": window_end - trained,
            "accuracy": known,
            "samples_per_second": len(train_set) / train_seconds,
            "waited_share": sum(batches.waits_seconds) / train_seconds,
            "wait_p50_ms": 1000 * float(p50),
            "wait_p99_ms": 1000 * float(p99),
            "cpu_percent": 100 * (cpu_end - cpu_begin) / train_seconds,
        },
        "window": (window_begin, window_end),
        "busy": (window_begin, trained),
        "seed": seed,
        "rounds": rounds_of(batches.moments, BATCH_SIZE, batches.waits_seconds, len(train_set)),
    }
    if paced:
        for name in ("accuracy", "eval_seconds"):
            del measured["metrics"][name]
    return with_epochs(measured)


def _data_set(options: Mapping[str, Any], split: str) -> Any:
    """As Gluon's MNIST holds them: images as one NDArray, labels as NumPy's int32."""
    images, labels = load_digits(Path(options["digits"]), split, options[split])
    return mx.gluon.data.ArrayDataset(mx.nd.array(images[..., None], dtype="uint8"), labels)


def find_context() -> Any:
    """The first GPU, or the CPU where there is none that MXNet can compute on.

    Its wheels hold no code for GPUs newer than compute capability 8.6, which shows when they are
    used, not when they are counted.
    """
    try:
        if mx.context.num_gpus():
            (mx.nd.ones((1,), ctx=mx.gpu(0)) + 1).wait_to_read()
            return mx.gpu(0)
    except mx.base.MXNetError:
        pass
    return mx.cpu(0)


def _describe_device(ctx: Any) -> str:
    if ctx.device_type == "gpu":
        return next(iter(gpu_names()[ctx.device_id :]), f"GPU {ctx.device_id}")
    return f"CPU ({platform.machine()})"
