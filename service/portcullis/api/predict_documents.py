"""What the OpenAPI document says of the predict routes, written by hand: FastAPI does not look into them.

A test calls what is described.
"""

from typing import Any, NamedTuple

from portcullis.api.documents import errors
from portcullis.errors import (
    BadImage,
    BadRequest,
    DeadlineExceeded,
    Forbidden,
    ImageTooLarge,
    InvalidParameter,
    Overloaded,
    PayloadTooLarge,
    Unauthorized,
    UnknownModel,
    UnsupportedMediaType,
)
from portcullis.schemas.answers import Answer, BatchAnswer, ErrorAnswer, ImageBody

Content = dict[str, Any]


class Described(NamedTuple):
    """One route, for whoever calls it."""

    operation_id: str
    summary: str
    description: str
    answer: Any
    parameters: list[Content]
    body: Content
    refusals: dict[int | str, Content]


def _parameter(name: str, schema: Content, text: str) -> Content:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


_BINARY: Content = {"type": "string", "format": "binary"}
_ERRORS = errors(
    BadRequest,
    BadImage,
    Unauthorized,
    Forbidden,
    UnknownModel,
    PayloadTooLarge,
    ImageTooLarge,
    UnsupportedMediaType,
    InvalidParameter,
    Overloaded,
    DeadlineExceeded,
)
_PARAMETERS = [
    _parameter("model", {"type": "string"}, "Model's name; without it, the default model answers"),
    _parameter("version", {"type": "integer", "minimum": 1}, "Version; without it, the model's default version"),
    _parameter("top_k", {"type": "integer", "minimum": 1, "default": 3}, "How many classes to list in `top`"),
    _parameter(
        "operating_point",
        {"type": "string", "examples": ["accept99", "accept95:by-class", "accept95+right99", "mmles:accept95"]},
        "Gate of this request: [score:]accept<percent>[:by-class][+right<percent>], right<percent> or "
        "[score:]<number>; not together with threshold",
    ),
    _parameter("threshold", {"type": "number"}, "Gate of this request: an absolute score"),
    _parameter("explain", {"type": "boolean", "default": False}, "Whether to show the parts of the score"),
    _parameter(
        "set",
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "examples": [0.95]},
        "Add the set of classes that holds the truth of a familiar image so often",
    ),
]
_ON_REJECT = _parameter(
    "on_reject",
    {"type": "integer", "enum": [200, 422], "default": 200},
    "Status of a rejected image; the body is the answer in either case",
)
_REJECTED: Content = {
    "model": "pets",
    "version": 2,
    "label": "Sphynx",
    "class_index": 11,
    "probability": 0.10817374289035797,
    "top": [
        {"label": "Sphynx", "class_index": 11, "probability": 0.10817374289035797},
        {"label": "Miniature pinscher", "class_index": 26, "probability": 0.07331418246030807},
        {"label": "Shiba Inu", "class_index": 33, "probability": 0.06965649873018265},
    ],
    "score": -10.16513442993164,
    "score_name": "fitted",
    "mmles": -36.5531005859375,
    "p_value": 0.0018214936247723133,
    "threshold": -2.7128143310546875,
    "min_probability": 0.0,
    "operating_point": "accept95",
    "verdict": "reject",
    "reason": "stranger",
    "request_id": "a25582e632b22067",
}  # what the service answers to docs/examples/retina.jpg; a test asks it


def _or_rejected(refusal: Content) -> Content:
    """A 422 that is the answer of a rejected image where `on_reject=422` asked for it, and an error otherwise."""
    examples = refusal["content"]["application/json"]["examples"]
    return {
        "model": Answer | ErrorAnswer,
        "description": f"{refusal['description']} Or, with `on_reject=422`, the answer of a rejected image.",
        "content": {"application/json": {"examples": {**examples, "rejected": {"value": _REJECTED}}}},
    }


PREDICT = Described(
    operation_id="classify_one_image",
    summary="Classify one image",
    description="""The body is the image: raw, the one file of a form, or base64 in JSON.

An image unlike those that the model knows (out-of-distribution, OOD) is rejected, which is an answer and no error: 200
with `"verdict": "reject"`, or 422 with the same body where `on_reject=422` asks for it. The gate is the one in force,
unless the request brings an `operating_point` or a `threshold` of its own. An unknown parameter is refused.""",
    answer=Answer,
    parameters=[*_PARAMETERS, _ON_REJECT],
    body={
        "required": True,
        "description": "One image, in any of these ways",
        "content": {
            "image/*": {"schema": _BINARY},
            "application/octet-stream": {"schema": _BINARY},
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": _BINARY}, "required": ["file"]}
            },
            "application/json": {"schema": ImageBody.model_json_schema()},
        },
    },
    refusals={**_ERRORS, 422: _or_rejected(_ERRORS[422])},
)
BATCH = Described(
    operation_id="classify_many_images",
    summary="Classify many images",
    description="""Each file of the form gets an answer or an error of its own, in order; a bad file does not fail the
others. The status is 200 as soon as the form could be read, so look at each entry.

A rejected image is an answer here too. There is no `on_reject`: one status cannot speak for many files, and a request
that asks for it is refused.""",
    answer=BatchAnswer,
    parameters=_PARAMETERS,
    body={
        "required": True,
        "description": "Files of any field name",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"files": {"type": "array", "items": _BINARY, "minItems": 1}},
                    "required": ["files"],
                }
            }
        },
    },
    refusals=_ERRORS,
)
