"""A training loop of your own around the layers of `resofire.nn`: plain PyTorch, no config, no run folder.

python -m examples.own_loop
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from resofire import data, nn


class Network(torch.nn.Module):
    """Pixel by pixel: a Linear, two layers of PRF neurons with a spike Linear between them, the mean over time."""

    def __init__(self, features: int = 64, classes: int = 10) -> None:
        super().__init__()
        # Memories from two steps to the whole sequence, potentials of equal size for all of them.
        settings = {"delta": (0.01, 1.0), "gain": "unit"}
        self.input = torch.nn.Linear(1, features)
        self.first = nn.PRF(features, **settings)
        self.middle = nn.SpikeLinear(features, features)
        self.norm = nn.BatchNorm(features)
        self.second = nn.PRF(features, **settings)
        self.head = torch.nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.first(self.input(x))
        spikes = self.second(self.norm(self.middle(spikes)))
        return self.head(spikes.mean(1))


def accuracy(model: torch.nn.Module, split: data.Split) -> float:
    model.eval()
    with torch.no_grad():
        correct = sum(int((model(batch.x).argmax(-1) == batch.labels).sum()) for batch in split.batches(256))
    return correct / len(split)


def main(epochs: int = 8) -> float:
    torch.manual_seed(0)
    task, model = data.load("digits"), Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        model.train()
        with nn.fire_rates(model) as rates:
            for batch in task["train"].batches(32, seed=0, epoch=epoch):
                loss = F.cross_entropy(model(batch.x), batch.labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        shown = ", ".join(f"{name} {100 * rate:.1f} %" for name, rate in rates.as_dict().items())
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, fire rates: {shown}")
    result = accuracy(model, task["test"])
    print(f"  test  {100 * result:.2f} %")
    return result


if __name__ == "__main__":
    main()
