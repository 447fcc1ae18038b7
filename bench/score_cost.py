"""`python -m bench.score_cost BUNDLE…`: what the fitted score costs in the graph that is served.

The graph is cut down to probabilities and the method's own score, the first of its parts, and both are timed in one
interleaved run, on one thread of the CPU.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from bench.__main__ import RESULTS
from portcullis.bundle.engine import INPUT
from portcullis.bundle.files import MODEL_FILE, load_bundle
from portcullis_training.commands import host
from portcullis_training.measuring.cost import BATCH_SIZES, interleaved_ratio

SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.score_cost", description=__doc__)
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="such as models/cifar10-whitened/4")
    parser.add_argument("--out", type=Path, default=RESULTS / "score_cost.json")
    arguments = parser.parse_args()
    host.settle()
    found = {load_bundle(path).label: measure(path) for path in arguments.bundles}
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    for label, ratios in found.items():
        print(f"{label}: " + ", ".join(f"{name} {100 * (ratio - 1):+.1f} %" for name, ratio in ratios.items()))


def measure(path: Path) -> dict[str, float]:
    """Time of the graph over that of the graph without the other parts, by batch size."""
    image = load_bundle(path).manifest.image
    with tempfile.TemporaryDirectory() as directory:
        alone = Path(directory) / MODEL_FILE
        cut_to_own_score(path / MODEL_FILE, alone)
        ours, theirs = session(path / MODEL_FILE), session(alone)
    random, ratios = np.random.default_rng(0), {}
    for size in BATCH_SIZES:
        feed = {INPUT: random.integers(0, 256, (size, image.height, image.width, 3), dtype=np.uint8)}
        ratio = interleaved_ratio(lambda: ours.run(None, feed), lambda: theirs.run(None, feed), SECONDS)  # noqa: B023
        if ratio is not None:
            ratios[f"batch of {size}"] = ratio
    return ratios


def cut_to_own_score(graph: Path, cut: Path) -> None:
    """Keep what probabilities and the first part need."""
    together = next(node for node in onnx.load(graph).graph.node if "parts" in node.output)
    assert together.op_type == "Concat", "expected a score of several parts"
    onnx.utils.extract_model(graph, cut, [INPUT], ["probabilities", together.input[0]])


def session(graph: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
