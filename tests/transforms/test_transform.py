"""What all transforms have in common: whose memory they write to, and what they draw."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import adapters
from adapters.transforms import Chain, ColorJitter, CutMix, MixUp, OneHot, RandomErasing
from tests.batches import exact
from tests.transforms.images import pictures, rng

EVERY = [
    MixUp(),
    CutMix(),
    RandomErasing(1.0),
    ColorJitter(0.5, 0.5, 0.5, 0.2),
    OneHot(6, 0.1, label="number"),
    Chain([OneHot(6, label="number"), RandomErasing(1.0), MixUp(), ColorJitter(0.4)]),
]
every = pytest.mark.parametrize("transform", EVERY, ids=lambda transform: type(transform).__name__)


def batch(dtype: str = "uint8") -> dict[str, Any]:
    return {
        "image": pictures(6, dtype=dtype),
        "label": np.eye(6, dtype=np.float32),
        "number": np.arange(6),
    }


@every
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_given_batch_stays_what_it_is(transform, dtype):
    given = batch(dtype)
    made = transform(given, rng())
    assert exact(given) == exact(batch(dtype))
    assert exact(made) != exact(given)


@every
def test_own_memory_and_copy_are_the_same(transform):
    given = batch()
    made = transform.on_own_batch(given, rng())
    assert exact(made) == exact(transform(batch(), rng()))
    if transform in EVERY[:4]:
        assert made["image"] is given["image"]


@pytest.mark.parametrize("transform", EVERY[:4], ids=lambda transform: type(transform).__name__)
def test_shared_or_constant_images_are_copied(transform):
    given = batch()
    given["target"], given["half"] = given["image"], given["image"][:3]
    made = transform.on_own_batch(given, rng())
    assert made["target"].tolist() == batch()["image"].tolist()
    constant = np.frombuffer(pictures().tobytes(), np.uint8).reshape(6, 13, 17, 3)
    transform.on_own_batch({**batch(), "image": constant}, rng())
    assert constant.tolist() == pictures().tolist()


@every
def test_generator_decides_the_batch(transform):
    assert exact(transform(batch(), rng(1))) == exact(transform(batch(), rng(1)))
    if transform.draws and not isinstance(transform, OneHot):
        assert exact(transform(batch(), rng(1))) != exact(transform(batch(), rng(2)))
        with pytest.raises(TypeError, match="Generator, got None"):
            transform(batch(), None)


def test_one_hot_smoothing_and_shapes():
    x = np.zeros((2, 1))
    labels = OneHot(4, 0.1)((x, np.array([[2], [0]], np.uint8)))[1]
    assert labels.dtype == np.float32
    assert labels[0].tolist() == pytest.approx([0.025, 0.025, 0.925, 0.025])
    masks = np.array([[[0, 1], [2, 1]]])
    assert OneHot(3)((np.zeros((1, 2, 2, 3)), masks))[1].shape == (1, 2, 2, 3)
    assert OneHot(3, dtype="int32")((x, np.array([1, 2])))[1].tolist() == [[0, 1, 0], [0, 0, 1]]


NONE = Chain([MixUp(), lambda batch: None])


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, r"labels must be in range\(2\).* got 0 to 2", lambda: hot(np.arange(3))),
        (ValueError, "got -1 to 1", lambda: hot(np.array([-1, 1]))),
        (TypeError, "class numbers to be made one-hot, got float64", lambda: hot(np.array([0.5]))),
        (ValueError, r"label_smoothing must be in \[0, 1\]", lambda: OneHot(2, 1.5)),
        (ValueError, "a float type for smoothed labels", lambda: OneHot(2, 0.1, dtype="int32")),
        (ValueError, "transforms must hold at least one", lambda: Chain([])),
        (TypeError, "must be a list of callables", lambda: Chain(MixUp())),
        (TypeError, r"transforms\[1\] must be callable", lambda: Chain([MixUp(), 3])),
        (ValueError, r"transforms\[1\] .* must return a batch, got None", lambda: drawn(NONE)),
        (ValueError, "got one array without labels", lambda: OneHot(2)(np.ones(3))),
        (ValueError, r"must be \(images, labels\), got 1 members", lambda: OneHot(2)((1,))),
        (ValueError, r"a member \['a'\] for image=", lambda: drawn(MixUp(image="a"), {"b": 1})),
        (ValueError, "an array where its image is, got str", lambda: drawn(MixUp(), ("a", "b"))),
    ],
)
def test_wrong_arguments_are_refused(error, message, make):
    with pytest.raises(error, match=message):
        make()


def hot(labels: Any) -> Any:
    return OneHot(2)((0, labels))


def drawn(transform: Any, batch: Any = None) -> Any:
    return transform(pictures() if batch is None else batch, rng())


def test_chain_members_draw_independently():
    erased = Chain([RandomErasing(1.0)])(pictures(), rng()) == 0
    both = Chain([ColorJitter(brightness=(1, 1)), RandomErasing(1.0)])(pictures(), rng()) == 0
    assert both.tolist() == erased.tolist()
    twice = Chain([RandomErasing(1.0), RandomErasing(1.0)])(pictures(), rng()) == 0
    assert (twice & erased).sum() == erased.sum() < twice.sum()


def test_chain_takes_functions():
    seen = []

    def shifted(batch: Any, rng: np.random.Generator) -> Any:
        seen.append(rng.random())
        return batch // 2

    made = Chain([shifted, lambda batch: batch + 1])(pictures(), rng())
    assert made.tolist() == (pictures() // 2 + 1).tolist()
    assert len(seen) == 1


def test_chain_writes_not_to_what_a_function_keeps():
    kept = pictures()
    keeping = Chain([lambda batch: kept])
    for chain in (Chain([keeping, RandomErasing(1.0)]), Chain([*keeping.functions, MixUp()])):
        chain.on_own_batch(pictures(), rng())
    assert kept.tolist() == pictures().tolist()


def test_chain_repr():
    assert adapters.transforms.MixUp is MixUp
    assert repr(Chain([MixUp(0.3)])) == "Chain([MixUp(alpha=0.3, probability=1.0)])"


NUMBERS = {
    "alpha": (MixUp, CutMix),
    "probability": (MixUp, CutMix, RandomErasing, ColorJitter),
    "value": (RandomErasing,),
    "label_smoothing": (functools.partial(OneHot, 3),),
}
FACTORS = dict.fromkeys(("brightness", "contrast", "saturation", "hue"), (ColorJitter,))
PAIRS = {"scale": (RandomErasing,), "ratio": (RandomErasing,), "value_range": (ColorJitter,)}
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("value", "wrong"),
    [(INF, INF), (NAN, NAN), (10**400, 10**400)]
    + [((INF, 0.3), INF), ((0.1, INF), INF), ((NAN, 0.3), NAN), ((0.1, NAN), NAN)],
)
def test_infinite_numbers_and_bounds_are_refused(value, wrong):
    checked = {**FACTORS, **(PAIRS if isinstance(value, tuple) else NUMBERS)}
    for name, makers in checked.items():
        message = rf"{name} must be .*, got \(?{wrong!r}"
        for made in makers:
            with pytest.raises((TypeError, ValueError), match=message):
                made(**{name: value})
