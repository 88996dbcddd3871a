"""Gluon's transforms a batch at a time: MXNet's own values, and random ones that are repeatable."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, SimpleDataset
from mxnet.gluon.data.vision import transforms
from mxnet.gluon.data.vision.transforms import (
    Cast,
    CenterCrop,
    Compose,
    CropResize,
    Resize,
    ToTensor,
)
from mxnet.gluon.nn import HybridSequential

from adapters import gluon_loader
from adapters.gluon.stages import STAGES
from tests.gluon.data_sets import assert_same, nd, numpy_semantics, pixels, theirs

INLINE = {"num_workers": 0}
THREADS = {"num_workers": 2, "thread_pool": True}
PROCESSES = {"num_workers": 2, "thread_pool": False}
COUNT = 5
KINDS = pytest.mark.parametrize(("dtype", "channels"), [("uint8", 3), ("float32", 1)])


def image_of(number: int, dtype: str, channels: int, height: int, width: int) -> Any:
    values = pixels(COUNT, height, width, channels)[number]
    # Floats below 0 and above 255, none of them integers.
    return nd(values if dtype == "uint8" else ((values - 100.3) * 1.7).astype(dtype))


def equal_images(dtype: str, channels: int) -> Any:
    images = [image_of(i, dtype, channels, 8, 7).asnumpy() for i in range(COUNT)]
    return ArrayDataset(nd(np.stack(images)), list(range(COUNT)))


def other_images(dtype: str, channels: int) -> Any:
    """Each of another size; all at least 7 x 6."""
    images = [image_of(i, dtype, channels, 7 + i, 10 - i) for i in range(COUNT)]
    return SimpleDataset([(image, i) for i, image in enumerate(images)])


def sequential(*blocks: Any, hybrid: bool) -> Any:
    net = HybridSequential()
    net.add(*blocks)
    if hybrid:
        net.hybridize()
    return net


# The sizes keep images of different sizes different, or make them equal.
FIXED: dict[str, Callable[[], Any]] = {
    "ToTensor": ToTensor,
    **{f"Cast to {dtype}": lambda dtype=dtype: Cast(dtype) for dtype in
       ["float32", "float64", "float16", "uint8", "int8", "int32", "int64", "bool"]},
    **{f"Resize {arguments}": lambda arguments=arguments: Resize(*arguments) for arguments in [
        (5,), (12,), ((4, 9),), ((12, 3),), (5, True), (12, True), ((4, 9), True), ((7, 8),),
        *(((5, 11), False, interpolation) for interpolation in range(5))]},
    **{f"CenterCrop {arguments}": lambda arguments=arguments: CenterCrop(*arguments)
       for arguments in [
        (5,), (5.0,), ((3, 4),), ((4, 3.0),), ((7, 8),), (12,), ((3, 12),), ((12, 3), 2)]},
    "CropResize": lambda: CropResize(1, 2, 3, 4),
    "CropResize to a size": lambda: CropResize(1, 2, 3, 4, (5, 6), 1),
    "CropResize to a square": lambda: CropResize(0, 0, 6, 7, 4, 2),
    "Compose of one": lambda: Compose([ToTensor()]),
    "Compose": lambda: Compose(
        [Resize(6), CenterCrop(4), ToTensor(), transforms.Normalize(0.13, 0.31), Cast("float16")]
    ),
    "Compose in Compose": lambda: Compose([Compose([CenterCrop(5), ToTensor()]), Cast("float64")]),
    "HybridSequential": lambda: sequential(Resize(5), ToTensor(), hybrid=False),
    "HybridSequential, hybridized": lambda: sequential(Resize(5), ToTensor(), hybrid=True),
}  # fmt: skip


def check(data: Any, block: Any, batch_size: int, steps: int = 1) -> None:
    """Our batches are MXNet's, and ``block`` did run a batch at a time."""
    data = data.transform_first(block)
    with gluon_loader(data, batch_size, **INLINE) as loader:
        assert len([op for op in loader._plan.pipeline.ops if hasattr(op, "block")]) == steps
        assert_same(list(loader), theirs(data, batch_size=batch_size))


# --- those that are not random ---


@KINDS
@pytest.mark.parametrize("name", [name for name in FIXED if "Comp" not in name and "H" not in name])
def test_block_gives_mxnets_values(name, dtype, channels):
    check(equal_images(dtype, channels), FIXED[name](), 3)


