"""``shard="auto"`` and ``shard=kv``: the part of this process."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import mxnet as mx
import numpy as np
import pytest

from adapters import gluon_loader
from adapters.ranks import sharding
from tests.gluon.data_sets import values
from tests.gluon.executors import opened

NUMBERS = np.arange(24)


class Kv(mx.kvstore.KVStoreBase):
    """The second of three."""

    rank, num_workers, type = 1, 3, "dist_sync"


@pytest.fixture(autouse=True)
def nothing_was_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "_warned", set())


def read(loader) -> list[int]:
    return [int(number) for batch in values(loader) for number in batch]


@pytest.mark.parametrize("order", [{}, {"last_batch": "rollover"}])
def test_a_kvstore_says_the_shard(order):
    with opened(NUMBERS, "inline", shard=Kv(), **order) as loader:
        assert read(loader) == NUMBERS[1::3].tolist()


def test_a_kvstore_of_one_process_is_all_of_the_data():
    with opened(NUMBERS, "inline", shard=mx.kv.create("local")) as loader:
        assert read(loader) == NUMBERS.tolist()


@pytest.mark.parametrize("order", [{}, {"last_batch": "rollover"}])
@pytest.mark.parametrize("use", [iter, len, lambda loader: loader.state_dict()])
def test_the_first_use_settles_it(use, order, monkeypatch):
    with opened(NUMBERS, "inline", shard="auto", **order) as loader:
        module = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: 1,
            get_world_size=lambda: 2,
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", module)
        use(loader)
        monkeypatch.delitem(sys.modules, "torch.distributed")
        assert read(loader) == NUMBERS[1::2].tolist()


def test_what_shards_exclude_auto_excludes_alone_too():
    with pytest.raises(ValueError, match="shard must not be specified if sampler"):
        gluon_loader(NUMBERS, 4, sampler=[1, 2], shard="auto")
    with pytest.raises(ValueError, match="shard needs a seed with a random order"):
        gluon_loader(NUMBERS, 4, shuffle=True, shard="auto")


def test_mxnets_workers_are_told_to_give_the_kvstore(monkeypatch):
    monkeypatch.setenv("DMLC_ROLE", "worker")
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    with pytest.raises(ValueError, match="give gluon_loader shard=kv"):
        gluon_loader(NUMBERS, 4, shard="auto")


def test_every_worker_with_all_of_the_data_is_warned_of(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, logger="adapters")
    monkeypatch.setenv("DMLC_ROLE", "worker")
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    with opened(NUMBERS, "inline") as loader:
        for _ in range(2):
            list(loader)
    (record,) = caplog.records
    assert "shard=kv" in record.getMessage()
