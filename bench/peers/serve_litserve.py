"""LitServe: a form file in, JSON out; two workers, batches of up to four."""

import os

import litserve
from fastapi import Request
from onnx_classifier import classify, decode, open_session


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.session = open_session()

    def decode_request(self, request: Request):
        return decode(request["file"].file.read())

    def batch(self, inputs: list):
        return inputs

    def predict(self, images: list):
        return classify(self.session, images)

    def unbatch(self, output: list):
        return output

    def encode_response(self, output: dict):
        return output


if __name__ == "__main__":
    server = litserve.LitServer(Api(max_batch_size=4, batch_timeout=0.001), accelerator="cpu", workers_per_device=2)
    server.run(host="127.0.0.1", port=int(os.environ["BENCH_PORT"]), num_api_servers=2, generate_client_file=False)
