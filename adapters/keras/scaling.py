"""Detection of models that scale the values of images before their first weights."""

from __future__ import annotations

from typing import Any

# Layers that keep the range of values, and layers that multiply them by weights. Others are taken
# to scale. Layers are recognised by class name, so that none is built or called.
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
    """True if a model scales its input, or may do so; False if its first weights get raw values."""
    if type(model).__name__ not in _KNOWN:
        return True
    for layer in getattr(model, "operations", model.layers):  # Layers lack divisions, for example.
        name = type(layer).__name__
        if name in _KNOWN:
            return scales(layer)
        if name.startswith(_WEIGHS_THEM):
            return False
        if not name.startswith(_LEAVES_THEM):
            return True
    return True
