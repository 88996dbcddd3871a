"""Samples that are tuples, or become some: what a transform is given of them, as in MXNet."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import Block
from mxnet.gluon.data import ArrayDataset, SimpleDataset
from mxnet.gluon.data.vision.transforms import Cast, Compose, ToTensor

from adapters import gluon_loader
from tests.gluon.data_sets import assert_same, labels, nd, pixels, theirs
from tests.gluon.executors import EXECUTORS, every_quick_executor, opened


def images() -> list[Any]:
    return [nd(image) for image in pixels()]


def first_and_count(samples: list[Any]) -> Any:
    """The images, and how many members come with each."""
    pairs = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    return [mx.nd.stack(*[first for first, *_ in pairs]), nd(np.array([*map(len, pairs)]))]


class TwoViews(Block):
    def forward(self, image: Any) -> Any:
        return image, image + 1


class Both(Block):
    def forward(self, views: Any) -> Any:
        first, second = views
        return first * 2, second * 3


@every_quick_executor
@pytest.mark.parametrize("first", [False, True], ids=["transform", "transform_first"])
def test_blocks_of_a_compose_pass_tuples_on_as_they_are(executor, first):
    data = SimpleDataset(images())
    block = Compose([ToTensor(), TwoViews(), Both(), Both()])
    data = data.transform_first(block) if first else data.transform(block)
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(data, batch_size=4))


@every_quick_executor
def test_so_they_do_with_the_first_member_of_a_pair(executor):
    data = SimpleDataset(list(zip(images(), labels().tolist())))
    data = data.transform_first(Compose([ToTensor(), Compose([TwoViews(), Both()])]))

    def batchify(samples: list[Any]) -> Any:
        return [view for views, _ in samples for view in views]

    with opened(data, executor, batchify_fn=batchify) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, batchify_fn=batchify))


def test_explain_has_a_line_for_each_of_them(capsys):
    data = SimpleDataset(images()).transform(Compose([ToTensor(), TwoViews(), Both()]))
    with gluon_loader(data, 4, num_workers=0) as loader:
        loader.explain()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:4]] == ["ToTensor", "TwoViews", "Both"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_tuples_in_the_one_list_of_an_array_dataset_have_members(executor):
    data = ArrayDataset(list(zip(images(), labels().tolist()))).transform_first(ToTensor())
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(data, batch_size=4))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("singles", [False, True])
def test_tuples_of_several_lengths_are_for_a_batchify_of_ones_own(executor, singles):
    tuples = [(image, *range(number % 3)) for number, image in enumerate(images())]
    samples = [each[0] if singles and len(each) == 1 else each for each in tuples]
    data = SimpleDataset(samples).transform_first(Compose([ToTensor(), Cast("float64")]))
    with opened(data, executor, batchify_fn=first_and_count) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, batchify_fn=first_and_count))


@every_quick_executor
def test_by_mxnets_rules_they_are_named(executor):
    data = SimpleDataset([(image, *range(n + 1)) for n, image in enumerate(images())])
    with (
        opened(data.transform_first(ToTensor()), executor) as loader,
        pytest.raises(ValueError, match="sample 1 has 3, sample 0 has 2"),
    ):
        next(iter(loader))
