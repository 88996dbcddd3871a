"""``gluon_loader``: a ``gluon.data.DataLoader`` that keeps up."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array, is_np_shape

from adapters.ablation import Ablations
from adapters.engine import Engine, Settings, Waits, obstacle_to_processes, usable_cpus
from adapters.gluon.ablation import ablations_of
from adapters.gluon.arguments import check_arguments
from adapters.gluon.devices import Mover, mover
from adapters.gluon.explanation import explanation
from adapters.gluon.importing import QUIET
from adapters.gluon.passes import Pass
from adapters.gluon.plan import GluonPlan
from adapters.gluon.randomness import generators_used
from adapters.gluon.recipe import Opaque, Recipe, recipe_of
from adapters.gluon.recordfiles import make_reading_atomic
from adapters.gluon.samplers import OrderBatchSampler, batch_sampler_of, sampler_twin
from adapters.order import DrawnOrder
from adapters.sources import MapSource, open_guessed

log = logging.getLogger("adapters")

_QUEUE = 10
# MXNet's engine threads cost a small operation as much again as the operation itself, and workers
# have nothing else to do meanwhile. 1.7x for the transform of MXNet's MNIST tutorial.
_WORKER_ENVIRONMENT = {"MXNET_ENGINE_TYPE": "NaiveEngine", "OMP_NUM_THREADS": "1", QUIET: "1"}
_open: weakref.WeakSet[Loader] = weakref.WeakSet()
_loaders = itertools.count()


def gluon_loader(
    dataset: Any,
    batch_size: int | None = None,
    shuffle: bool = False,
    sampler: Any = None,
    last_batch: str | None = None,
    batch_sampler: Any = None,
    batchify_fn: Callable[[list[Any]], Any] | None = None,
    num_workers: int | Literal["auto"] = "auto",
    pin_memory: bool | Literal["auto"] = "auto",
    pin_device_id: int = 0,
    prefetch: int | None = None,
    thread_pool: bool | Literal["auto"] = "auto",
    timeout: float = 120,
    *,
    ctx: Any = None,
    seed: int | None = None,
) -> Loader:
    """A ``gluon.data.DataLoader`` with the same arguments and batches, and without its faults.

    Args:
        dataset: A Gluon data set, an array, a tuple of arrays of equal length, what
            ``open_records`` returns, the path of a record file or a glob of several, or any object
            with ``__len__`` and ``__getitem__``. A path's records are images with labels where the
            first one is, see ``open_records``.
        batch_size: Samples in a batch.
        shuffle: A new order in every pass over the loader.
        sampler: Gives the numbers of the samples; excludes ``shuffle``.
        last_batch: ``"keep"`` (the default), ``"discard"`` or ``"rollover"`` what doesn't fill a
            batch.
        batch_sampler: Gives lists of sample numbers; excludes the four before.
        batchify_fn: Makes a batch of a list of samples; MXNet's default otherwise.
        num_workers: ``"auto"`` measures the first batches and decides; 0 computes each batch when
            it is asked for.
        pin_memory: Give batches in pinned memory. ``"auto"``: on their way to a GPU in ``ctx``.
        pin_device_id: The device that memory is pinned for.
        prefetch: Batches that may be ready ahead; 2 per worker otherwise.
        thread_pool: Workers are threads (True), processes (False), or whatever fits: threads where
            the work is done a batch at a time, processes for functions of the user's own. Processes
            that were asked for by a number have the data set as it was when they started.
        timeout: Seconds after which a batch that workers haven't made is an error. New processes
            have a minute more.
        ctx: Move the batches to this device, the next one while this one is used.
        seed: Of the order and of all that is random, also of what transforms draw from
            ``random``, ``numpy.random`` and MXNet's generator, inline and in processes; threads
            share these generators, and what they draw depends on who comes first. None takes
            another one for each loader, from the state of ``numpy.random``, whose seed thereby
            fixes it.

    Returns:
        An instance of ``mxnet.gluon.data.DataLoader``; iterate over it as often as you like.

    Raises:
        TypeError: A data set without length or random access, an argument of the wrong type.
        ValueError: Arguments that exclude each other, or out of range.

    While iterating, an exception in the data set, a transform or ``batchify_fn`` arrives as its own
    type, with the number of the sample in its notes; ``WorkerError`` says that worker processes die
    again and again over one batch; ``multiprocessing.TimeoutError`` that ``timeout`` is over.

    Example:
        >>> import numpy as np
        >>> from adapters import gluon_loader
        >>> loader = gluon_loader((np.zeros((10, 3), "float32"), np.arange(10)), batch_size=4)
        >>> [data.shape for data, label in loader]
        [(4, 3), (4, 3), (2, 3)]
    """
    check_arguments(
        dataset=dataset,
        batch_size=batch_size,
        batchify_fn=batchify_fn,
        num_workers=num_workers,
        pin_memory=pin_memory,
        prefetch=prefetch,
        thread_pool=thread_pool,
        timeout=timeout,
        ctx=ctx,
        seed=seed,
    )
    make_reading_atomic()
    if isinstance(dataset, (str, os.PathLike)):
        dataset = open_guessed(dataset)
    elif isinstance(dataset, tuple) and not hasattr(dataset, "_fields"):
        dataset = mx.gluon.data.ArrayDataset(*dataset)
    seed = _new_seed() if seed is None else int(seed)
    batch_sampler = batch_sampler_of(
        len(dataset), batch_size, bool(shuffle), sampler, last_batch, batch_sampler, seed
    )
    recipe = _prepared(recipe_of(dataset), batchify_fn)
    opaque = [*recipe.opaque, *([batchify_fn] if batchify_fn else [])]
    ahead = isinstance(batch_sampler, OrderBatchSampler)
    plan = GluonPlan(
        MapSource(dataset),
        batch_sampler.order if ahead else DrawnOrder(batch_size or 1),
        seed=seed,
        recipe=recipe,
        batchify=batchify_fn,
        used=generators_used(*opaque),
        semantics=(is_np_shape(), is_np_array()),
    )
    processes = _wants_processes(plan, num_workers, thread_pool, bool(opaque))
    # The data set may change between passes, but for processes that were asked for: as in MXNet,
    # these have it as it was.
    plan.live = not processes
    if num_workers == "auto":
        workers: int | Literal["auto"] = usable_cpus() if thread_pool is True else "auto"
    else:
        workers = max(0, num_workers)
    if prefetch is None:
        prefetch = _QUEUE if workers == "auto" else 2 * workers
    settings = Settings(workers, processes, max(1, int(prefetch)), _WORKER_ENVIRONMENT, timeout)
    move = mover(ctx, pin_memory, pin_device_id)
    return Loader(dataset, batch_sampler, plan, settings, move)


class Loader(mx.gluon.data.DataLoader):  # type: ignore[misc]
    """What ``gluon_loader`` returns.

    Each iterator over it is a pass of its own, by one consumer; there may be several at a time.
    ``close``, or the end of a ``with`` block, ends the workers; batches that are held stay valid.

    Args:
        dataset: As it was given.
        batch_sampler: Which samples make which batch.
        plan: How a batch is made.
        settings: By whom.
        move: Brings a batch to where it is wanted.
    """

    workers_keyword = "num_workers"

    def __init__(
        self, dataset: Any, batch_sampler: Any, plan: GluonPlan, settings: Settings, move: Mover
    ) -> None:
        # MXNet's own constructor would start a pool.
        self._dataset = dataset
        self._batch_sampler = batch_sampler
        self._plan = plan
        self._move = move
        self.settings = settings
        self._engine = Engine(plan, settings)
        self._passes = itertools.count()
        _open.add(self)

    def __iter__(self) -> Iterator[Any]:
        return Pass(self)

    def __len__(self) -> int:
        """Batches in a pass."""
        return len(self._batch_sampler)

    def explain(self) -> None:
        """Print which way the samples take, and why: a line for each part of the data set."""
        print("\n".join(explanation(self._plan, self._engine)))

    @property
    def waits(self) -> Waits:
        """How long the loop waited for each batch; MXNet may compute on meanwhile."""
        return self._engine.waits

    def twin(self) -> Loader:
        """The same loader once more, with workers of its own."""
        sampler = sampler_twin(self._batch_sampler)
        return Loader(self._dataset, sampler, self._plan, self.settings, self._move)

    def ablations(self) -> Ablations:
        """What is left of the work without a part of it, for ``adapters.diagnose``."""
        return ablations_of(self._plan, self._dataset, sampler_twin(self._batch_sampler))

    def close(self) -> None:
        """End the workers and free what they shared; batches that are held stay valid."""
        self._engine.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a loader has workers of its own and can't be copied or pickled: make another one of "
            "its data set"
        )

    def __del__(self) -> None:
        # No weakref.finalize, which would keep the plan, and with it whoever's methods are in it.
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.close()

    def refresh(self) -> None:
        """There is nothing to renew: each pass begins anew."""

    def clean(self) -> None:
        """There is nothing to clean: each pass begins anew."""


def _new_seed() -> int:
    """Another one for each loader, but the same again in a program that seeds NumPy.

    MXNet shuffles by NumPy's global generator. This one looks at it, and draws nothing.
    """
    state = pickle.dumps(np.random.get_state(legacy=False))
    return (next(_loaders) << 32) + zlib.crc32(state)


def _wants_processes(plan: GluonPlan, workers: Any, thread_pool: Any, opaque: bool) -> bool:
    if workers == "auto" and thread_pool == "auto":
        return False  # To be measured.
    if thread_pool is True or workers == 0 or (thread_pool == "auto" and not opaque):
        return False
    if (obstacle := obstacle_to_processes(plan)) is None:
        return True
    log.warning("worker processes can't be used, so threads are: %s", obstacle)
    return False


def _prepared(recipe: Recipe, batchify: Any) -> Recipe:
    """Without the arrays where the samples are asked for one by one all the same."""
    asked = isinstance(recipe.steps[0], Opaque) if recipe.steps else batchify is not None
    if asked:
        recipe.columns = None
    return recipe


def _close_all() -> None:
    for loader in list(_open):
        loader.close()


# Before the executors of concurrent.futures and loky are taken down, which atexit is too late for.
getattr(threading, "_register_atexit", None) and threading._register_atexit(_close_all)  # type: ignore[attr-defined]
