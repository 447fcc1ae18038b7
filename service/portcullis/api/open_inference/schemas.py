"""The JSON of the Open Inference Protocol under /v2, for the OpenAPI document."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Schema(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class ProtocolError(_Schema):
    """The protocol's one shape of a refusal."""

    error: str


class ServerMetadata(_Schema):
    """The server and what it speaks beyond the protocol's core."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(_Schema):
    """One input or output of a model; -1 stands for any length."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(_Schema):
    """One model as a client must call it."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class IndexEntry(_Schema):
    """One version in the models directory."""

    name: str
    version: str
    state: str = Field(examples=["READY"])
    reason: str


class InferTensor(_Schema):
    """A tensor in JSON; with the binary tensor extension, `data` is left out and follows the JSON."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class InferResponse(_Schema):
    """What the model says of them."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[InferTensor]


_PARAMETERS = {"type": "object", "description": "binary_data_size, binary_data, binary_data_output"}
INFER_BODY = {
    "required": True,
    "description": "JSON, or JSON followed by raw tensors with Inference-Header-Content-Length",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["inputs"],
                "properties": {
                    "id": {"type": "string", "maxLength": 256},
                    "parameters": _PARAMETERS,
                    "inputs": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["name", "datatype", "shape"],
                            "properties": {
                                "name": {"type": "string", "const": "images"},
                                "datatype": {"type": "string", "const": "UINT8"},
                                "shape": {
                                    "type": "array",
                                    "items": {"type": "integer"},
                                    "description": "[N, height, width, 3]",
                                },
                                "parameters": _PARAMETERS,
                                "data": {"type": "array", "items": {}, "description": "0 to 255, flat or nested"},
                            },
                        },
                    },
                    "outputs": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": {"type": "string"}, "parameters": _PARAMETERS},
                        },
                    },
                },
            }
        }
    },
}
