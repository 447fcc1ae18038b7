"""What a method costs beside SoftMax, measured in one interleaved run so that a busy machine slows both alike."""

import copy
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnxruntime

from service.bundle import ImageSpec
from service.engine import INPUT
from training import methods
from training.classifier import Classifier
from training.graph import ServedClassifier, to_onnx
from training.methods import Method

BATCH_SIZES = (1, 32)
NUM_ROUNDS = 31
NUM_WARM_UPS = 3
ROUND_SECONDS = 0.01
"""A call is repeated until it takes about this long, so that the clock's grain does not matter."""


def relative_inference_cost(
    classifier: Classifier, method: Method, image: ImageSpec, num_rounds: int = NUM_ROUNDS
) -> dict[str, float]:
    """Time per image of the exported graph over that of its twin, the same backbone with SoftMax's head.

    By batch size: the head's few small operators weigh most where one image is answered alone.
    """
    ours = _session(classifier, method, image)
    theirs = _session(softmax_twin(classifier), methods.find("softmax"), image)
    return {f"batch of {size}": _ratio_at(ours, theirs, image, size, num_rounds) for size in BATCH_SIZES}


def softmax_twin(classifier: Classifier) -> Classifier:
    """The same backbone with a fresh linear head; what its weights are does not matter for its cost."""
    twin = copy.deepcopy(classifier).cpu()
    num_classes, num_features = _head_shape(classifier)
    twin.head = methods.find("softmax").make_head(num_features, num_classes)
    return twin


def interleaved_ratio(ours: Callable[[], object], theirs: Callable[[], object], num_rounds: int = NUM_ROUNDS) -> float:
    """Median over rounds of our time over theirs, the order changing from round to round."""
    num_calls = _calls_per_round(theirs)
    for call in (ours, theirs) * NUM_WARM_UPS:
        call()
    ratios = []
    for number in range(num_rounds):
        first, second = (ours, theirs) if number % 2 else (theirs, ours)
        seconds = {first: _seconds(first, num_calls), second: _seconds(second, num_calls)}
        ratios.append(seconds[ours] / seconds[theirs])
    return statistics.median(ratios)


def _head_shape(classifier: Classifier) -> tuple[int, int]:
    """(classes, features): the shape of the one matrix that every head has."""
    num_classes, num_features = next(weights.shape for weights in classifier.head.parameters() if weights.dim() == 2)
    return num_classes, num_features


def _session(classifier: Classifier, method: Method, image: ImageSpec) -> onnxruntime.InferenceSession:
    graph = to_onnx(ServedClassifier(copy.deepcopy(classifier).cpu(), method, 1.0, 1.0), image)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _ratio_at(
    ours: onnxruntime.InferenceSession,
    theirs: onnxruntime.InferenceSession,
    image: ImageSpec,
    batch_size: int,
    num_rounds: int,
) -> float:
    images = np.random.default_rng(0).integers(0, 256, (batch_size, image.height, image.width, 3), dtype=np.uint8)
    return interleaved_ratio(
        lambda: ours.run(None, {INPUT: images}), lambda: theirs.run(None, {INPUT: images}), num_rounds
    )


def _calls_per_round(call: Callable[[], object]) -> int:
    call()
    return max(1, round(ROUND_SECONDS / max(_seconds(call, 1), 1e-6)))


def _seconds(call: Callable[[], object], num_calls: int) -> float:
    """Processor time, in which other processes on the machine do not count."""
    start = time.process_time()
    for _ in range(num_calls):
        call()
    return time.process_time() - start
