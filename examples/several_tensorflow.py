"""TensorFlow on several processes, by `MultiWorkerMirroredStrategy` in a loop of its own.

    cluster='{"worker": ["127.0.0.1:9000", "127.0.0.1:9001"]}'
    for index in 0 1; do
        export TF_CONFIG='{"cluster": '$cluster', "task": {"type": "worker", "index": '$index'}}'
        python examples/several_tensorflow.py &
    done

`fit` under this strategy fails in Keras 3 (keras issue 20585), whatever it reads. This runs alone,
too.
"""

from __future__ import annotations

import os

import tensorflow as tf
from shapes import arrays_of

from adapters import SafeSequence

# First, as it starts the server of this process.
several = "TF_CONFIG" in os.environ
strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
x, y = arrays_of(2000)
# The batch size is that of one process; TF_CONFIG says which it is.
train = SafeSequence(
    (x.reshape(-1, 28 * 28).astype("float32") / 255, y.astype("int32")),
    batch_size=32,
    shuffle=True,
    seed=1,
    shard="auto",
)
with strategy.scope():
    mean = tf.VariableAggregation.MEAN  # Of what the processes assign, which is the same.
    weight = tf.Variable(tf.zeros((28 * 28, 2)), aggregation=mean)
    bias = tf.Variable(tf.zeros(2), aggregation=mean)


@tf.function(reduce_retracing=True)
def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """One step on each process, with the mean of the gradients."""

    def local(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = images @ weight + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [weight, bias])
        reduced = tf.distribute.get_replica_context().all_reduce("MEAN", gradients)
        for variable, gradient in zip([weight, bias], reduced):
            variable.assign_sub(0.01 * gradient)
        return loss

    return strategy.run(local, args=(images, labels))


for _ in range(3):
    for images, labels in train:
        loss = step(tf.constant(images), tf.constant(labels))
print(f"loss {float(loss):.3f}, position {train.state_dict()}")
