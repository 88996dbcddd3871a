"""Sources of images that are put together number their classes alike, or are refused."""

from __future__ import annotations

import pytest

from adapters import ImageDecoder, concatenate, mix, open_images
from tests.packing.materials import folder


def photos(root, classes, known=None):
    """Files of these classes; their names, or as many as are known beforehand."""
    files = open_images(folder(root, classes=classes)).files
    return open_images(files, decode=ImageDecoder(8), classes=known)


@pytest.mark.parametrize("together", [concatenate, mix])
def test_labels_that_stand_for_several_classes_are_refused(together, tmp_path):
    one = photos(tmp_path / "a", ["cat", "dog"])
    for other in (photos(tmp_path / "b", ["bird", "cat"]), photos(tmp_path / "c", ["cat", "eel"])):
        with pytest.raises(ValueError, match=r"alike, got \['cat', 'dog'\] and, in sources\[1\], "):
            together([one, other])
        with pytest.raises(ValueError, match="number their classes alike"):
            together([one.select([0, 1]), concatenate([other, other]).select([0, 1])])


@pytest.mark.parametrize("together", [concatenate, mix])
def test_what_the_message_says_joins_them(together, tmp_path):
    known = ["bird", "cat", "dog"]
    one = photos(tmp_path / "a", ["cat", "dog"], known)
    whole = together([one, photos(tmp_path / "b", ["bird", "cat"], known)])
    assert whole.classes == known
    assert [label for _, label in whole] == [1, 1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1]


def test_classes_that_some_sources_lack(tmp_path):
    one, more = photos(tmp_path / "a", ["cat"]), photos(tmp_path / "b", ["cat", "dog"])
    assert concatenate([one, more]).classes == ["cat", "dog"]
    assert concatenate([one, more]).select([0]).classes == ["cat", "dog"]
    numbered = open_images([(file, 0) for file in one.files], decode=ImageDecoder(8))
    assert concatenate([more, numbered]).classes is None
