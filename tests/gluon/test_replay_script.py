"""``adapters replay`` of a script with ``Resume``, also while that trains."""

from __future__ import annotations

import threading

import numpy as np

from adapters import gluon_loader
from adapters.cli import main
from adapters.resuming import Lock

_SCRIPT = """
import sys
import mxnet as mx, numpy as np
from adapters import gluon_loader
from adapters.gluon import Resume

net = mx.gluon.nn.Dense(1, in_units=1)
net.initialize()
trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
x = np.arange(40, dtype="float32").reshape(40, 1)
with gluon_loader((x, x), 5, True, seed=3, num_workers=0) as loader:
    resume = Resume(sys.argv[1], loader, "1 batch")
    for epoch in resume.epochs(1, net, trainer):
        for data, label in loader:
            resume.step()
"""


def test_a_training_that_is_under_way_is_no_obstacle_and_nothing_is_written(tmp_path, capsys):
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(_SCRIPT)
    training = Lock(folder)
    held = threading.Thread(target=training.take, args=(0,))
    held.start()
    held.join(30)
    try:
        before = sorted(folder.iterdir())
        asked = ["replay", "--epoch", "4", "--batch", "2", str(script), "--", str(folder)]
        assert main(asked) == 0
        assert sorted(folder.iterdir()) == before
        assert training.writes
    finally:
        training.release()
    table = capsys.readouterr().out.splitlines()[2:]
    x = np.arange(40, dtype="float32").reshape(40, 1)
    with gluon_loader((x, x), 5, True, seed=3, num_workers=0) as loader:
        expected = loader.replay(4, 2).numbers.tolist()
    assert [int(line.split()[1]) for line in table] == expected
