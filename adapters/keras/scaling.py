"""Whether a model brings the values of images into a small range before it computes with them."""

from __future__ import annotations

from typing import Any

# What leaves values as they are, and what multiplies them by weights; of anything else, nobody can
# tell. Layers are told by their classes' names, so that none is built or called.
_LEAVES_THEM: tuple[str, ...] = (
    "InputLayer",
    "Flatten",
    "Reshape",
    "Permute",
    "ZeroPadding",
    "Cropping",
    "Resizing",
)
_LEAVES_THEM += ("Random", "CenterCrop", "MaxPooling", "AveragePooling")
_WEIGHS_THEM = ("Conv", "SeparableConv", "DepthwiseConv", "Dense")
_KNOWN = ("Sequential", "Functional")


def scales(model: Any) -> bool:
    """Whether it does, or may do; False where its first weights get the values as they are."""
    if type(model).__name__ not in _KNOWN:
        return True
    for layer in getattr(model, "operations", model.layers):  # Divisions are no layers.
        name = type(layer).__name__
        if name in _KNOWN:
            return scales(layer)
        if name.startswith(_WEIGHS_THEM):
            return False
        if not name.startswith(_LEAVES_THEM):
            return True
    return True
