"""Train your own model on your own data, over your own channels.

Nothing is registered: the model, the data, its partition and the channel model are plain objects.

    python examples/own_model.py
"""

import numpy as np
import torch
from torch import nn

from freshband.channels import Piecewise
from freshband.federated import Dataset, Federation, Partition, Training

# 1. Data: any tensors (images, channels, height, width) with labels. Here: which half is brighter?
rng = np.random.default_rng(0)
images = rng.normal(size=(1200, 1, 4, 4)).astype(np.float32)
labels = (images[:, 0, :2].sum(axis=(1, 2)) > images[:, 0, 2:].sum(axis=(1, 2))).astype(np.int64)
data = Dataset.of(images[:1000], labels[:1000], images[1000:], labels[1000:], name="halves")

# 2. The partition: four clients, the first two with one class each; each validates on 20 images.
ones, zeros = np.flatnonzero(labels[:1000] == 1), np.flatnonzero(labels[:1000] == 0)
held = [ones[:200], zeros[:200], *np.split(rng.permutation(np.r_[ones[200:], zeros[200:]]), 2)]
clients = Partition(train=[some[20:] for some in held], val=[some[:20] for some in held])

# 3. The channels: the two good ones turn bad after half of the rounds, and two others good.
air = Piecewise(means=[[0.9, 0.8, 0.3, 0.2, 0.2, 0.1], [0.2, 0.1, 0.3, 0.2, 0.9, 0.8]])

# 4. The model: any module.
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2))

settings = Training(clients=4, rounds=40, policy="bayes", matching="priority")
with Federation(settings, dataset=data, model=model, channels=air, partition=clients) as federation:
    for record in federation:
        if record.round % 10 == 0:
            worst = record.client_accuracy.min()
            print(f"round {record.round}: accuracy {record.accuracy:.2f}, worst client {worst:.2f}")
trained = federation.module()
print(f"{sum(weights.numel() for weights in trained.parameters())} parameters trained")
