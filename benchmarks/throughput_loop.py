"""The bare loop of `throughput.py`: prints images, seconds of start-up, and seconds from the first batch on.

One thread reads ahead with 16 others and decodes; the main one computes, with one thread of torch. Images and weights
have the channels last in memory where the last argument says so, else not.
"""

import argparse
import io
import os
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

BEGUN = time.monotonic()


def main(bucket: str, prefix: str, factory: str, batch: int, layout: str) -> None:
    import numpy as np
    import throughput_model
    import torch

    torch.set_num_threads(1)
    memory_format = getattr(torch, layout)
    model = getattr(throughput_model, factory)().eval().to(memory_format=memory_format)
    ready: queue.Queue[list[np.ndarray] | None] = queue.Queue(1)
    threading.Thread(target=_fill, args=(ready, bucket, prefix, batch, throughput_model.to_input), daemon=True).start()
    kept, first, counted = [], 0.0, 0
    hidden: list[torch.Tensor] = []
    last = [part for part in model.modules() if isinstance(part, torch.nn.Linear)][-1]
    last.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0].clone()))
    while (inputs := ready.get()) is not None:
        with torch.inference_mode():
            output = model(torch.from_numpy(np.stack(inputs)).contiguous(memory_format=memory_format))
        kept.append((hidden.pop().numpy(), output.numpy(), torch.softmax(output, 1).amax(1).numpy()))
        counted += len(inputs) if first else 0
        first = first or time.monotonic()
    print(counted, first - BEGUN, time.monotonic() - first)


def _fill(ready: "queue.Queue", bucket: str, prefix: str, batch: int, to_input) -> None:
    inputs: list = []
    for image in _images(bucket, prefix):
        inputs.append(to_input(image))
        if len(inputs) == batch:
            ready.put(inputs)
            inputs = []
    if inputs:
        ready.put(inputs)
    ready.put(None)


def _images(bucket: str, prefix: str) -> Iterator:
    import boto3
    import numpy as np
    from botocore.config import Config
    from PIL import Image

    s3 = boto3.client("s3", config=Config(max_pool_connections=16, s3={"addressing_style": "path"}))
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [found["Key"] for page in pages for found in page["Contents"]]

    def read(key: str) -> bytes:
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    with ThreadPoolExecutor(16) as pool:
        ahead = [pool.submit(read, key) for key in keys[:32]]
        for number in range(len(keys)):
            content = ahead[number].result()
            if number + 32 < len(keys):
                ahead.append(pool.submit(read, keys[number + 32]))
            ahead[number] = None
            if keys[number].endswith(".npy"):
                yield from np.load(io.BytesIO(content))
            else:
                yield np.asarray(Image.open(io.BytesIO(content)))


if __name__ == "__main__":
    os.environ.pop("OMP_NUM_THREADS", None)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bucket")
    parser.add_argument("prefix")
    parser.add_argument("factory", help="function of throughput_model")
    parser.add_argument("batch", type=int)
    parser.add_argument(
        "layout", nargs="?", default="contiguous_format", choices=["contiguous_format", "channels_last"]
    )
    main(**vars(parser.parse_args()))
