"""A folder of JPEGs through torch's DataLoader, with a process per core, and ResNet-18 on the GPU: for `gpu.py`."""

import os
import sys
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch
from PIL import Image


class Pictures(torch.utils.data.Dataset[Any]):
    def __init__(self, folder: str) -> None:
        self._paths = sorted(Path(folder).iterdir())

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, place: int) -> Any:
        with Image.open(self._paths[place]) as image:
            return networks.to_input(np.asarray(image))


def main(folder: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = networks.resnet18().eval().to(device)
    loader = torch.utils.data.DataLoader(
        Pictures(folder), batch_size=128, num_workers=os.cpu_count() or 1, pin_memory=device == "cuda"
    )
    kept = []
    with torch.inference_mode():
        kept += [model(batch.to(device, non_blocking=True)).cpu().numpy() for batch in loader]
    np.save(Path(folder).parent / "outputs.npy", np.concatenate(kept))


if __name__ == "__main__":
    main(sys.argv[1])