COMPOSED = [("Compose of one", 1), ("Compose", 5), ("Compose in Compose", 3)]
SEQUENTIAL = [("HybridSequential", 2), ("HybridSequential, hybridized", 2)]


@KINDS
@pytest.mark.parametrize(("name", "steps"), COMPOSED + SEQUENTIAL)
def test_blocks_in_a_row_give_mxnets_values(name, steps, dtype, channels):
    check(equal_images(dtype, channels), FIXED[name](), 3, steps)
    check(other_images(dtype, channels), FIXED[name](), 1, steps)


@KINDS
@pytest.mark.parametrize(
    ("name", "batch_size"),
    [
        *((name, 3) for name in ("Resize (5,)", "CenterCrop (12,)", "CropResize")),
        *((name, 1) for name in ("ToTensor", "Resize (5, True)", "Cast to float64")),
    ],
)
def test_images_of_several_sizes_give_mxnets_values(name, batch_size, dtype, channels):
    """They become equal, or each is a batch of its own."""
    check(other_images(dtype, channels), FIXED[name](), batch_size)


@pytest.mark.parametrize("size", [(7, 6), (12, 13), (7, 13), (12, 3)])
def test_crops_of_some_images_give_mxnets_values(size):
    # 7 to 11 high, 10 to 6 wide: larger, smaller and both in one batch.
    check(other_images("uint8", 3), CenterCrop(size), COUNT)


@pytest.mark.parametrize(
    ("mean", "std", "channels"),
    [
        (0.13, 0.31, 1),
        (0.13, 0.31, 3),
        ((0.1,), (0.3,), 3),
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 3),
        ([0.1, 0.2, 0.3], 0.7, 3),
        (0.5, (0.1, 0.2, 0.3), 3),
        (0.0, 1.0, 1),
        (0.0, 0.0, 3),
    ],
)
@pytest.mark.parametrize(
    ("make", "dtype", "batch_size"), [(equal_images, "uint8", 3), (other_images, "float32", 1)]
)
def test_normalize_gives_mxnets_values(mean, std, channels, make, dtype, batch_size):
    data = make(dtype, channels).transform_first(ToTensor())
    check(data, transforms.Normalize(mean, std), batch_size, steps=2)


def test_normalize_of_infinities_gives_what_mxnet_gives():
    images = nd(np.full((2, 3, 2, 2), np.inf, np.float32))
    images[0] = 3
    check(ArrayDataset(images, [0, 1]), transforms.Normalize(1.0, 2.0), 2)


@pytest.mark.parametrize("to", ["uint8", "int8", "int32", "int64", "float16", "float32", "bool"])
def test_cast_between_any_two_dtypes_gives_mxnets_values(to):
    for source in ("uint8", "int8", "int32", "int64", "float16", "float64", "bool"):
        values = np.array([[0, 1, 2, 100], [127, 3, 50, 11]], np.float64)
        if np.dtype(source).kind == "f":
            # MXNet rounds float64 to float32 first.
            twice = values + 1 + 2**-11 + 2**-40
            values = np.concatenate([values + 0.49, values * 1e-9, values / 2, twice])
        check(ArrayDataset(nd(values.astype(source)), list(range(len(values)))), Cast(to), 2)


@pytest.mark.parametrize("target", ["float16", "float32", "float64", "bool"])
def test_cast_of_what_is_no_number_gives_mxnets_values(target):
    values = np.array([[np.nan, np.inf], [-np.inf, 1e30], [-0.0, 65520], [65519, 6e-8]], np.float32)
    check(ArrayDataset(nd(values), list(range(4))), Cast(target), 2)


@pytest.mark.parametrize("name", ["ToTensor", "Resize (5,)", "CenterCrop (5,)", "Cast to float64"])
def test_under_numpy_semantics_a_block_gives_mxnets_values(name):
    with numpy_semantics():
        check(equal_images("float32", 3), FIXED[name](), 3)
        check(other_images("uint8", 3), FIXED[name](), 1)


@pytest.mark.parametrize("make", [equal_images, other_images])
def test_single_samples_are_transformed_as_mxnet_does(make):
    data = make("uint8", 3).transform(lambda image, number: image)
    check(data, Compose([CenterCrop(4), ToTensor()]), 3, steps=2)
    check(ArrayDataset(nd(pixels(5))).transform(ToTensor()), Cast("float16"), 3, steps=2)


