"""Drift in a third of the traffic of a real fleet, for `python -m bench.fleet`: what its evidence makes of it."""

import http.client
import random
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import numpy as np
from numpy.typing import NDArray

from bench.fault_figures import Figures
from bench.fleet_trials import put_version
from tests import tiny
from tests.hammer import eventually
from tests.real_fleet import RealFleet
from tests.service.pictures import encode

THREADS = 3
SHARE = 1 / 3
PATIENCE_SECONDS = 240.0
NUM_IMAGES = 3000


class Traffic:
    """Images through the balancer for as long as the `with` block lasts; a share of them drifted, once that is said."""

    def __init__(self, url: str, drifted: NDArray[np.uint8]) -> None:
        self._address = urlsplit(url).netloc
        self._familiar = [encode(image) for image in tiny.familiar(NUM_IMAGES, seed=7)[0]]
        self._drifted = [encode(image) for image in drifted]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(THREADS)]
        self.is_drifting = False
        self.num_sent = 0

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, seed: int) -> None:
        draw, connection = random.Random(seed), http.client.HTTPConnection(self._address, timeout=60)
        while not self._over.is_set():
            is_drifted = self.is_drifting and draw.random() < SHARE
            body = draw.choice(self._drifted if is_drifted else self._familiar)
            connection.request("POST", "/v1/predict", body, {"content-type": "image/png"})
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
            self.num_sent += 1
        connection.close()


def strangers_in_a_third(fleet: RealFleet, num_familiar: int) -> Figures:
    """A third of the images are strange (out-of-distribution) from some moment on: noise."""
    noise = np.random.default_rng(5).integers(0, 256, (300, tiny.SIZE, tiny.SIZE, 3), dtype=np.uint8)
    return _drifted(fleet, num_familiar, noise)


def dimmer_in_a_third(fleet: RealFleet, num_familiar: int) -> Figures:
    """A third of the images are darker by three tenths from some moment on, as under a lamp that fades."""
    images, _ = tiny.familiar(1000, seed=8)
    return _drifted(fleet, num_familiar, (images * 0.7).astype(np.uint8))


def _drifted(fleet: RealFleet, num_familiar: int, drifted: NDArray[np.uint8]) -> Figures:
    _begin_anew(fleet)
    with Traffic(fleet.url, drifted) as traffic:
        before = _wait_for(fleet, lambda seen: seen["num_images_since_reset"] >= num_familiar)
        assert not before["alarm"], before
        traffic.is_drifting, sent, started = True, traffic.num_sent, time.monotonic()
        after = _wait_for(fleet, lambda seen: seen["alarm"])
        seconds, sent = time.monotonic() - started, traffic.num_sent - sent
    return {
        "images before, all familiar": before["num_images_since_reset"],
        "log10 of the evidence then": round(before["evidence_log10"], 2),
        "images from the first drifted one to the fleet's alarm": sent,
        "seconds": round(seconds, 1),
        "images a second": round(sent / seconds),
        "instances whose own evidence had raised an alarm by then": sum(one["alarm"] for one in after["instances"]),
        "of": len(after["instances"]),
    }


def _begin_anew(fleet: RealFleet) -> None:
    """Another version has evidence of its own; the one before it had traffic of every kind."""
    now = httpx.get(f"{fleet.url}/v1/models/tiny", timeout=30).json()["default_version"]
    eventually(lambda: put_version(fleet.url, 3 - now).status_code == 200)


def _wait_for(fleet: RealFleet, is_so: Callable[[dict], bool]) -> dict:
    """The fleet's part of what is known of drift, once something holds of it."""

    def look() -> dict | None:
        seen = httpx.get(f"{fleet.url}/v1/models/tiny/drift", timeout=30).json()["fleet"]
        return seen if is_so(seen) else None

    return eventually(look, PATIENCE_SECONDS)
