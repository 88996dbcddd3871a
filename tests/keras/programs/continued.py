"""Goes on from a state, to the end of its next epoch; prints the sample numbers of all batches."""

from __future__ import annotations

import json
import sys
import warnings

from tests.keras.recording import TWO_THREADS, built_recorder, sequence_of

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    recorder = built_recorder()
    with sequence_of(10, shuffle=asked["shuffle"], **TWO_THREADS) as sequence:
        sequence.load_state_dict(asked["state"])
        warnings.simplefilter("ignore")
        recorder.fit(sequence, epochs=2, verbose=0)
    print(json.dumps(recorder.trained))
