"""Batch transforms: what they make, whose memory they write to, and what they draw."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from adapters.images import kernel
from adapters.transforms import (
    Chain,
    ColorJitter,
    CutMix,
    MixUp,
    OneHot,
    RandomErasing,
    colour,
    mixup,
)
from tests.batches import exact

LAYOUTS = ("NHWC", "NCHW")
DTYPES = ("uint8", "float32")


def pictures(
    count: int = 6, layout: str = "NHWC", dtype: str = "uint8", size: tuple[int, int] = (13, 17)
) -> Any:
    """Images whose pixels all differ, of that layout."""
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, *size, 3), np.uint8)
    if layout == "NCHW":
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images if dtype == "uint8" else (images / 255).astype(dtype)


def last(images: Any, layout: str) -> Any:
    """The same with the channels last."""
    return images.transpose(0, 2, 3, 1) if layout == "NCHW" else images


def rng(seed: int = 0) -> np.random.Generator:
    """A generator, as a loader gives it."""
    return np.random.default_rng(seed)


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


JITTER, NOISE = ColorJitter(0.1), RandomErasing(value="noise")


@every
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_own_batch_is_written_into_and_a_given_one_is_not(transform, dtype):
    given, own = batch(dtype), batch(dtype)
    made = transform(given, rng())
    assert exact(given) == exact(batch(dtype))
    assert exact(made) != exact(given)
    changed = transform.on_own_batch(own, rng())
    assert exact(changed) == exact(made)
    if transform in EVERY[:4]:
        assert changed["image"] is own["image"]


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
    for labels in (masks, masks[..., None]):
        assert OneHot(3)((np.zeros((1, 2, 2, 3)), labels))[1].shape == (1, 2, 2, 3)
    assert OneHot(3, dtype="int32")((x, np.array([1, 2])))[1].tolist() == [[0, 1, 0], [0, 0, 1]]


def drawn(transform: Any, batch: Any = None) -> Any:
    return transform(pictures() if batch is None else batch, rng())


FLAT, WHOLE_NUMBERS = np.ones((2, 2)), np.ones((2, 2, 2, 3), np.int64)
LABELLED = pictures(), np.arange(6)
BANDS = np.ones((2, 2, 2, 4), "f4")
NONE = Chain([MixUp(), lambda batch: None])


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, r"labels must be in range\(2\).* 0 to 5", lambda: drawn(OneHot(2), LABELLED)),
        (ValueError, "got -1 to 1", lambda: drawn(OneHot(2), (0, np.array([-1, 1])))),
        (TypeError, "to be made one-hot, got float64", lambda: drawn(OneHot(2), (0, FLAT[0] / 2))),
        (ValueError, r"label_smoothing must be in \[0, 1\]", lambda: OneHot(2, 1.5)),
        (ValueError, "a float type for smoothed labels", lambda: OneHot(2, 0.1, dtype="int32")),
        (ValueError, "transforms must hold at least one", lambda: Chain([])),
        (TypeError, "must be a list of callables", lambda: Chain(MixUp())),
        (TypeError, r"transforms\[1\] must be callable", lambda: Chain([MixUp(), 3])),
        (ValueError, r"\[1\] .* must return a batch, got None", lambda: drawn(NONE)),
        (ValueError, "got one array without labels", lambda: OneHot(2)(np.ones(3))),
        (ValueError, r"must be \(images, labels\), got 1 members", lambda: OneHot(2)((1,))),
        (ValueError, r"a member \['a'\] for image=", lambda: drawn(MixUp(image="a"), {"b": 1})),
        (ValueError, "an array where its image is, got str", lambda: drawn(MixUp(), ("a", "b"))),
        (ValueError, "alpha must be >= 1e-06, got 0", lambda: MixUp(0)),
        (TypeError, "alpha must be a number, got 'x'", lambda: CutMix("x")),
        (ValueError, r"probability must be in \[0, 1\], got 2", lambda: MixUp(probability=2)),
        (ValueError, "num_classes must be >= 1, got 0", lambda: CutMix(num_classes=0)),
        (ValueError, 'layout must be "auto", "NHWC" or "NCHW"', lambda: CutMix(layout="HWC")),
        (TypeError, "image must be a position, a key", lambda: MixUp(image=1.5)),
        (TypeError, "or float to be mixed, got int64", lambda: drawn(MixUp(), WHOLE_NUMBERS)),
        (TypeError, "rng must be a numpy.random.Generator, got None", lambda: MixUp()(FLAT, None)),
        (ValueError, "image or images or pixel_values, got", lambda: drawn(MixUp(), {"x": 1})),
        (ValueError, "have an axis of channels more, got the shape", lambda: drawn(CutMix(), FLAT)),
        (ValueError, r"in range\(3\)", lambda: drawn(MixUp(num_classes=3), LABELLED)),
        (ValueError, r"value_range=\(0, 255\), say", lambda: drawn(JITTER, pictures(2) * 1.0)),
        (ValueError, r"within \(0.0, 1.0\), got -", lambda: drawn(JITTER, pictures(2) / 64 - 2)),
        (TypeError, "float for ColorJitter, got int64", lambda: drawn(JITTER, WHOLE_NUMBERS)),
        (ValueError, "1 or 3 channels", lambda: drawn(JITTER, BANDS)),
        (ValueError, "brightness must be >= 0, got -0.1", lambda: ColorJitter(-0.1)),
        (ValueError, r"hue must be in \[0, 0.5\], got 0.7", lambda: ColorJitter(hue=0.7)),
        (ValueError, r"low <= high, got \(2, 1\)", lambda: ColorJitter(contrast=(2, 1))),
        (ValueError, r"scale must be in \[0, 1\], got 1.5", lambda: RandomErasing(scale=(0, 1.5))),
        (TypeError, r"ratio must be \(low, high\), got 3", lambda: RandomErasing(ratio=3)),
        (TypeError, "value must be a number, got 'black'", lambda: RandomErasing(value="black")),
        (ValueError, r"of 3 channels, got \(1, 2\)", lambda: drawn(RandomErasing(1, value=(1, 2)))),
        (TypeError, "fit the images' uint8, got 0.5", lambda: drawn(RandomErasing(1, value=0.5))),
        (TypeError, "float for noise, got int64", lambda: drawn(NOISE, WHOLE_NUMBERS)),
    ],
)
def test_wrong_arguments_are_refused(error, message, make):
    with pytest.raises(error, match=message):
        make()


def test_chain_repr():
    assert repr(Chain([MixUp(0.3)])) == "Chain([MixUp(alpha=0.3, probability=1.0)])"


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


# --- MixUp and CutMix ---


EYE = np.eye(6, dtype=np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float64"])
def test_mixup_pixels_have_the_shares_of_labels(dtype, layout):
    images = pictures(6, layout, dtype)
    mixed, labels = MixUp(0.8)((images, EYE), rng())
    assert (mixed.dtype, labels.dtype, mixed.shape) == (images.dtype, np.float32, images.shape)
    flat = images.reshape(6, -1).astype(np.float64)
    wanted = labels.astype(np.float64) @ flat
    tolerance = {"uint8": 0.5, "float16": 2e-3}.get(dtype, 1e-6)
    assert np.abs(mixed.reshape(6, -1) - wanted).max() <= tolerance
    assert (np.count_nonzero(labels, axis=1) <= 2).all()
    assert np.count_nonzero(labels) > 9


def test_mixup_shares_are_beta_distributed():
    labels = np.eye(2000, dtype=np.float32)
    images = np.zeros((2000, 1), np.float32)
    own = np.diag(MixUp(1.0)((images, labels), rng())[1])
    assert abs(own.mean() - 0.5) < 0.03
    assert abs(own.std() - 12**-0.5) < 0.02
    own = np.diag(MixUp(1.0, probability=0.25)((images, labels), rng())[1])
    assert abs((own < 1).mean() - 0.25) < 0.04


def test_cutmix_refuses_masks():
    with pytest.raises(ValueError, match="classes of pixels would have to be cut"):
        CutMix()((pictures(6), np.zeros((6, 13, 17), int)), rng())
    grey = np.repeat(np.arange(8, dtype=np.uint8), 64).reshape(8, 8, 8)
    cut = CutMix()(grey, rng())
    assert cut.shape == (8, 8, 8)
    assert (cut != grey).any()


@pytest.mark.parametrize("make", [MixUp, CutMix])
def test_labels_of_another_name_are_asked_for(make):
    batch = {"image": pictures(6), "target": EYE}
    with pytest.raises(ValueError, match="say which one it is with label="):
        make()(batch, rng())
    assert not np.array_equal(make(label="target")(batch, rng())["target"], EYE)


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
@pytest.mark.parametrize("size", [1, 7, 64, 1001])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_mixes_as_numpy(size, dtype, monkeypatch):
    """Those of the other byte order and those that aren't aligned are left to NumPy."""
    images = rng().integers(0, 256, (9, size)).astype(dtype)
    if dtype == "float32":
        images[2, 0], images[5, 0] = np.inf, np.nan
    shifted = np.zeros(images.nbytes + 1, np.uint8)[1:].view(dtype).reshape(9, size)
    shifted[...] = images
    kinds = [images, images.astype(images.dtype.newbyteorder()), shifted]
    with np.errstate(invalid="ignore"):
        mixed = [MixUp()(each, rng()) for each in kinds]
        monkeypatch.setattr(mixup, "kernel_for", lambda images: None)
        plain = MixUp()(images, rng())
    for each in mixed:
        assert each.astype(dtype).tobytes() == plain.tobytes()
    assert not np.array_equal(plain, images)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cutmix_box_comes_from_the_partner(dtype, layout):
    images = pictures(6, layout, dtype)
    cut, labels = CutMix()((images, EYE), rng(3))
    before, after = last(images, layout), last(cut, layout)
    for place in range(6):
        taken = (after[place] != before[place]).any(axis=-1)
        rows, columns = np.flatnonzero(taken.any(1)), np.flatnonzero(taken.any(0))
        share = 1 - labels[place, place]
        assert abs(share - len(rows) * len(columns) / (13 * 17)) < 0.02
        if share:
            partner = int(np.argmax(np.where(np.arange(6) == place, 0, labels[place])))
            box = np.ix_(rows, columns)
            assert (after[place][box] == before[partner][box]).all()
            assert (after[place][~taken] == before[place][~taken]).all()
    assert labels.sum(axis=1).tolist() == pytest.approx([1] * 6)


