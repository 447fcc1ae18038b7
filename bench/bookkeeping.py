"""What gate, metrics, score ring and request log cost of one request, by their own functions in their own process."""

import asyncio
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUM_CALLS = 20_000


def seconds_a_request(bundle: Path) -> float:
    """The median of five; in a new process, since metrics go to files only where that is said before the import."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": directory}
        command = [sys.executable, "-m", "bench.bookkeeping", str(bundle), directory]
        output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return sorted(map(float, output.split()))[2]


async def _measure(bundle_directory: Path, directory: Path) -> None:
    import numpy as np

    from portcullis.answering.admission import Limits
    from portcullis.answering.engine_here import EngineHere
    from portcullis.answering.job import Job
    from portcullis.answering.pipeline import Pipeline
    from portcullis.answering.prediction import FullRow
    from portcullis.answering.preparing import PreparingPool
    from portcullis.answering.served_engine import Load
    from portcullis.bundle.engine import Engine
    from portcullis.bundle.files import load_bundle
    from portcullis.drift.rings import RingWriter
    from portcullis.telemetry.files import use_slot
    from portcullis.telemetry.instruments import Metrics
    from portcullis.telemetry.logs import RequestLog

    use_slot(0)
    bundle, metrics = load_bundle(bundle_directory), Metrics()
    load = Load(Limits(1, 1, 1.0), 10_000, 10_000)
    pipeline = Pipeline(
        bundle, EngineHere(Engine(bundle)), load, PreparingPool(1), metrics, RingWriter(directory / "scores-0.ring")
    )
    chosen = pipeline.promises.gate("accept95")
    log, answered = RequestLog(100, "json", io.StringIO()), metrics.http_requests.labels("/v1/predict", "POST", "200")
    score = bundle.manifest.calibration.scores[100]
    row = FullRow(3, 0.1, score, [score] * len(bundle.manifest.part_names), np.full(10, 0.1, np.float32))
    job = Job(b"", 0.0, lambda: False, asyncio.get_running_loop().create_future(), 0.0)
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(NUM_CALLS):
            prediction = pipeline._decide(row, job, chosen, 3)
            pipeline._record(b"", prediction, 0.001)
            answered.inc()
            if log.is_due():
                log.write({"event": "request", "status": 200, "seconds": 0.001})
        print((time.perf_counter() - started) / NUM_CALLS)
    await pipeline.close()


if __name__ == "__main__":
    asyncio.run(_measure(Path(sys.argv[1]), Path(sys.argv[2])))
