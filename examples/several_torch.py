"""PyTorch on several processes, in a loop of its own; a run can be resumed on any number of them.

    torchrun --nproc-per-node 2 examples/several_torch.py --folder run --stop-after 20
    torchrun --nproc-per-node 3 examples/several_torch.py --folder run

On several machines, `torchrun --nnodes ... --rdzv-endpoint ...` on each. It runs alone, too.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from shapes import arrays_of
from torch.nn.parallel import DistributedDataParallel

from adapters import SafeSequence

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, help="where the run is saved")
parser.add_argument("--stop-after", type=int, help="batches")
options = parser.parse_args()

several = "RANK" in os.environ
if several:
    dist.init_process_group("gloo")  # "nccl" on GPUs.
x, y = arrays_of(2000)
# The batch size is that of one process.
train = SafeSequence((x.astype("float32") / 255, y), 32, shuffle=True, seed=1, shard="auto")

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28, 2))
saved = options.folder / "run.pt" if options.folder else None
if saved is not None and saved.exists():
    run = torch.load(saved)
    model.load_state_dict(run["model"])
    train.load_state_dict(run["position"])  # Saved by any number of processes.
parallel = DistributedDataParallel(model) if several else model
optimizer = torch.optim.SGD(parallel.parameters(), 0.01)
loss_of, batches = torch.nn.CrossEntropyLoss(), 0

while train.epoch < 3 and batches != options.stop_after:
    for images, labels in train:
        optimizer.zero_grad()
        loss = loss_of(parallel(torch.from_numpy(images)), torch.from_numpy(labels).long())
        loss.backward()
        optimizer.step()
        batches += 1
        if batches == options.stop_after:
            break

position = train.state_dict()  # The same on every process.
if not several or dist.get_rank() == 0:
    if saved is not None:
        options.folder.mkdir(exist_ok=True)
        torch.save({"model": model.state_dict(), "position": position}, saved)
    print(f"{batches} batches, loss {loss.item():.3f}, position {position}")
if several:
    dist.destroy_process_group()