class Shifted(ToTensor):
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.to_tensor(x) + 1


def test_subclass_of_a_block_runs_as_it_is():
    check(equal_images("uint8", 3), Compose([CenterCrop(4), Shifted()]), 3, steps=1)


def test_hooks_of_a_block_are_called():
    calls: list[int] = []
    block = ToTensor()
    block.register_forward_hook(lambda *_: calls.append(1))
    with gluon_loader(equal_images("uint8", 3).transform_first(block), 2, **INLINE) as loader:
        assert len(list(loader)) == 3
    assert len(calls) == COUNT


def test_explain_says_what_runs_a_batch_at_a_time(capsys):
    block = Compose([transforms.RandomFlipLeftRight(), ToTensor()])
    data = equal_images("uint8", 3).transform_first(block)
    with gluon_loader(data.transform(lambda *sample: sample), 2, **INLINE) as loader:
        loader.explain()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "ArrayDataset: arrays, gathered a batch at a time",
        "RandomFlipLeftRight: a batch at a time, from each sample's own random numbers",
        "ToTensor: a batch at a time",
    ]
    assert "<lambda> (test_stages.py:" in lines[3]
    assert "a sample at a time" in lines[3]


# --- those that are random ---


def flips() -> list[Any]:
    return [transforms.RandomFlipLeftRight(), transforms.RandomFlipTopBottom()]


MANY = 400
RANDOM: dict[str, Callable[[], Any]] = {
    "left right": transforms.RandomFlipLeftRight,
    "top bottom": transforms.RandomFlipTopBottom,
    "crop": lambda: transforms.RandomResizedCrop((3, 4)),
    "all": lambda: Compose([transforms.RandomResizedCrop(5), *flips(), ToTensor()]),
}


def random_batches(name: str, epochs: int = 1, data: Any = None, **arguments: Any) -> Any:
    """Batches of ``epochs`` epochs, as arrays of one epoch each."""
    data = nd(pixels(24)) if data is None else data
    data = SimpleDataset(data).transform_first(RANDOM[name]())
    arguments = {"batch_size": 5, "seed": 3, **INLINE, **arguments}
    with gluon_loader(data, **arguments) as loader:
        assert any(hasattr(op, "block") for op in loader._plan.pipeline.ops)
        return [np.concatenate([batch.asnumpy() for batch in loader]) for _ in range(epochs)]


@pytest.mark.parametrize(
    ("name", "axis", "dtype"), [("left right", 2, "uint8"), ("top bottom", 1, "float32")]
)
def test_about_half_of_the_images_are_flipped(name, axis, dtype):
    images = pixels(MANY, 3, 4).astype(dtype)
    (flipped,) = random_batches(name, data=nd(images))
    same = (flipped == images).all((1, 2, 3))
    turned = (flipped == np.flip(images, axis)).all((1, 2, 3))
    assert (same | turned).all()
    # Five standard deviations.
    assert abs(turned.sum() - MANY / 2) < 50


def test_crop_of_the_whole_is_the_resized_image():
    data = nd(pixels(6, 8, 8))
    crop = transforms.RandomResizedCrop((4, 5), scale=(1.0, 1.0), ratio=(1.0, 1.0))
    with gluon_loader(SimpleDataset(data).transform(crop), 6, **INLINE) as loader:
        assert_same(list(loader), theirs(SimpleDataset(data).transform(crop), batch_size=6))


def test_crops_cover_the_areas_and_ratios_that_were_asked_for():
    # An image of its own coordinates: a crop's corners say where it was.
    y, x = np.mgrid[:100, :100]
    image = nd(np.stack([y, x, x], 2).astype(np.float32))
    scales = {"scale": (0.2, 0.5), "ratio": (0.5, 2.0)}
    crop = transforms.RandomResizedCrop((50, 50), **scales, interpolation=0)
    data = SimpleDataset([image] * 300).transform(crop)
    with gluon_loader(data, 300, seed=1, **INLINE) as loader:
        crops = next(iter(loader)).asnumpy()
    height, width = (np.ptp(crops[..., channel], axis=(1, 2)) + 2 for channel in (0, 1))
    area, ratio = height * width / 10_000, width / height
    assert 0.19 < area.min() < 0.24
    assert 0.46 < area.max() < 0.52
    assert 0.48 < ratio.min() < 0.6
    assert 1.7 < ratio.max() < 2.1
    assert abs(np.log(ratio).mean()) < 0.12
    top, left = crops[..., 0].min((1, 2)), crops[..., 1].min((1, 2))
    assert 0 <= top.min() < 3
    assert 0 <= left.min() < 3


