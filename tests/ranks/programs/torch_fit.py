"""PyTorch: ``fit``, with a hook that averages each gradient over the processes."""

import keras
import numpy as np
import torch.distributed as dist

from adapters import SafeSequence
from tests.ranks.programs.training import EPOCHS, ORDER, Job, data
from tests.ranks.programs.with_keras import Steps, model_of

job = Job()
dist.init_process_group("gloo")
train = SafeSequence(data(), job.batch_size, shard="auto", workers=0, **ORDER)
weights, state = job.restored()
model = model_of(np.array(weights, "float32"))


def averaged(gradient):
    """The mean over all processes."""
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size()


for variable in model.trainable_variables:
    variable.value.register_hook(averaged)
if state is not None:
    train.load_state_dict(state)
assert keras.backend.backend() == "torch"
model.fit(train, initial_epoch=train.epoch, epochs=EPOCHS, verbose=0, callbacks=[Steps(job, train)])
dist.destroy_process_group()
