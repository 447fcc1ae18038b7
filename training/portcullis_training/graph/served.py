"""The served graph: uint8 images in, calibrated probabilities, score and parts out, as torch module and as ONNX."""

import copy
import io
import warnings

import onnx
import torch
from onnxscript import optimizer
from torch import Tensor, nn
from torch.nn.utils import parametrize

from portcullis.bundle.engine import INPUT, OUTPUTS
from portcullis.bundle.manifest import ImageSpec
from portcullis_training.data import to_float
from portcullis_training.fitting.classifier import Classifier
from portcullis_training.graph.score import Score

FORMAT_VERSION = 2
OPSET = 18  # taken by ONNX Runtime's CPU, CUDA and TensorRT providers alike


class ServedClassifier(nn.Module):
    """Everything that is arithmetic: normalisation, backbone, head, temperature, softmax, score."""

    def __init__(self, classifier: Classifier, temperature: float, score: Score) -> None:
        super().__init__()
        self.classifier = classifier
        self.temperature = temperature
        self.score = score.lean()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities (N, C), score (N,) and its parts (N, K) of uint8 images (N, H, W, 3)."""
        reading = self.classifier.read(to_float(images))
        probabilities = (reading.logits / self.temperature).softmax(dim=1)
        return probabilities, *self.score(reading)


def to_onnx(served: ServedClassifier, image: ImageSpec) -> bytes:
    """The graph as one ONNX file with N free, batch norms folded and nothing in it about this machine."""
    served = folded(served)
    stream, outputs = io.BytesIO(), OUTPUTS[FORMAT_VERSION]
    example = torch.zeros(2, image.height, image.width, 3, dtype=torch.uint8)
    with torch.inference_mode():
        served.eval()(example)  # finds the backbone's middle block, which is no part of the graph
    # The tracing exporter: the newer one takes far longer and leaves shape arithmetic in pooling layers.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it announces its own successor
        torch.onnx.export(
            served.eval(), (example,), stream, dynamo=False, opset_version=OPSET, input_names=[INPUT],  # type: ignore[arg-type]
            output_names=list(outputs), dynamic_axes={name: {0: "N"} for name in (INPUT, *outputs)},
        )  # fmt: skip
        model = optimizer.optimize(onnx.load_from_string(stream.getvalue()))
    _forget_origin(model)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def folded(served: ServedClassifier) -> ServedClassifier:
    """A copy in which weights that are computed from others, such as bounded ones, are what they come to."""
    copied = copy.deepcopy(served).eval()
    for module in list(copied.modules()):
        if parametrize.is_parametrized(module, "weight"):
            _fold(module)
    return copied


def _fold(module: nn.Module) -> None:
    """Like torch's `remove_parametrizations`, which would take the weight from the module that this is a copy of too:
    it changes the class, and copies share it."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    plain = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    module.__class__ = plain
    module.register_parameter("weight", nn.Parameter(weight.detach()))


def _forget_origin(model: onnx.ModelProto) -> None:
    """Notes of the exporter may hold paths of source files."""
    del model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
