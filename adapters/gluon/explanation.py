"""What ``loader.explain()`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from adapters.engine import Engine
from adapters.gluon.plan import GluonPlan
from adapters.gluon.recipe import Opaque


def explanation(plan: GluonPlan, engine: Engine) -> Iterator[str]:
    """A line for each part of the way, the workers last."""
    recipe = plan.recipe
    name = ", ".join(recipe.names)
    if recipe.records is not None and recipe.records.leaves is not None:
        yield f"{name}: read and decoded a batch at a time"
    elif recipe.columns is not None:
        yield f"{name}: arrays, gathered a batch at a time"
    else:
        yield f"{name}: asked for a sample at a time"
    for step in recipe.steps:
        if isinstance(step, Opaque):
            yield (
                f"{step.name}: a sample at a time, as only its author knows what it does; "
                "transforms of mxnet.gluon.data.vision run a batch at a time"
            )
        elif step.stage.draws:
            yield f"{step.stage.name}: a batch at a time, from each sample's own random numbers"
        else:
            yield f"{step.stage.name}: a batch at a time"
    if plan.batchify is not None:
        named = Opaque(plan.batchify).name
        yield f"batchify_fn {named}: gets a list of samples, one by one"
    if plan.used:
        used = ", ".join(sorted(plan.used))
        yield f"drawn from the global generators of {used}: seeded, except on threads"
    yield f"workers: {engine.description}"
