"""BentoML: a form file in, JSON out; two workers with adaptive batching."""

from __future__ import annotations

import bentoml
from onnx_classifier import classify, decode, open_session
from PIL.Image import Image as PilImage


@bentoml.service(workers=2, traffic={"timeout": 30})
class Classifier:
    def __init__(self) -> None:
        self.session = open_session()

    @bentoml.api
    def predict(self, file: PilImage) -> dict:
        import numpy as np

        return classify(self.session, [np.asarray(file.convert("RGB").resize((32, 32)))])[0]


__all__ = ["Classifier", "decode"]
