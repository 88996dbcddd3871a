"""JAX: ``fit`` under ``keras.distribution.DataParallel``."""

import jax
import keras
import numpy as np

from adapters import SafeSequence
from tests.ranks.programs.training import EPOCHS, ORDER, Job, data
from tests.ranks.programs.with_keras import Steps, model_of

job = Job()
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    job.address,
    job.world,
    job.rank,
    coordinator_bind_address=job.address,
    initialization_timeout=60,
)
parallel = keras.distribution.DataParallel(devices=jax.devices(), auto_shard_dataset=False)
keras.distribution.set_distribution(parallel)
train = SafeSequence(data(), job.batch_size, shard="auto", workers=0, **ORDER)
weights, state = job.restored()
model = model_of(np.array(weights, "float32"))
if state is not None:
    train.load_state_dict(state)
model.fit(train, initial_epoch=train.epoch, epochs=EPOCHS, verbose=0, callbacks=[Steps(job, train)])
jax.distributed.shutdown()
