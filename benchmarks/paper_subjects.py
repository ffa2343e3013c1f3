"""Write subjects for `opacc study --as characterization`: images of Fashion-MNIST and the specs of two models.

    python benchmarks/paper_subjects.py IMAGES FOLDER       # IMAGES: fashion.npz and fashion_lenet5.safetensors
    cd FOLDER && PYTHONPATH=BENCHMARKS opacc study --as characterization fashion.npz --model lenet5.yaml \\
        --model perceptron.yaml --reference train.npz

The first model is the LeNet-5 of IMAGES; the second, a perceptron of 84 hidden neurons, is trained on the first 20,000
training images in a few seconds.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

TEST, TRAIN, EPOCHS, BATCH = 4000, 20_000, 4, 64


class LeNet5(nn.Module):
    """(B, 1, 28, 28) -> (B, 10); the last hidden layer has 84 neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.out = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.c1, self.c2):
            x = torch.max_pool2d(layer(x).relu(), 2)
        return self.out(self.f2(self.f1(x.flatten(1)).relu()).relu())


def lenet5() -> nn.Module:
    return LeNet5()


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 84), nn.ReLU(), nn.Linear(84, 10))


def train(images: np.ndarray, label: np.ndarray) -> nn.Module:
    net, inputs, targets = perceptron(), torch.tensor(images, dtype=torch.float32)[:, None] / 255, torch.tensor(label)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, metavar="IMAGES")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with np.load(given.images / "fashion.npz") as data:
        trained = data["x_train"][:TRAIN], data["y_train"][:TRAIN].astype(np.int64)
        np.savez(given.folder / "fashion.npz", x=data["x_test"][:TEST], label=data["y_test"][:TEST])
    np.savez(given.folder / "train.npz", x=trained[0], label=trained[1])
    weights = {"lenet5": given.images / "fashion_lenet5.safetensors", "perceptron": given.folder / "mlp.safetensors"}
    save_file(train(*trained).state_dict(), weights["perceptron"])
    for name, file in weights.items():
        content = {
            "name": name,
            "pool": {"uri": "none", "format": "images"},
            "model": {"factory": f"paper_subjects:{name}", "weights": str(file.absolute())},
            "sample": {"method": "srs", "budget": 10},
            "output": "audits",
        }
        (given.folder / f"{name}.yaml").write_text(json.dumps(content))


if __name__ == "__main__":
    main()
