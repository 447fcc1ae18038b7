"""mosec: raw bytes in, JSON out; two inference processes, batches without waiting."""

from mosec import Server, Worker
from onnx_classifier import classify, decode, open_session


class Inference(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.session = open_session()

    def deserialize(self, data: bytes):
        return decode(data)

    def forward(self, data: list) -> list[dict]:
        return classify(self.session, data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Inference, num=2, max_batch_size=4, max_wait_time=1)
    server.run()
