"""MLServer: the Open Inference Protocol with a base64 picture in a BYTES tensor; two inference workers."""

from mlserver import MLModel
from mlserver.codecs import Base64Codec, NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from onnx_classifier import classify, decode, open_session


class Classifier(MLModel):
    async def load(self) -> bool:
        import numpy as np

        self.numpy = np
        self.session = open_session()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        pictures = Base64Codec.decode_input(payload.inputs[0])
        rows = classify(self.session, [decode(picture) for picture in pictures])
        columns = {name: self.numpy.array([[row[name]] for row in rows]) for name in rows[0]}
        outputs = [NumpyCodec.encode_output(name, column) for name, column in columns.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)
