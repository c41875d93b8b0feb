"""Fine-tune a pretrained network: its layers are frozen, an adapter and a new head travel.

The network learned to tell digits 0 to 4 in one place; clients teach it 5 to 9. Only what they
train is sent: a fifth of the network. BatchNorm keeps the statistics it was trained with.

    python examples/fine_tuning.py
"""

import torch
from torch import nn

from freshband.federated import Dataset, Training, load_dataset, train


class Network(nn.Module):
    """Convolutions with BatchNorm, an adapter beside them, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4),
        )  # fmt: skip
        self.adapter = nn.Sequential(nn.Linear(64, 2), nn.Linear(2, 64))
        nn.init.zeros_(self.adapter[1].weight)  # at first it changes nothing
        nn.init.zeros_(self.adapter[1].bias)
        self.head = nn.Linear(64, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.body(images).flatten(1)
        return self.head(features + self.adapter(features))


def some_digits(low: int) -> Dataset:
    """Return the digits from ``low`` to ``low + 4``, as classes 0 to 4."""
    digits = load_dataset("digits")
    parts = []
    for part in ("train", "test"):
        images, labels = getattr(digits, f"{part}_images"), getattr(digits, f"{part}_labels")
        chosen = (labels >= low) & (labels < low + 5)
        parts.append((images[chosen], labels[chosen] - low))
    return Dataset.of_samples(*parts)


def pretrain(network: nn.Module, data: Dataset, steps: int = 100) -> None:
    """Train all of a network in one place."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    rng = torch.Generator().manual_seed(0)
    for _ in range(steps):
        samples = torch.randint(data.n_train, (64,), generator=rng)
        (images,) = data.inputs("train", samples)
        loss = nn.functional.cross_entropy(network(images), data.train_labels[samples])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def main(rounds: int = 25) -> float:
    """Fine-tune, and return the accuracy on digits that the network had never seen."""
    torch.manual_seed(0)
    network = Network()
    pretrain(network, some_digits(0))
    network.body.requires_grad_(False)  # frozen: it stays as it is, and does not travel
    settings = Training(
        clients=5,
        rounds=rounds,
        client_lr=0.05,
        optimiser="sgd",
        optimiser_options={"momentum": 0.9},
        statistics="frozen",
    )
    trained = train(settings, dataset=some_digits(5), model=network)
    sent = int(trained.result.bytes_up[0]) // (4 * int((trained.result.assignment[0] >= 0).sum()))
    total = sum(weights.numel() for weights in network.parameters())
    accuracy = float(trained.result.accuracy[-1])
    print(f"{sent} of {total} numbers travel; {accuracy:.0%} of new digits are right")
    return accuracy


if __name__ == "__main__":
    main()
