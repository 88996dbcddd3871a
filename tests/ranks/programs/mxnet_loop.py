"""MXNet: ``dist_sync``, where a server updates the weights; also the server and the scheduler."""

import tests.ranks.programs.lighter  # noqa: F401

# isort: split
from adapters import gluon_loader  # Imports MXNet, where servers and schedulers stay.

# isort: split
import mxnet as mx
from mxnet import autograd, gluon

from tests.ranks.programs.training import EPOCHS, ORDER, RATE, Job, data

job = Job()
kv = mx.kv.create("dist_sync")
train = gluon_loader(data(), job.batch_size, shard=kv, num_workers=0, **ORDER)
weights, state = job.restored()
net = gluon.nn.Dense(1, use_bias=False, in_units=2)
net.initialize()
net.weight.set_data(mx.nd.array(weights).T)
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE}, kvstore=kv)
if state is not None:
    train.load_state_dict(state)
while train.epoch < EPOCHS:
    for x, y in train:
        job.begin_step()
        with autograd.record():
            loss = (net(x) - y) ** 2
        loss.backward()
        trainer.step(len(x) * kv.num_workers)
        job.end_step(net.weight.data().asnumpy(), train.state_dict(), x.asnumpy())
