"""PNGs in a folder through Ray Data: read_images, one actor with the model, write_parquet. Needs pandas."""

import argparse

import numpy as np
import ray
import throughput_model
import torch


class Predictor:
    """The model in an actor."""

    def __init__(self, factory: str, device: str) -> None:
        torch.set_num_threads(1)
        self.device = device
        self.model = getattr(throughput_model, factory)().eval().to(device)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = np.stack([throughput_model.to_input(image) for image in batch["image"]])
        with torch.inference_mode():
            output = self.model(torch.from_numpy(inputs).to(self.device))
        return {"path": batch["path"], "output": output.cpu().numpy()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", help="folder of PNGs")
    parser.add_argument("written", help="folder for the outputs")
    parser.add_argument("--resnet18", action="store_true", help="on the GPU, in place of the small network")
    given = parser.parse_args()
    gpus = int(given.resnet18 and torch.cuda.is_available())
    made = ("resnet18" if given.resnet18 else "small", "cuda" if gpus else "cpu")
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    images = ray.data.read_images(given.images, include_paths=True)
    outputs = images.map_batches(
        Predictor, batch_size=256, compute=ray.data.ActorPoolStrategy(size=1), fn_constructor_args=made, num_gpus=gpus
    )
    outputs.write_parquet(given.written)
