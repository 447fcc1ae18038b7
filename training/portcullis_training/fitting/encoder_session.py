"""A backbone as a plain function from pixels to features and middle: by ONNX Runtime on a CPU, by torch elsewhere.

It is what will serve, and on a CPU it takes less of the processor in float32: 12.3 ms a photo against torch's 15.5 for
an EfficientNet-Lite0 (`python -m bench.encoding`).
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Callable

import onnxruntime
import torch
from torch import Tensor, nn

from portcullis.bundle.manifest import ImageSpec
from portcullis_training import data
from portcullis_training.fitting.classifier import Classifier

OPSET = 18

Session = Callable[[Tensor], Tensor]
"""uint8 NHWC pixels to float32 rows (B, d + m) on the CPU: features and spatial means of the middle, side by side."""

logger = logging.getLogger(__name__)


def encoder_session(classifier: Classifier, spec: ImageSpec, device: torch.device) -> Session:
    """The fastest way there is on this device."""
    rows = _Rows(classifier, spec).eval()
    if device.type == "cpu":
        try:
            return _by_onnx_runtime(copy.deepcopy(rows), spec)
        except Exception as error:  # whatever the exporter stumbles over, torch can compute it
            logger.info("encoding with torch, for the backbone cannot be exported: %s", str(error).splitlines()[0])
    return _by_torch(rows, device)


class _Rows(nn.Module):
    """Everything before the head."""

    def __init__(self, classifier: Classifier, spec: ImageSpec) -> None:
        super().__init__()
        self.classifier = classifier
        example = torch.zeros(1, 3, spec.height, spec.width, device=classifier.mean.device)
        with torch.no_grad():
            classifier.eval().backbone.features_and_middle(example)  # finds the middle, which tracing must not do

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, d + m) of uint8 (B, H, W, 3)."""
        normalised = (data.to_float(pixels) - self.classifier.mean) / self.classifier.std
        return torch.cat(self.classifier.backbone.features_and_middle(normalised), dim=1)


def _by_torch(rows: _Rows, device: torch.device) -> Session:
    @torch.inference_mode()
    def run(pixels: Tensor) -> Tensor:
        encoded: Tensor = rows(pixels.to(device))
        return encoded.float().cpu()

    return run


def _by_onnx_runtime(rows: _Rows, spec: ImageSpec) -> Session:
    stream = io.BytesIO()
    example = torch.zeros(2, spec.height, spec.width, 3, dtype=torch.uint8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the tracing exporter announces its successor
        torch.onnx.export(
            rows, (example,), stream, dynamo=False, opset_version=OPSET, input_names=["pixels"],  # type: ignore[arg-type]
            output_names=["rows"], dynamic_axes={"pixels": {0: "N"}, "rows": {0: "N"}},
        )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # workers decode beside it
    session = onnxruntime.InferenceSession(stream.getvalue(), options, providers=["CPUExecutionProvider"])

    def run(pixels: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"pixels": pixels.numpy()})[0])

    return run
