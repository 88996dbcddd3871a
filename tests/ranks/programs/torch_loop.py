"""PyTorch: ``DistributedDataParallel`` in a loop of one's own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from adapters import SafeSequence
from tests.ranks.programs.training import EPOCHS, ORDER, RATE, Job, data

job = Job()
train = SafeSequence(data(), job.batch_size, shard="auto", workers=0, **ORDER)
dist.init_process_group("gloo")
weights, state = job.restored()
model = torch.nn.Linear(2, 1, bias=False)
model.weight.data.copy_(torch.tensor(weights).T)
parallel = DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), RATE)
if state is not None:
    train.load_state_dict(state)
while train.epoch < EPOCHS:
    for x, y in train:
        job.begin_step()
        optimizer.zero_grad()
        loss = ((parallel(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        job.end_step(model.weight.detach().numpy(), train.state_dict(), x)
dist.destroy_process_group()
