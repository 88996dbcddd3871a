"""Runs ``fit``, ``evaluate`` and ``predict``; prints what they delivered, and by which adapter."""

from __future__ import annotations

import json

from keras.src.trainers import data_adapters

from adapters import SafeSequence
from tests.keras.recording import TWO_THREADS, Recorder, echo, sequence_of
from tests.keras.samples import numbered

if __name__ == "__main__":
    recorder, training = Recorder(), sequence_of(10, shuffle=True, **TWO_THREADS)
    with sequence_of(10, **TWO_THREADS) as validation:
        recorder.fit(training, epochs=3, validation_data=validation, verbose=0)
    with SafeSequence((numbered(40)[0],), 4, **TWO_THREADS) as features:
        predicted = echo().predict(features, verbose=0)
    found = {
        "adapter": type(data_adapters.get_data_adapter(training)).__name__,
        "trained": recorder.trained,
        "tested": recorder.tested,
        "predicted": predicted.ravel().astype(int).tolist(),
        "epoch": training.epoch,
    }
    print(json.dumps(found))