@pytest.mark.parametrize("kind", [MixUp, CutMix])
@pytest.mark.parametrize("numbers", [np.arange(6), np.arange(6)[:, None].astype(np.uint8)])
def test_num_classes_makes_labels_one_hot(kind, numbers):
    given = kind(num_classes=6)((pictures(), numbers), rng())[1]
    assert given.tolist() == kind()((pictures(), EYE), rng())[1].tolist()
    for dtype, wanted in (("f2", "f4"), ("f4", "f4"), ("f8", "f8")):
        assert kind()((pictures(), EYE.astype(dtype)), rng())[1].dtype == wanted
    with pytest.raises(ValueError, match="put OneHot\\(num_classes\\) before"):
        kind()((pictures(), numbers), rng())


@pytest.mark.parametrize("kind", [MixUp, CutMix])
def test_other_members_stay(kind):
    weights = np.ones(6)
    batch = kind()((pictures(), EYE, weights), rng())
    assert (type(batch), len(batch)) == (tuple, 3)
    assert batch[2].tolist() == weights.tolist()
    assert type(kind()([pictures(), EYE], rng())) is list
    named = kind()({"images": pictures(), "labels": EYE, "id": 5}, rng())
    assert (list(named), named["id"]) == (["images", "labels", "id"], 5)
    nested = kind(image=(0, "left"))(({"left": pictures(), "right": pictures()}, EYE), rng())
    assert nested[0]["right"].tolist() == pictures().tolist()
    assert nested[0]["left"].tolist() != pictures().tolist()
    assert kind()(pictures(), rng()).shape == pictures().shape


