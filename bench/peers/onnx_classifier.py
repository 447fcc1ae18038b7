"""What all peers share: decode a PNG with Pillow, run the graph with one thread, answer label, probability, score."""

import io
import os

import numpy as np
import onnxruntime
from PIL import Image

GRAPH = os.environ.get("BENCH_GRAPH", "model.onnx")


def open_session() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(GRAPH, options, providers=["CPUExecutionProvider"])


def decode(payload: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(payload)).convert("RGB").resize((32, 32)))


def classify(session: onnxruntime.InferenceSession, images: list[np.ndarray]) -> list[dict]:
    probabilities, scores = session.run(None, {"images": np.stack(images)})
    best = probabilities.argmax(axis=1)
    return [
        {"class_index": int(index), "probability": float(row[index]), "score": float(score)}
        for row, index, score in zip(probabilities, best, scores, strict=True)
    ]
