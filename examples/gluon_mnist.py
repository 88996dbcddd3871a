"""MXNet's MNIST tutorial with `gluon_loader` in DataLoader's place: `gluon_mnist.py --small`.

Without `--small`, MNIST comes from MXNet's cache, or is downloaded.
"""

from __future__ import annotations

import argparse
import time

from adapters import gluon_loader  # Before MXNet.

# isort: split
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.data.vision import MNIST, transforms
from shapes import arrays_of

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--small", action="store_true", help="made images in place of MNIST")
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()

if options.small:
    images, labels = arrays_of(2000)
    data = gluon.data.ArrayDataset(mx.nd.array(images, dtype="uint8"), labels.astype("int32"))
else:
    data = MNIST(train=True)
to_tensor = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.13, 0.31)])
# Was: gluon.data.DataLoader(..., num_workers=4)
loader = gluon_loader(data.transform_first(to_tensor), batch_size=64, shuffle=True, seed=1)

net = nn.HybridSequential()
net.add(
    nn.Conv2D(20, 5, activation="relu"),
    nn.MaxPool2D(2, 2),
    nn.Conv2D(50, 5, activation="relu"),
    nn.MaxPool2D(2, 2),
    nn.Dense(128, activation="relu"),
    nn.Dense(10),
)
net.initialize(mx.init.Xavier())
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
accuracy = mx.metric.Accuracy()

for epoch in range(options.epochs):
    started = time.perf_counter()
    accuracy.reset()
    for image, label in loader:
        with autograd.record():
            output = net(image)
            loss = loss_of(output, label)
        loss.backward()
        trainer.step(len(image))
        accuracy.update(label, output)
    seconds = time.perf_counter() - started
    print(f"epoch {epoch}: {seconds:.1f} s, accuracy {accuracy.get()[1]:.3f}")
loader.explain()
