"""Ray Serve: raw bytes in, JSON out; two replicas with dynamic batching."""

import os
import signal

import ray
from onnx_classifier import classify, decode, open_session
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=2, max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})
class Classifier:
    def __init__(self) -> None:
        self.session = open_session()

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.001)
    async def run(self, images: list) -> list[dict]:
        return classify(self.session, images)

    async def __call__(self, request: Request) -> dict:
        return await self.run(decode(await request.body()))


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["BENCH_PORT"])})
    serve.run(Classifier.bind(), route_prefix="/predict")
    signal.pause()
