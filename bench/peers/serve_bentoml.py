"""BentoML: a form file in, JSON out; two workers."""

from __future__ import annotations

import bentoml
import numpy as np
from onnx_classifier import classify, open_session
from PIL.Image import Image as PilImage


@bentoml.service(workers=2, traffic={"timeout": 30})
class Classifier:
    def __init__(self) -> None:
        self.session = open_session()

    @bentoml.api
    def predict(self, file: PilImage) -> dict:
        return classify(self.session, [np.asarray(file.convert("RGB").resize((32, 32)))])[0]
