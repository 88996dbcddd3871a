"""``DataLoader``: its import, signature, subclasses, ``isinstance``, the Estimator, its workers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset
from mxnet.gluon.data.vision import transforms

import adapters
from adapters import gluon_loader
from adapters.gluon import DataLoader
from tests.engine.test_window import settled
from tests.engine.workloads import Tally
from tests.gluon.data_sets import Computed, pixels, values
from tests.gluon.executors import THREADS, arguments_of, opened, output_of
from tests.turns import read_by_threads

# --- the import of MXNet ---


WITHOUT_MXNET = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "mxnet":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
TOO_NEW = "import numpy; numpy.__version__ = '2.1.0'"
IMPORT = """
import sys
import numpy as np
before = set(vars(np))
try:
    {statement}
except ImportError as error:
    print(type(error).__name__, error)
    print(sorted(set(vars(np)) - before), "mxnet" in sys.modules)
"""


@pytest.mark.parametrize(
    ("setting", "statement", "said"),
    [
        (
            WITHOUT_MXNET,
            "from adapters import gluon_loader",
            "gluon_loader needs MXNet: pip install ",
        ),
        (
            TOO_NEW,
            "import adapters.gluon",
            "MXNet needs NumPy 1, and NumPy 2.1.0 is installed: pip",
        ),
    ],
    ids=["no MXNet", "NumPy too new"],
)
def test_missing_package_is_named_and_numpy_gets_its_name_back(setting, statement, said):
    error, left = output_of(setting + IMPORT.format(statement=statement))
    assert error.startswith(f"ImportError {said}")
    assert left == "[] False"


@pytest.mark.skipif("bool" in vars(np), reason="this NumPy has np.bool")
def test_import_leaves_numpy_and_at_the_end_the_collector_as_they_were():
    """It said 'NoneType' object has no attribute 'get_stats' at the end, once in a while."""
    said = output_of("""
    import atexit, gc, types
    import numpy as np

    def names():  # Submodules come as they are used.
        return {k: v for k, v in vars(np).items() if not isinstance(v, types.ModuleType)}

    atexit.register(lambda: print(gc.callbacks))
    before = names()
    print("bool" in before)
    import adapters.gluon
    after = names()
    print(sorted(name for name in after if name not in before or before[name] is not after[name]))
    print(sorted(before.keys() - after.keys()), len(gc.callbacks))
    """)
    assert said == ["False", "[]", "[] 1", "[]"]


def test_mxnet_of_a_worker_takes_scipys_matrices():
    said = output_of("""
    import os
    os.environ["ADAPTERS_QUIET_MXNET"] = "1"
    from adapters.gluon import import_mxnet
    print(import_mxnet().nd.ones((2, 2)).tostype("csr").asscipy().shape)
    """)
    assert said == ["(2, 2)"]


@pytest.mark.full
def test_two_threads_may_import_it_at_once():
    said = output_of("""
    from concurrent.futures import ThreadPoolExecutor
    import numpy as np
    def load(_):
        from adapters import gluon_loader
        return gluon_loader.__name__
    print(*ThreadPoolExecutor(2).map(load, range(2)), "bool" in vars(np))
    """)
    assert said == ["DataLoader DataLoader False"]


NUMBERS = np.arange(10)
# What came with MXNet's own 1.9. The argument is gone here: a pass starts with its first batch.
RELOADING = {"auto_reload", "clean", "refresh"}
# Ours chooses these by itself.
OTHER_DEFAULTS = {"num_workers", "pin_memory", "thread_pool"}


def positional(function: Any) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def test_signature_is_that_of_the_installed_mxnet():
    theirs = positional(mx.gluon.data.DataLoader)
    ours = positional(DataLoader)
    names = [each.name for each in theirs if each.name != "auto_reload"]
    assert [each.name for each in ours] == names
    differ = {own.name for own, each in zip(ours, theirs) if own.default != each.default}
    assert differ == OTHER_DEFAULTS & set(names)


def test_own_arguments_go_by_keyword():
    parameters = inspect.signature(gluon_loader).parameters.values()
    own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    assert own == [
        *("ctx", "seed", "shard", "on_error", "batch_transform", "weights", "bucket_by"),
        "thread_safe",
    ]


def test_public_names_are_mxnets_and_the_contracts():
    theirs = {*dir(mx.gluon.data.DataLoader(NUMBERS, 2)), *RELOADING}
    with DataLoader(NUMBERS, 2) as loader:
        list(loader)
        own = set(dir(loader)) - theirs
    public = "close epoch explain load_state_dict peek replay set_epoch state_dict waits"
    assert {name for name in own if not name.startswith("_")} == {*public.split()}


def test_all_of_mxnets_arguments_by_position():
    arguments = [NUMBERS, 4, False, None, "keep", None, None, 0, False, 0, None, False, 120]
    with DataLoader(*arguments) as loader:
        assert values(loader) == values(mx.gluon.data.DataLoader(*arguments))


def test_refreshing_a_loader_changes_nothing():
    with DataLoader(NUMBERS, 4, num_workers=0) as loader:
        loader.refresh()
        first = values(loader)
        loader.clean()
        assert values(loader) == first


def test_gluon_loader_can_stand_for_mxnets_class():
    assert isinstance(gluon_loader(NUMBERS, 2, num_workers=0), mx.gluon.data.DataLoader)
    assert not isinstance(mx.gluon.data.DataLoader(NUMBERS, 2), DataLoader)
    assert adapters.gluon_loader is gluon_loader is DataLoader


class Doubled(DataLoader):
    """As somebody would write it for MXNet's class."""

    def __init__(self, dataset: Any, factor: int, batch_size: int | None = None, **rest: Any):
        self.before = "set before"
        super().__init__(dataset, batch_size=batch_size, **rest)
        self._factor = factor

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch * self._factor

    def __len__(self) -> int:
        return 2 * super().__len__()


