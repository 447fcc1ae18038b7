"""On a real Ray cluster of two nodes replicas on one real PostgreSQL behave as one service, and rows are as from one
machine.
"""

import contextlib
import csv
import os
import signal
import subprocess
import sys

import httpx
import pytest

from portcullis.__main__ import main
from portcullis.commands.scoring.by_bundle import BATCH_IMAGES
from portcullis.commands.scoring.task import BLOCK_IMAGES
from tests import ray_cluster, sabotage, tiny
from tests.hammer import eventually
from tests.running import RunningService
from tests.sabotage import ADMIN
from tests.service.pictures import BROKEN, RED, encode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ray_cluster.lack() is not None, reason=str(ray_cluster.lack())),
]
REPLICAS = 2
REPLICA = "ServeReplica"
REPLACED_SECONDS = 150.0  # only a failure takes that long; a process is started anew, by Ray, on a busy machine


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A file that says whose engine breaks, and what a process needs for that."""
    return sabotage.breakable_engine(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def nodes(broken):
    with ray_cluster.cluster(num_nodes=2, num_cpus=3, **broken[1]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def replicas(models, nodes, cluster, tmp_path_factory):
    """The service, and the address of each replica's own port."""
    port = ray_cluster.free_ports(1 + REPLICAS)
    flags = ["--workers", "0", "--port", str(port), "--own-port", str(port + 1), "--replicas", str(REPLICAS)]
    flags += ["--cpus-per-replica", "2"]  # of three: one on each node
    environment = {"PORTCULLIS_DATABASE": cluster.new_database(), "RAY_AUTH_MODE": "disabled"}
    runtime = tmp_path_factory.mktemp("replicas")
    with RunningService(
        models, runtime, *flags, "--address", nodes.address, environment=environment, name="ray-serve"
    ) as service:
        yield service, [f"http://127.0.0.1:{port + 1 + number}" for number in range(REPLICAS)]


def answer_of(method, url, **options):
    """The first answer of a replica: while none is there, Ray's front answers by itself, or nobody does."""

    def answer():
        with contextlib.suppress(httpx.TransportError):
            found = httpx.request(method, url, **options)
            return found if found.headers["content-type"].startswith("application/json") else None
        return None

    return eventually(answer)


def put_gate(url, point):
    return answer_of("PUT", f"{url}/v1/models/tiny/gate", json={"operating_point": point}, headers=ADMIN)


def gate_of(url):
    return answer_of("GET", f"{url}/v1/models/tiny/gate").json()["operating_point"]


def predict(url, content):
    return answer_of("POST", f"{url}/v1/predict", content=content)


def is_ready(url):
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_change_at_one_replica_is_in_force_at_the_one_on_the_other_node(replicas, nodes):
    service, (first, second) = replicas
    assert eventually(lambda: len(set(nodes.actors(REPLICA).values())) == REPLICAS)
    for url, other, point in (
        (first, second, "accept80"),
        (second, first, "accept90"),
        (service.url, first, "accept95"),
    ):
        eventually(lambda u=url, p=point: put_gate(u, p).status_code == 200)
        assert {gate_of(first), gate_of(second), gate_of(service.url), gate_of(other)} == {point}


def test_the_front_of_ray_answers_as_the_replicas_do(replicas):
    service, (first, second) = replicas
    answers = [predict(url, RED).json() for url in (service.url, first, second)]
    for answer in answers:
        del answer["request_id"]
    assert answers[0] == answers[1] == answers[2] and answers[0]["verdict"] == "accept"
    refused = predict(service.url, b"no image")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_image")


def test_a_replica_whose_engine_breaks_is_replaced_and_finds_the_state_of_the_others(replicas, nodes, broken):
    service, urls = replicas
    eventually(lambda: put_gate(service.url, "accept80").status_code == 200)
    victim = min(eventually(lambda: nodes.actors(REPLICA)))
    broken[0].write_text(f"fail {victim}")

    def is_replaced():
        for url in urls:
            with contextlib.suppress(httpx.TransportError):  # the one that leaves listens no more
                httpx.post(f"{url}/v1/predict", content=RED)
        return victim not in (now := nodes.actors(REPLICA)) and len(now) == REPLICAS

    eventually(is_replaced, REPLACED_SECONDS)
    for url in urls:
        eventually(lambda u=url: is_ready(u))
        assert (predict(url, RED).status_code, gate_of(url)) == (200, "accept80")


