"""MXNet on several processes: a scheduler, a server, and workers, of which each has its shard.

    export DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=9000 DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=2
    DMLC_ROLE=scheduler python examples/several_mxnet.py &
    DMLC_ROLE=server python examples/several_mxnet.py &
    DMLC_ROLE=worker python examples/several_mxnet.py --folder run --stop-after 20 &
    DMLC_ROLE=worker python examples/several_mxnet.py --folder run --stop-after 20

Scheduler and server stay in the import of MXNet. The run in the folder can be resumed on another
number of workers. It runs alone, too.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from adapters import gluon_loader  # Before MXNet.

# isort: split
import mxnet as mx
from mxnet import autograd, gluon
from shapes import arrays_of

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, help="where the run is saved, for all processes")
parser.add_argument("--stop-after", type=int, help="batches")
options = parser.parse_args()

kv = mx.kv.create("dist_sync" if "DMLC_ROLE" in os.environ else "local")
x, y = arrays_of(2000)
# The batch size is that of one worker.
train = gluon_loader((x.astype("float32") / 255, y), 32, shuffle=True, seed=1, shard=kv)

net = gluon.nn.Dense(2, in_units=28 * 28)
net.initialize(mx.init.Xavier())
if options.folder and (options.folder / "position.json").exists():
    net.load_parameters(str(options.folder / "run.params"))
    train.load_state_dict(json.loads((options.folder / "position.json").read_text()))
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=kv)
loss_of, batches = gluon.loss.SoftmaxCrossEntropyLoss(), 0

while train.epoch < 3 and batches != options.stop_after:
    for images, labels in train:
        with autograd.record():
            loss = loss_of(net(images), labels)
        loss.backward()
        trainer.step(len(images) * kv.num_workers)
        batches += 1
        if batches == options.stop_after:
            break

position = train.state_dict()  # The same on every worker.
if kv.rank == 0:
    if options.folder:
        options.folder.mkdir(exist_ok=True)
        net.save_parameters(str(options.folder / "run.params"))
        (options.folder / "position.json").write_text(json.dumps(position))
    print(f"{batches} batches, loss {loss.mean().asscalar():.3f}, position {position}")
