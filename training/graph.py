"""The served graph: uint8 images in, calibrated probabilities and score out, as torch module and as ONNX."""

import io
import warnings

import onnx
import torch
from onnxscript import optimizer
from torch import Tensor, nn

from service.bundle import ImageSpec
from service.engine import INPUT, OUTPUTS
from training.classifier import Classifier
from training.data import to_float
from training.methods import Method

OPSET = 18  # taken by ONNX Runtime's CPU, CUDA and TensorRT providers alike


class ServedClassifier(nn.Module):
    """Everything that is arithmetic: normalisation, backbone, head, temperature, softmax, score."""

    def __init__(self, classifier: Classifier, method: Method, temperature: float, score_temperature: float) -> None:
        super().__init__()
        self.classifier = classifier
        self.method = method
        self.temperature = temperature
        self.score_temperature = score_temperature

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (N, C) and score (N,) of uint8 images (N, H, W, 3)."""
        logits = self.classifier(to_float(images))
        probabilities = (logits / self.temperature).softmax(dim=1)
        if self.score_temperature != 1:
            logits = logits / self.score_temperature
        return probabilities, self.method.score(logits)


def to_onnx(served: ServedClassifier, image: ImageSpec) -> bytes:
    """The graph as one ONNX file with N free, batch norms folded and nothing in it about this machine."""
    stream = io.BytesIO()
    example = torch.zeros(2, image.height, image.width, 3, dtype=torch.uint8)
    # The tracing exporter: the newer one takes far longer and leaves shape arithmetic in pooling layers.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it announces its own successor
        torch.onnx.export(
            served.eval(), (example,), stream, dynamo=False, opset_version=OPSET, input_names=[INPUT],  # type: ignore[arg-type]
            output_names=list(OUTPUTS), dynamic_axes={name: {0: "N"} for name in (INPUT, *OUTPUTS)},
        )  # fmt: skip
        model = optimizer.optimize(onnx.load_from_string(stream.getvalue()))
    _forget_origin(model)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _forget_origin(model: onnx.ModelProto) -> None:
    """Notes of the exporter may hold paths of source files."""
    del model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