def test_subclass_may_change_what_a_loop_is_given():
    with Doubled(NUMBERS, 2, 4, **arguments_of(THREADS)) as loader:
        assert values(loader) == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
        assert values(loader) == values(loader)
        assert (len(loader), loader.before) == (6, "set before")


def test_subclass_finds_mxnets_attributes():
    arguments = {"num_workers": 0, "pin_device_id": 1, "prefetch": 3, "timeout": np.int64(9)}
    expected = vars(mx.gluon.data.DataLoader(NUMBERS, 4, **arguments))
    del expected["_batch_sampler"], expected["auto_reload"], expected["_iter"]
    loader = gluon_loader(NUMBERS, 4, **arguments)
    assert {name: getattr(loader, name) for name in expected} == expected
    assert (gluon_loader(NUMBERS, 4)._num_workers, loader._batch_sampler._batch_size) == (0, 4)
    assert [*loader._batch_sampler] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert repr(loader) == "<DataLoader of ndarray, batch_size=4>"
    assert repr(gluon_loader((NUMBERS,), batch_sampler=[[1]])) == "<DataLoader of ArrayDataset>"


def test_subclass_whose_constructor_raises_ends_without_a_word(capfd):
    class Broken(DataLoader):
        def __init__(self) -> None:
            raise KeyError("no data")

    with pytest.raises(KeyError):
        Broken()
    with pytest.raises(TypeError):
        DataLoader(None, 4)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("prefetch", "ahead"), [(3, 5), (None, 4)])
def test_prefetch_is_full_and_each_worker_has_one(prefetch, ahead, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Computed(tally, 400), THREADS, prefetch=prefetch) as loader:
        for taken, _ in zip(range(1, 4), loader):
            most = (taken + ahead) * 4
            assert settled(tally, most) == most


@pytest.mark.parametrize("opaque", [False, True], ids=["known", "opaque"])
def test_new_transforms_work_on_threads(opaque):
    """Without the lock, two of five such loaders fail."""
    data = ArrayDataset(mx.nd.array(pixels(64, 40, 44), dtype="uint8"), np.arange(64))
    for _ in range(8):
        blocks = [transforms.Resize(20), transforms.ToTensor(), transforms.Normalize(0.1, 0.2)]
        blocks = [transforms.RandomLighting(0.1), blocks[0]] if opaque else blocks
        with opened(data.transform_first(transforms.Compose(blocks)), THREADS, 8) as loader:
            assert len(list(loader)) == 8


@pytest.mark.parametrize("method", ["forward", "hybrid_forward"])
def test_method_of_one_block_is_called(method):
    block = transforms.ToTensor()
    object.__setattr__(block, method, lambda *arguments: arguments[-1].astype("float32"))
    data = ArrayDataset(mx.nd.array(pixels(4), dtype="uint8"), np.arange(4)).transform_first(block)
    with gluon_loader(data, 2, num_workers=0) as loader:
        assert next(iter(loader))[0].shape[-1] == 3


def test_threads_share_a_pass():
    with opened(np.arange(101), THREADS, 1, shuffle=True, seed=0) as loader:
        for epoch in range(3):
            given = read_by_threads(iter(loader))
            assert sorted(int(batch.asnumpy()[0]) for batch in given) == list(range(101))
            assert loader.state_dict() == {"epoch": epoch + 1, "batch": 0}
