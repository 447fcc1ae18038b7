"""Tensors on the wire of the Open Inference Protocol: JSON, and the binary tensor extension. Knows no model.

With the extension the body is JSON followed by raw little-endian tensors; a header says where the JSON ends.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from portcullis.bundle.preprocess import Pixels
from portcullis.errors import BadRequest, PayloadTooLarge

HEADER_LENGTH = "inference-header-content-length"
MAX_ID = 256


@dataclass(frozen=True)
class InferCall:
    """What a client asks for."""

    request_id: str | None
    images: Pixels  # (N, H, W, 3)
    outputs: tuple[tuple[str, bool], ...]
    """Names of the outputs to return, and whether as raw bytes."""


def read_call(
    body: bytes, header_length: str | None, image_shape: tuple[int, int, int], max_images: int, known: tuple[str, ...]
) -> InferCall:
    """Parse and check an infer request; what is missing, wrong or unknown is named."""
    head, tail = _split(body, header_length)
    try:
        content = orjson.loads(head)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the inference request is not JSON: {error.msg}") from None
    if not isinstance(content, dict):
        raise BadRequest("expected the inference request to be a JSON object")
    request_id = content.get("id")
    if request_id is not None and (not isinstance(request_id, str) or len(request_id) > MAX_ID):
        raise BadRequest(f"expected id to be a string of at most {MAX_ID} characters")
    images = _images(content.get("inputs"), tail, image_shape, max_images)
    return InferCall(request_id, images, _outputs(content, known))


def write_answer(
    head: dict[str, Any], tensors: dict[str, NDArray[Any]], outputs: tuple[tuple[str, bool], ...]
) -> tuple[bytes, int | None]:
    """The body of an answer, and where its JSON ends where raw tensors follow."""
    entries, blobs = [], []
    for name, is_binary in outputs:
        tensor = tensors[name]
        entry: dict[str, Any] = {"name": name, "datatype": _datatype(tensor), "shape": list(tensor.shape)}
        if is_binary:
            blob = _raw(tensor)
            blobs.append(blob)
            entry["parameters"] = {"binary_data_size": len(blob)}
        else:
            entry["data"] = tensor.ravel().tolist()
        entries.append(entry)
    text = orjson.dumps({**head, "outputs": entries})
    return text + b"".join(blobs), len(text) if blobs else None


def _split(body: bytes, header_length: str | None) -> tuple[bytes, bytes]:
    if header_length is None:
        return body, b""
    if not header_length.isdecimal() or not 0 < int(header_length[:12]) <= len(body):
        raise BadRequest(f"expected Inference-Header-Content-Length of 1 to {len(body)}, got {header_length[:20]!r}")
    return body[: int(header_length)], body[int(header_length) :]


def _images(inputs: Any, tail: bytes, image_shape: tuple[int, int, int], max_images: int) -> Pixels:
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise BadRequest("expected exactly one input, images")
    tensor = inputs[0]
    if tensor.get("name") != "images" or tensor.get("datatype") != "UINT8":
        got = f"{str(tensor.get('name'))[:40]!r} of {str(tensor.get('datatype'))[:20]}"
        raise BadRequest(f"expected input 'images' of UINT8, got {got}")
    shape = tensor.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 4
        or any(type(side) is not int for side in shape)
        or tuple(shape[1:]) != image_shape
        or shape[0] < 1
    ):
        raise BadRequest(f"expected shape [N, {', '.join(map(str, image_shape))}] with N >= 1, got {str(shape)[:80]}")
    if shape[0] > max_images:
        raise PayloadTooLarge(f"expected at most {max_images} images in one request, got {shape[0]}")
    return _values(tensor, tail, int(np.prod(shape))).reshape(shape)


def _values(tensor: dict[str, Any], tail: bytes, count: int) -> Pixels:
    parameters = _parameters(tensor, "input images")
    if "shared_memory_region" in parameters:
        raise BadRequest("shared memory is not supported")
    size = parameters.get("binary_data_size")
    if size is None:
        if tail:
            raise BadRequest(f"{len(tail)} bytes follow the JSON, but no input names them by binary_data_size")
        return _from_json(tensor.get("data"), count)
    if "data" in tensor:
        raise BadRequest("input images has both data and binary_data_size")
    if size != count or len(tail) != count:
        raise BadRequest(
            f"expected {count} bytes for input images, got {len(tail)} (binary_data_size {str(size)[:20]})"
        )
    return np.frombuffer(tail, np.uint8)


def _from_json(data: Any, count: int) -> Pixels:
    """Flat or nested lists of whole numbers."""
    try:
        values = np.array(data)
    except ValueError:
        values = np.empty(0)
    if not isinstance(data, list) or values.dtype.kind not in "iu" or values.size != count:
        raise BadRequest(f"expected input images to have {count} whole numbers in data, flat or nested")
    if values.min() < 0 or values.max() > 255:
        raise BadRequest("expected input images to have numbers from 0 to 255")
    return values.astype(np.uint8)


def _outputs(content: dict[str, Any], known: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    default = _parameters(content, "the request").get("binary_data_output", False) is True
    wanted = content.get("outputs")
    if not wanted:
        return tuple((name, default) for name in known)
    if not isinstance(wanted, list) or not all(isinstance(output, dict) for output in wanted):
        raise BadRequest("expected outputs to be a list of objects")
    chosen: dict[str, bool] = {}
    for output in wanted:
        name, parameters = output.get("name"), _parameters(output, "an output")
        if not isinstance(name, str) or name not in known:
            raise BadRequest(f"unknown output {str(name)[:40]!r}; there are: {', '.join(known)}")
        if name in chosen:
            raise BadRequest(f"output {name} is asked for twice")
        if "classification" in parameters or "shared_memory_region" in parameters:
            raise BadRequest("the classification and shared memory extensions are not supported")
        chosen[name] = parameters.get("binary_data", default) is True
    return tuple(chosen.items())


def _parameters(owner: dict[str, Any], name: str) -> dict[str, Any]:
    parameters = owner.get("parameters", {})
    if not isinstance(parameters, dict):
        raise BadRequest(f"expected the parameters of {name} to be an object")
    return parameters


def _datatype(tensor: NDArray[Any]) -> str:
    return "FP32" if tensor.dtype == np.float32 else "BYTES"


def _raw(tensor: NDArray[Any]) -> bytes:
    """Little-endian numbers; a string has its length in four bytes before it."""
    if tensor.dtype == np.float32:
        return tensor.astype("<f4").tobytes()
    words = [str(word).encode() for word in tensor.ravel()]
    return b"".join(len(word).to_bytes(4, "little") + word for word in words)
