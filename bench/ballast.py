"""The tiny bundle of the tests with 64 MB of weights that change no answer: to see engines come and go in memory."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from portcullis.bundle.files import Bundle, write_bundle
from tests import tiny

ROWS, COLUMNS = 16, 1_000_000


def write(models: Path, version: int, sharpness: float) -> Bundle:
    """Write one such version below `models`."""
    return write_bundle(models, tiny.manifest(version=version, sharpness=sharpness), {"model.onnx": _graph(sharpness)})


def _graph(sharpness: float) -> bytes:
    model = onnx.load_from_string(tiny.graph(sharpness=sharpness))
    graph = model.graph
    for node in graph.node:
        node.output[:] = ["bare_score" if name == "score" else name for name in node.output]
    weights = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    constants = {"weights": weights, "zero": np.zeros((), np.float32)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.node.extend(
        [  # a row chosen by the answer: nothing that could be computed beforehand and left out
            helper.make_node("ArgMax", ["probabilities"], ["best"], axis=1, keepdims=0),
            helper.make_node("Gather", ["weights", "best"], ["row"], axis=0),
            helper.make_node("ReduceMax", ["row", "one"], ["largest"], keepdims=0),
            helper.make_node("Mul", ["largest", "zero"], ["nothing"]),
            helper.make_node("Add", ["bare_score", "nothing"], ["score"]),
        ]
    )
    onnx.checker.check_model(model)
    return model.SerializeToString()
