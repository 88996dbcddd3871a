"""TensorFlow: ``MultiWorkerMirroredStrategy`` in a loop of one's own."""

import os

import tensorflow as tf

from adapters import SafeSequence
from tests.ranks.programs.training import EPOCHS, ORDER, RATE, Job, data

job = Job()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
train = SafeSequence(data(), job.batch_size, shard="auto", workers=0, **ORDER)
weights, state = job.restored()
with strategy.scope():
    weight = tf.Variable(weights, aggregation=tf.VariableAggregation.MEAN)
if state is not None:
    train.load_state_dict(state)


@tf.function(reduce_retracing=True)
def step(x, y):
    """One step on each process, with the mean of the gradients."""

    def local(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        (gradient,) = tape.gradient(loss, [weight])
        context = tf.distribute.get_replica_context()
        weight.assign_sub(RATE * context.all_reduce(tf.distribute.ReduceOp.MEAN, gradient))

    strategy.run(local, args=(x, y))


while train.epoch < EPOCHS:
    for x, y in train:
        job.begin_step()
        step(tf.constant(x), tf.constant(y))
        job.end_step(weight.read_value(), train.state_dict(), x)
job.lines.close()
os._exit(0)  # TensorFlow's server has no end.