@pytest.mark.parametrize("kind", [MixUp, CutMix])
@pytest.mark.parametrize("count", [0, 1])
def test_one_image_stays_what_it_is(kind, count):
    images, labels = kind()((pictures(2)[:count], EYE[:count]), rng())
    assert images.tolist() == pictures(2)[:count].tolist()
    assert labels.tolist() == EYE[:count].tolist()


# --- ColorJitter and RandomErasing ---


GREY = np.array([0.299, 0.587, 0.114])


def one(name: str, factor: float) -> ColorJitter:
    return ColorJitter(**{name: (factor, factor)})


@pytest.mark.parametrize(("dtype", "layout"), list(zip(DTYPES, LAYOUTS)))
@pytest.mark.parametrize("factor", [0.0, 1.6])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_jitter_is_what_it_is_defined_to_be(name, factor, dtype, layout):
    images = pictures(4, layout, dtype)
    made = last(one(name, factor)(images, rng()), layout)
    before = last(images, layout).astype(np.float64)
    grey = (before @ GREY)[..., None]
    means = grey.mean(axis=(1, 2, 3), keepdims=True)
    about = {"brightness": 0, "contrast": means, "saturation": grey}[name]
    wanted = np.clip(about + factor * (before - about), 0, 255 if dtype == "uint8" else 1)
    assert made.dtype == images.dtype
    assert np.abs(made - wanted).max() <= (0.65 if dtype == "uint8" else 1e-5)


def test_hue_turns_colours_about_the_greys():
    images = pictures(4, dtype="float32") * 0.2 + 0.4
    turned = ColorJitter(hue=(0.25, 0.25))(images, rng())
    back = ColorJitter(hue=(-0.25, -0.25))(turned, rng())
    assert np.abs(back - images).max() < 1e-5
    assert np.abs(turned @ GREY - images @ GREY).max() < 1e-3
    assert np.abs(turned - images).max() > 0.05
    greys = np.repeat(images[..., :1], 3, axis=3)
    assert np.abs(ColorJitter(hue=0.5)(greys, rng()) - greys).max() < 1e-5
    whole = ColorJitter(hue=(0.5, 0.5))
    assert np.abs(whole(whole(images, rng()), rng()) - images).max() < 1e-5


