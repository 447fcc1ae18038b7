"""What a method costs beside SoftMax, measured in one interleaved run so that a busy machine slows both alike."""

import copy
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnxruntime
import torch

from portcullis.bundle.engine import INPUT
from portcullis.bundle.manifest import ImageSpec
from portcullis.bundle.preprocess import Pixels
from portcullis_training import methods
from portcullis_training.data import to_float
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.fitting.ensemble import first_network
from portcullis_training.graph.score import Score, own_score
from portcullis_training.graph.served import ServedClassifier, to_onnx
from portcullis_training.measuring.readings import look
from portcullis_training.methods import LooksTwice, Method

Answering = Callable[[Pixels], object]
"""What answers images (N, H, W, 3) of bytes."""

BATCH_SIZES = (1, 32)
NUM_ROUNDS = 31
MIN_ROUNDS = 3
NUM_WARM_UPS = 3
MAX_SECONDS = 10.0
"""Processor time that one batch size may take; where not even a few calls fit into it, it is not measured."""
ROUND_SECONDS = 0.01
"""A call is repeated until it takes about this long, so that the clock's grain does not matter."""


def relative_inference_cost(
    classifier: Classifier, method: Method, image: ImageSpec, max_seconds: float = MAX_SECONDS
) -> dict[str, float]:
    """Time per image of the exported graph over that of its twin, the same backbone with SoftMax's head.

    By batch size: the head's few small operators weigh most where one image is answered alone. A batch that takes a
    large network too long is left out.
    """
    softmax, twin = methods.find("softmax"), softmax_twin(classifier)
    if isinstance(method, LooksTwice):  # is no graph: both as torch runs them
        return _ratios(_in_torch(classifier, method), _in_torch(twin, softmax), image, max_seconds)
    ours = _in_a_session(classifier, own_score(method.score_name), image)
    theirs = _in_a_session(twin, own_score(softmax.score_name), image)
    return _ratios(ours, theirs, image, max_seconds)


def relative_score_cost(
    classifier: Classifier, score: Score, image: ImageSpec, max_seconds: float = MAX_SECONDS
) -> dict[str, float]:
    """Time per image of the exported graph over that of the same graph with the method's own score alone."""
    own = own_score(score.own.name)
    return _ratios(_in_a_session(classifier, score, image), _in_a_session(classifier, own, image), image, max_seconds)


def softmax_twin(classifier: Classifier) -> Classifier:
    """The same backbone with a fresh linear head; what its weights are does not matter for its cost."""
    copied = copy.deepcopy(classifier).cpu().eval()
    backbone = first_network(copied.backbone)
    with torch.inference_mode():
        num_classes = copied.head(torch.zeros(1, copied.backbone.num_features)).shape[1]
    head = methods.find("softmax").make_head(backbone.num_features, num_classes)
    return Classifier(backbone, head, copied.mean.flatten().tolist(), copied.std.flatten().tolist())


def interleaved_ratio(
    ours: Callable[[], object], theirs: Callable[[], object], max_seconds: float = MAX_SECONDS
) -> float | None:
    """Median over rounds of our time over theirs, the order changing from round to round; none if it takes too long."""
    ours()
    call_seconds = _seconds(theirs, 1)
    num_calls = max(1, round(ROUND_SECONDS / max(call_seconds, 1e-6)))
    rounds = rounds_within(max_seconds, call_seconds, num_calls)
    if rounds is None:
        return None
    for call in (ours, theirs) * rounds.num_warm_ups:
        call()
    ratios = []
    for number in range(rounds.num_measured):
        first, second = (ours, theirs) if number % 2 else (theirs, ours)
        seconds = {first: _seconds(first, num_calls), second: _seconds(second, num_calls)}
        ratios.append(seconds[ours] / seconds[theirs])
    return statistics.median(ratios)


class Rounds(NamedTuple):
    """How often both are called."""

    num_warm_ups: int
    num_measured: int


def rounds_within(max_seconds: float, call_seconds: float, num_calls: int) -> Rounds | None:
    """As many rounds of so many calls of each as the time allows; none where not even the fewest fit."""
    num_affordable = int(max_seconds / max(2 * call_seconds, 1e-9))
    num_warm_ups = min(NUM_WARM_UPS, num_affordable // (MIN_ROUNDS + 1))
    num_measured = min(NUM_ROUNDS, (num_affordable - num_warm_ups) // num_calls)
    return None if num_measured < MIN_ROUNDS else Rounds(num_warm_ups, num_measured)


def _in_a_session(classifier: Classifier, score: Score, image: ImageSpec) -> Answering:
    graph = to_onnx(ServedClassifier(copy.deepcopy(classifier).cpu(), 1.0, score), image)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {INPUT: images})


def _in_torch(classifier: Classifier, method: Method) -> Answering:
    copied = copy.deepcopy(classifier).cpu().eval()
    return lambda images: look(copied, to_float(torch.from_numpy(images)), method)


def _ratios(ours: Answering, theirs: Answering, image: ImageSpec, max_seconds: float) -> dict[str, float]:
    ratios = {f"batch of {size}": _ratio_at(ours, theirs, image, size, max_seconds) for size in BATCH_SIZES}
    return {name: ratio for name, ratio in ratios.items() if ratio is not None}


def _ratio_at(
    ours: Answering, theirs: Answering, image: ImageSpec, batch_size: int, max_seconds: float
) -> float | None:
    images = np.random.default_rng(0).integers(0, 256, (batch_size, image.height, image.width, 3), dtype=np.uint8)
    return interleaved_ratio(lambda: ours(images), lambda: theirs(images), max_seconds)


def _seconds(call: Callable[[], object], num_calls: int) -> float:
    """Processor time, in which other processes on the machine do not count."""
    start = time.process_time()
    for _ in range(num_calls):
        call()
    return time.process_time() - start
