"""``MixUp`` and ``CutMix``: pixels and labels have the same shares."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.images import kernel
from adapters.transforms import CutMix, MixUp, mixup
from adapters.transforms.mixup import circle, mix
from tests.transforms.images import DTYPES, LAYOUTS, last, pictures, rng

EYE = np.eye(6, dtype=np.float32)


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_partners_are_neighbours_on_one_circle(count):
    _, partners = circle(count, rng())
    at, seen = 0, []
    for _ in range(count):
        seen.append(at)
        at = int(partners[at])
    assert (at, sorted(seen)) == (0, list(range(count)))


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


SHARES = np.array([0, 1, 3, 77, 128, 200, 255, 256, 256])


@pytest.mark.parametrize("by_kernel", [True, False])
def test_bytes_are_mixed_exactly(by_kernel, monkeypatch):
    if not by_kernel:
        monkeypatch.setattr(mixup, "kernel_for", lambda images: None)
    images, order = pictures(9), rng().permutation(9)
    expected = images.astype(np.int64)
    for one, other in zip(order, np.roll(order, -1)):
        both = images[one].astype(int) * SHARES[one] + images[other].astype(int) * (
            256 - SHARES[one]
        )
        expected[one] = (both + 128) >> 8
    mix(images, order, SHARES)
    assert images.tolist() == expected.tolist()


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built")
@pytest.mark.parametrize("size", [1, 7, 64, 1001])
def test_floats_are_mixed_by_the_kernel_as_by_numpy(size, monkeypatch):
    """Those of the other byte order and those that aren't aligned are left to NumPy."""
    images = rng().normal(0, 300, (9, size)).astype(np.float32)
    images[2, 0], images[5, 0] = np.inf, np.nan
    order = rng().permutation(9)
    shifted = np.zeros(4 * images.size + 1, np.uint8)[1:].view(np.float32).reshape(9, size)
    shifted[...] = images
    kinds = [images.copy(), images.astype(images.dtype.newbyteorder()), shifted]
    with np.errstate(invalid="ignore"):
        for each in kinds:
            mix(each, order, SHARES)
        monkeypatch.setattr(mixup, "kernel_for", lambda images: None)
        plain = images.copy()
        mix(plain, order, SHARES)
    for each in kinds:
        assert each.astype(np.float32).tobytes() == plain.tobytes()
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


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ValueError, "alpha must be >= 1e-06, got 0", lambda: MixUp(0)),
        (TypeError, "alpha must be a number, got 'x'", lambda: CutMix("x")),
        (ValueError, r"probability must be in \[0, 1\], got 2", lambda: MixUp(probability=2)),
        (ValueError, "num_classes must be >= 1, got 0", lambda: CutMix(num_classes=0)),
        (ValueError, 'layout must be "auto", "NHWC" or "NCHW"', lambda: CutMix(layout="HWC")),
        (TypeError, "image must be a position, a key", lambda: MixUp(image=1.5)),
        (
            TypeError,
            "must be uint8 or float to be mixed, got int32",
            lambda: mixed(FLAT.astype("i4")),
        ),
        (TypeError, "rng must be a numpy.random.Generator, got None", lambda: MixUp()(FLAT, None)),
        (ValueError, "called image or images or pixel_values, got", lambda: mixed({"x": 1})),
        (ValueError, "have an axis of channels more, got the shape", lambda: CutMix()(FLAT, rng())),
        (
            ValueError,
            r"labels must be in range\(3\)",
            lambda: mixed((pictures(), np.arange(6)), num_classes=3),
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused(error, message, make):
    with pytest.raises(error, match=message):
        make()


FLAT = np.ones((2, 2))


def mixed(batch, **options):
    return MixUp(**options)(batch, rng())