def test_jitter_factors_are_each_images_own():
    images = np.full((3000, 1, 1, 1), 0.4, np.float32)
    factors = ColorJitter(brightness=0.5)(images, rng()).ravel() / 0.4
    assert 0.5 <= factors.min() < 0.51
    assert 1.49 < factors.max() <= 1.5
    assert abs(factors.mean() - 1) < 0.02
    changed = ColorJitter(brightness=(1.5, 2), probability=0.3)(images, rng()).ravel() > 0.41
    assert abs(changed.mean() - 0.3) < 0.03


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1), (64, 33), (70, 61), (2, 600)])
def test_jitter_of_kernel_and_numpy_is_the_same(layout, size, dtype, monkeypatch):
    jitter = ColorJitter(0.9, 0.9, 0.9, 0.5)
    images = pictures(9, layout, dtype, size)
    by_kernel = jitter(images, rng(7))
    assert by_kernel.tobytes() != images.tobytes()
    by_numpy(monkeypatch)
    assert jitter(images, rng(7)).tobytes() == by_kernel.tobytes()


def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colour, "kernel_for", lambda images: None)


def test_jitter_large_factors_are_exact(monkeypatch):
    """Beyond what float32 holds."""
    jitter = ColorJitter(brightness=(30, 30), contrast=(3, 3), saturation=(5, 5))
    images = pictures(3)
    by_kernel = jitter(images, rng())
    by_numpy(monkeypatch)
    assert jitter(images, rng()).tolist() == by_kernel.tolist()
    assert jitter(pictures(0), rng()).shape == pictures(0).shape


def test_jitter_of_grey_and_of_other_ranges():
    grey = pictures(3)[..., :1]
    assert one("saturation", 0.3)(grey, rng()).tolist() == grey.tolist()
    assert np.abs(one("brightness", 0.5)(grey, rng()) - grey * 0.5).max() <= 0.5
    wide = pictures(3, dtype="float32") * 255
    made = ColorJitter(brightness=(1.2, 1.2), value_range=(0, 255))(wide, rng())
    assert np.abs(made - np.clip(wide * 1.2, 0, 255)).max() < 1e-3


@pytest.mark.parametrize(("layout", "value"), [("NHWC", 0), ("NCHW", (1, 2, 3))])
def test_erasing_paints_a_box_of_the_asked_size(layout, value):
    images = np.full((400, 40, 50, 3) if layout == "NHWC" else (400, 3, 40, 50), 200, np.uint8)
    erasing = RandomErasing(1.0, scale=(0.1, 0.2), ratio=(0.5, 2), value=value)
    made = last(erasing(images, rng()), layout)
    areas, ratios = [], []
    for image in made:
        painted = (image != 200).any(axis=-1)
        rows, columns = np.flatnonzero(painted.any(1)), np.flatnonzero(painted.any(0))
        assert painted.sum() == len(rows) * len(columns)
        assert (image[painted] == value).all()
        areas.append(painted.mean())
        ratios.append(len(rows) / len(columns))
    assert 0.09 < min(areas) < 0.11 < 0.19 < max(areas) < 0.21
    assert 0.4 < min(ratios) < 0.6 < 1.7 < max(ratios) < 2.3


def test_erasing_probability():
    images = np.ones((3000, 8, 8), np.float32)
    changed = (RandomErasing(0.3)(images, rng()) == 0).any(axis=(1, 2))
    assert abs(changed.mean() - 0.3) < 0.03
    assert (RandomErasing(0.0)(images, rng()) == 1).all()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_erasing_noise_is_of_the_images_dtype(dtype):
    images = np.full((4, 64, 64, 3), 7, dtype)
    made = RandomErasing(1.0, scale=(0.5, 0.5), ratio=(1, 1), value="noise")(images, rng())
    noise = made[made != 7].astype(np.float64)
    mean, spread = {"uint8": (127.5, 74), "float32": (0, 1)}[dtype]
    assert abs(noise.mean() - mean) < spread / 10
    assert abs(noise.std() - spread) < spread / 10


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (3, 2)])
def test_erasing_stays_within_small_images(size):
    images = pictures(20, size=size)
    made = RandomErasing(1.0, scale=(0.5, 1.0), ratio=(0.1, 10), value=0)(images, rng())
    assert ((made == images) | (made == 0)).all()
