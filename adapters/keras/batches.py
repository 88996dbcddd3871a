"""What becomes of a batch on its way to a backend, and what TensorFlow's signature makes of it.

Arrays go as they are. Leaves that are none, such as SciPy's sparse matrices, Keras converts as it
does for every data set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.keras.internals import get_jax_iterator, get_tensor_spec, tensorflow
from adapters.keras.progress import Account
from adapters.structure import flatten, map_leaves, unflatten


def for_jax(batch: Any) -> Any:
    """The batch, with what JAX takes in the places of leaves that are no NumPy arrays."""
    for leaf in flatten(batch)[0]:
        if not isinstance(leaf, np.ndarray) and get_jax_iterator is not None:
            return next(get_jax_iterator((batch,)))
    return batch


def for_tensorflow(batch: Any) -> Any:
    """The batch, with TensorFlow's own texts, as no array has them, and no None at its end."""
    if type(batch) is tuple:
        while batch and batch[-1] is None:
            batch = batch[:-1]
    return map_leaves(_as_text, batch)


def _as_text(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray) or leaf.dtype.kind not in "OSU":
        return leaf
    return tensorflow().constant(leaf)


class Signature:
    """What TensorFlow takes all batches to be like.

    Args:
        batches: Some of them, as ``for_tensorflow`` gives them.
        remedy: What makes all batches like them, for people.

    Raises:
        ValueError: One of them holds None.
    """

    def __init__(self, batches: list[Any], remedy: str) -> None:
        self._remedy = remedy
        for batch in batches:
            if (place := _place_of_none(batch)) is not None:
                raise ValueError(
                    f"batches must not hold None on TensorFlow, got None as batch{place}: leave "
                    "it out, or give an array in its place"
                )
        self.specs = get_tensor_spec(batches)
        self._flat, self._skeleton = flatten(self.specs)
        self._dtypes = [np.dtype(spec.dtype.as_numpy_dtype) for spec in self._flat]

    def checked(self, batch: Any, account: Account) -> Any:
        """The batch, with its arrays in the dtypes of the first ones.

        Args:
            batch: As ``for_tensorflow`` gives it.
            account: Knows its number.

        Raises:
            ValueError: TensorFlow would say less of it, or make other numbers of its own.
        """
        leaves, structure = flatten(batch)
        if structure != self._skeleton:
            found = f"is made like {structure}, the first ones {self._skeleton}"
            raise _unlike(account, found, "give all of them the same structure")
        other = False
        for leaf, spec, dtype in zip(leaves, self._flat, self._dtypes):
            shape = getattr(leaf, "shape", spec.shape)  # TensorFlow's own have a TensorShape.
            if not spec.shape.is_compatible_with(shape):
                found = f"has an array of shape {tuple(shape)}, the first ones had {spec.shape}"
                raise _unlike(account, found, self._remedy)
            if not isinstance(leaf, np.ndarray) or leaf.dtype == dtype:
                continue
            if dtype.hasobject or not np.can_cast(leaf.dtype, dtype, "same_kind"):
                found = f"has an array of {leaf.dtype}, the first ones had {spec.dtype.name}"
                raise _unlike(account, found, "give all of them the same dtype")
            other = True
        if not other:
            return batch
        cast = [
            leaf.astype(dtype, copy=False) if isinstance(leaf, np.ndarray) else leaf
            for leaf, dtype in zip(leaves, self._dtypes)
        ]
        return unflatten(structure, cast)


def remedy_of(plan: Any) -> str:
    """What makes all batches of a ``SourcePlan`` alike, for people."""
    if plan.batch_transform is not None:
        made = "have batch_transform give all of them equal shapes there"
    elif hasattr(plan.collate, "remedy"):
        return f"{plan.collate.remedy} between batches"
    elif plan.collate is not None:
        made = "have collate give all of them equal shapes there, or use collate=adapters.pad()"
    elif plan.source.whole_batches:
        made = "have the source give all of them equal shapes there"
    else:
        made = "pad, crop or resize in transform, or use collate=adapters.pad()"
    return f"{made}; or let one of the first two batches differ there as later ones do"


def _unlike(account: Account, found: str, remedy: str) -> ValueError:
    return ValueError(
        "batches must have one structure, equal shapes and equal dtypes on TensorFlow: number "
        f"{account.step + account.taken} of epoch {account.epoch} {found}; {remedy}"
    )


def _place_of_none(tree: Any) -> str | None:
    """Where None is in a structure, as one would write it behind a name."""
    if tree is None:
        return ""
    inside: Any = ()
    if isinstance(tree, dict):
        inside = tree.items()
    elif isinstance(tree, (tuple, list)):
        inside = enumerate(tree)
    for name, member in inside:
        place = _place_of_none(member)
        if place is not None:
            return f"[{name!r}]{place}"
    return None
