"""Caltech-256, or any folder of photos, into a Gluon ResNet.

Without a folder, images are made. `adapters pack FOLDER caltech --format recordio --resize 256`
packs the photos once; `open_records("caltech*.rec", decode=...)` then takes the place of
`open_images`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from adapters import ImageDecoder, gluon_loader, open_images, split  # Before MXNet.

# isort: split
import mxnet as mx
from mxnet import autograd, gluon
from shapes import folder_of

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("photos", type=Path, nargs="?", help="a folder with a folder per class")
parser.add_argument("--size", type=int, default=224, help="of a side, in pixels")
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()
context = mx.gpu() if mx.context.num_gpus() else mx.cpu()
pixels = {"dtype": "float32", "layout": "NCHW", "mean": (124, 117, 104), "std": (58, 57, 57)}

with tempfile.TemporaryDirectory() as made:
    folder = options.photos or folder_of(Path(made, "photos"), 160)
    crop = ImageDecoder(options.size, crop="random_resized", flip=True, **pixels)
    centre = ImageDecoder(options.size, crop="center", **pixels)
    photos, whole = open_images(folder, decode=crop), open_images(folder, decode=centre)
    train, _ = split(photos, [0.8, 0.2], stratify=photos.labels)
    _, test = split(whole, [0.8, 0.2], stratify=whole.labels)
    train = gluon_loader(train, 32, shuffle=True, seed=1, last_batch="discard", ctx=context)
    test = gluon_loader(test, 32, ctx=context)

    net = gluon.model_zoo.vision.resnet18_v2(classes=len(photos.classes))
    net.initialize(mx.init.Xavier(), ctx=context)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.001})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    for epoch in range(options.epochs):
        started, count = time.perf_counter(), 0
        for image, label in train:
            with autograd.record():
                loss = loss_of(net(image), label)
            loss.backward()
            trainer.step(len(image))
            count += len(image)
        mx.nd.waitall()
        speed = count / (time.perf_counter() - started)
        accuracy = mx.metric.Accuracy()
        for image, label in test:
            accuracy.update(label, net(image))
        print(f"epoch {epoch}: {speed:.0f} images/s, accuracy {accuracy.get()[1]:.3f}")
    train.explain()