@pytest.mark.parametrize(
    ("name", "workers"), [*((name, THREADS) for name in RANDOM), ("all", PROCESSES)]
)
def test_seed_gives_the_same_batches_on_any_workers(name, workers):
    """And nobody else's generator is touched."""
    expected = random_batches(name, epochs=2, shuffle=True)
    mx.random.seed(1)
    drawn = mx.nd.random.uniform(shape=4).asnumpy()
    mx.random.seed(1)
    before = random.getstate(), np.random.get_state(legacy=False)
    np.testing.assert_array_equal(random_batches(name, epochs=2, shuffle=True, **workers), expected)
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(legacy=False), before[1])
    np.testing.assert_array_equal(mx.nd.random.uniform(shape=4).asnumpy(), drawn)


@pytest.mark.parametrize("name", RANDOM)
def test_draws_depend_on_seed_epoch_and_sample_alone(name):
    (first,), (second,) = random_batches(name), random_batches(name, batch_size=7)
    np.testing.assert_array_equal(first, second)
    data = nd(np.repeat(pixels(1), 24, axis=0))
    first, second = random_batches(name, epochs=2, data=data)
    (third,) = random_batches(name, data=data, seed=4)
    for one, other in itertools.combinations([first, second, third], 2):
        assert (one != other).any()
    assert (first != first[:1]).any()


def test_two_flips_in_a_row_draw_independently():
    image = pixels(1, 3, 4)[0]
    data = SimpleDataset([nd(image)] * MANY)
    data = data.transform_first(Compose(flips()))
    with gluon_loader(data, 50, seed=0, **INLINE) as loader:
        images = np.concatenate([batch.asnumpy() for batch in loader])
    for y, x in itertools.product([1, -1], [1, -1]):
        # Five standard deviations around a quarter.
        assert abs((images == image[::y, ::x]).all((1, 2, 3)).sum() - MANY / 4) < 44


def of_zeros(channels: int) -> Any:
    return ArrayDataset(nd(np.zeros((4, 6, 7, channels), "uint8")), np.arange(4))


def test_five_channels_are_resized_as_by_mxnet():
    check(of_zeros(5), Resize(8, interpolation=1), 2)


@pytest.mark.parametrize(
    ("block", "channels"),
    [
        (Resize(8, interpolation=9), 3),
        (Resize(8, interpolation=11), 5),
        (CropResize(0, 0, 4, 4, 3, 9), 3),
        (CropResize(0, 0, 4, 4, 3, 1), 5),
    ],
)
def test_what_mxnet_cannot_resize_is_its_error(block, channels):
    data = of_zeros(channels).transform_first(block)
    with pytest.raises(mx.MXNetError):
        [images.asnumpy() for images, _ in gluon_loader(data, 2, **INLINE)]
    with contextlib.suppress(mx.MXNetError):
        mx.nd.waitall()  # It would raise what is left in another test.


class Inverted(mx.gluon.nn.HybridBlock):
    """A user's own block."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return 255 - x


def test_own_stage(monkeypatch, capsys):
    images = mx.nd.arange(10 * 4 * 4).reshape((10, 4, 4, 1))
    data = ArrayDataset(images, np.arange(10)).transform_first(Inverted())
    one_by_one = [x.asnumpy() for x, _ in gluon_loader(data, 4, num_workers=0)]
    batches = []

    def inverted(block: Any, rows: Any, drawn: Any, allocate: Any) -> Any:
        batches.append(len(rows))
        return np.subtract(255, rows, out=allocate(rows.shape, rows.dtype))

    monkeypatch.setitem(STAGES, Inverted, (inverted, 0))
    with gluon_loader(data, 4, num_workers=0) as loader:
        at_once = [x.asnumpy() for x, _ in loader]
        loader.explain()
    assert batches == [4, 4, 2]
    assert "Inverted: a batch at a time" in capsys.readouterr().out
    np.testing.assert_array_equal(np.concatenate(at_once), np.concatenate(one_by_one))