def test_a_replica_that_is_killed_comes_back_in_its_place(replicas, nodes):
    _, urls = replicas
    victim = min(eventually(lambda: nodes.actors(REPLICA)))
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in (now := nodes.actors(REPLICA)) and len(now) == REPLICAS, REPLACED_SECONDS)
    for url in urls:
        eventually(lambda u=url: is_ready(u))


def test_several_replicas_without_a_database_are_refused(models, tmp_path):
    with pytest.raises(RuntimeError, match="several replicas must agree"):
        RunningService(models, tmp_path, "--workers", "0", "--port", "8000", "--replicas", "2", name="ray-serve")


# -- offline ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three blocks of images, with broken files among them."""
    folder = tmp_path_factory.mktemp("pictures")
    images, _ = tiny.familiar(2 * BLOCK_IMAGES + BATCH_IMAGES + 3, seed=8)
    for number, image in enumerate(images):
        (folder / f"{number:04}.png").write_bytes(encode(image))
    (folder / "0003-broken.png").write_bytes(BROKEN)
    (folder / "0300-empty.png").write_bytes(b"")
    return folder


def score(source, out, bundle, *flags):
    return main(["score", str(source), "--out", str(out), "--bundle", str(bundle.path), *flags])


def on_ray(source, out, bundle, nodes):
    """As a person would: Ray ends with the process that began with it."""
    command = [sys.executable, "-m", "portcullis", "score", str(source), "--out", str(out)]
    command += ["--bundle", str(bundle.path), "--on", "ray", "--address", nodes.address]
    done = subprocess.run(
        command, env={**os.environ, "RAY_AUTH_MODE": "disabled"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_an_address_that_is_none_is_said_in_one_line(folder, bundle, tmp_path, capsys):
    assert score(folder, tmp_path / "x.csv", bundle, "--on", "ray", "--address", "nonsense") != 0
    assert "no Ray cluster at nonsense" in capsys.readouterr().err


def rows_of(out):
    with out.open(newline="") as stream:
        return sorted(csv.reader(stream))


def test_a_cluster_gives_the_rows_of_one_machine(folder, bundle, nodes, tmp_path, capsys):
    assert score(folder, tmp_path / "cores.csv", bundle) == 0
    here = capsys.readouterr().out.splitlines()[-1]
    there = on_ray(folder, tmp_path / "ray.csv", bundle, nodes)
    assert there.split(": ", 1)[1] == here.split(": ", 1)[1] and here.endswith(" 2 broken")
    rows = rows_of(tmp_path / "cores.csv")
    assert rows_of(tmp_path / "ray.csv") == rows
    assert len(rows) == 1 + 2 * BLOCK_IMAGES + BATCH_IMAGES + 3 + 2


def test_a_cluster_goes_on_where_one_machine_stopped(folder, bundle, nodes, tmp_path):
    """Of a URL, and into Parquet."""
    parquet = pytest.importorskip("pyarrow.parquet")
    whole, out = tmp_path / "whole.csv", tmp_path / "part.parquet"
    assert score(folder, whole, bundle) == 0
    begun = tmp_path / "part.parquet.partial.csv"
    begun.write_bytes(whole.read_bytes()[:40_000])  # as a stop at any byte leaves it
    said = on_ray(folder.as_uri(), out, bundle, nodes)
    assert "had their row already" in said and not begun.exists()
    rows = parquet.read_table(out).to_pylist()
    assert sorted(row["file"] for row in rows) == sorted(row[0] for row in rows_of(whole) if row[0] != "file")
    scores = {row[0]: row[6] for row in rows_of(whole)}
    assert all(row["score"] == pytest.approx(float(scores[row["file"]]), abs=1e-5) for row in rows if not row["error"])
