"""Batches that show which axes differ: those along which samples have unequal lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adapters import Feature, open_records, pad
from tests.plans import plan_of
from tests.sources.example_files import encoded, file_of


def shapes(plan):
    """Of the members' samples, in each batch that is lengthened."""

    return [tuple(member.shape[1:] for member in batch) for batch in plan.longer(0)]


def texts(lengths, label=(1,)):
    return [(np.ones(length, int), np.full(label, 2)) for length in lengths]


def test_a_member_of_fixed_size_stays_as_it_is():
    assert shapes(plan_of(texts([3, 5, 4, 4]), 2, collate=pad(0))) == [((6,), (1,)), ((4,), (1,))]


@pytest.mark.parametrize("multiple", [1, 8])
def test_what_is_cut_off_in_all_batches_may_be_shorter_in_others(multiple):
    plan = plan_of(texts([30, 40, 50, 60]), 2, collate=pad(0, multiple, max_length=16))
    assert shapes(plan) == 2 * [((16 - multiple,), (1,) if multiple == 1 else (8,))]


def test_what_is_always_as_long_as_it_may_be_is_fixed():
    plan = plan_of(texts([3, 5, 4, 4]), 2, collate=pad(0, 16, max_length=16))
    assert shapes(plan) == 2 * [((16,), (16,))]


def test_where_no_lengths_vary_all_may_but_those_of_1():
    assert shapes(plan_of(texts([3] * 6), 2, collate=pad(0))) == 3 * [((4,), (1,))]


def test_a_value_for_each_member_says_that_they_vary():
    plan = plan_of(texts([3, 5, 4, 4]), 2, collate=pad((0, 0)))
    assert shapes(plan) == [((6,), (2,)), ((5,), (2,))]


def test_what_fails_for_a_batch_that_is_not_real_is_left_out():
    def fixed(batch):
        return batch[0] + np.zeros(3), batch[1]

    assert shapes(plan_of(texts([3] * 6), 2, collate=pad(0), batch_transform=fixed)) == []


def test_lengths_that_differ_only_in_the_last_batch_are_seen():
    plan = plan_of(texts([3] * 8 + [3, 7]), 2, collate=pad(0))
    assert shapes(plan) == [((3,), (1,)), ((3,), (1,)), ((8,), (1,))]


def test_what_follows_buckets_varies_also_where_a_batch_has_one_length():
    samples = texts([3, 3, 9, 9], label=(3,))
    collate = pad(0).within([4, 12], np.array([3, 3, 9, 9]))
    assert shapes(plan_of(samples, 2, collate=collate)) == [((5,), (3,)), ((13,), (3,))]


def test_features_that_a_source_pads_vary(tmp_path: Path):
    payloads = [encoded({"t": [1] * 5, "y": [1]}) for _ in range(4)]
    decode = {"t": Feature("int64", (None,), default=0), "y": Feature("int64", (1,))}
    source = open_records(file_of(tmp_path, payloads), decode=decode, outputs=("t", "y"))
    assert shapes(plan_of(source, 2)) == 2 * [((6,), (1,))]
    assert plan_of(source, 2, transform=lambda sample: sample).longer(0) == []


def test_nothing_is_lengthened_where_nothing_is_padded():
    assert plan_of(np.zeros((4, 3))).longer(0) == []
    assert plan_of(texts([1, 1]), collate=list).longer(0) == []
