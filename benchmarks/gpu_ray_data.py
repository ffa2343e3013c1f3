"""For `gpu.py`: JPEGs through Ray Data with read_images, ResNet-18 in one actor, and write_parquet. Needs pandas."""

import sys

import networks
import numpy as np
import ray
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Predictor:
    """The model in an actor."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.model = networks.resnet18().eval().to(DEVICE)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = np.stack([networks.to_input(image) for image in batch["image"]])
        with torch.inference_mode():
            output = self.model(torch.from_numpy(inputs).to(DEVICE))
        return {"path": batch["path"], "output": output.cpu().numpy()}


def main(folder: str, written: str) -> None:
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    images = ray.data.read_images(folder, include_paths=True)
    actors = ray.data.ActorPoolStrategy(size=1)
    outputs = images.map_batches(Predictor, batch_size=256, compute=actors, num_gpus=int(DEVICE == "cuda"))
    outputs.write_parquet(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
