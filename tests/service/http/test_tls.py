"""Served over TLS by the workers themselves: a real service, real certificates, real clients."""

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import pytest

from portcullis.errors import SettingsError
from portcullis.http.tls import Certificate
from tests.deploy.dockerfile import stages
from tests.hammer import PATIENCE_SECONDS, eventually
from tests.running import ADMIN_KEY, RunningService
from tests.service.pictures import RED

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl (Debian) is missing")


def make_pair(directory, name, *flags):
    """A certificate for this machine that signs itself, and its key."""
    directory.mkdir(exist_ok=True)
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-out", certificate, "-keyout", key]
    subprocess.run([*command, *names, *files, *(flags or ["-nodes"])], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    """A service and the two files that it reads."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = make_pair(directory / "pair", "first")
    flags = ["--tls-certificate-file", str(certificate), "--tls-key-file", str(key)]
    flags += ["--header-timeout-seconds", "2"]
    with RunningService(models, directory / "runtime", *flags) as service:
        yield service, certificate, key


def trusting(certificate):
    return ssl.create_default_context(cafile=certificate)


def shown_certificates(url, count=8):
    """What fresh connections, and so both workers, are shown."""
    address = urlsplit(url)
    return {ssl.get_server_certificate((address.hostname, address.port)) for _ in range(count)}


def test_a_client_that_trusts_the_certificate_is_answered(served):
    service, certificate, _ = served
    assert service.url.startswith("https://")
    with httpx.Client(base_url=service.url, verify=trusting(certificate), timeout=30) as client:
        assert client.post("/v1/predict", content=RED).json()["label"] == "red"
        assert client.post("/v1/predict/batch", files=[("f", ("a", RED))]).json()["results"][0]["answer"]
        assert client.get("/v1/models").status_code == 200
        change = {"operating_point": "accept95"}
        assert client.put("/v1/models/tiny/gate", json=change).status_code == 401
        admin = {"authorization": f"Bearer {ADMIN_KEY}"}
        assert client.put("/v1/models/tiny/gate", json=change, headers=admin).status_code == 200
        too_large = client.post("/v1/predict", content=b"x" * 11_000_000)
        assert (too_large.status_code, too_large.json()["error"]["code"]) == (413, "payload_too_large")


def test_one_that_does_not_trust_it_sends_nothing(served):
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.post(f"{served[0].url}/v1/predict", content=RED)


def test_our_own_client_is_told_whom_to_trust_as_any_other(served, tmp_path):
    service, certificate, _ = served
    (tmp_path / "red.png").write_bytes(RED)
    command = [sys.executable, "-m", "portcullis", "predict", "red.png", "--url", service.url]
    environment = os.environ | {"SSL_CERT_FILE": str(certificate)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert "red" in done.stdout


def test_the_newest_version_of_the_protocol_is_spoken_and_none_that_is_broken(served):
    service, certificate, key = served
    address = urlsplit(service.url)
    with (
        socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS) as connection,
        trusting(certificate).wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        assert secured.version() == "TLSv1.3"
    assert Certificate(certificate, key).context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"], ids=["silent", "plain HTTP"])
def test_who_does_not_shake_hands_is_let_go(served, sent):
    address = urlsplit(served[0].url)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in b"".join(iter(lambda: connection.recv(4096), b""))  # until it is closed


def test_a_renewed_pair_is_taken_without_a_restart_and_a_broken_one_is_not(served, tmp_path):
    service, certificate, key = served
    first = certificate.read_text()
    assert shown_certificates(service.url) == {first}
    with httpx.Client(base_url=service.url, verify=trusting(certificate), timeout=30) as client:
        assert client.get("/readyz").status_code == 200
        new_certificate, new_key = make_pair(tmp_path / "new", "second")
        certificate.write_text(new_certificate.read_text())  # for now with the key of the old one
        eventually(lambda: sum("do not belong together" in line for line in service.lines) == len(service.workers()))
        assert shown_certificates(service.url) == {first}
        key.write_text(new_key.read_text())
        eventually(lambda: shown_certificates(service.url) == {new_certificate.read_text()})
        assert client.get("/readyz").status_code == 200  # on a connection from before
    with httpx.Client(base_url=service.url, verify=trusting(certificate), timeout=30) as client:
        assert client.post("/v1/predict", content=RED).status_code == 200


def test_stopping_waits_for_no_idle_connection(models, tmp_path):
    certificate, key = make_pair(tmp_path, "short")
    flags = ["--tls-certificate-file", str(certificate), "--tls-key-file", str(key)]
    with RunningService(models, tmp_path / "runtime", *flags) as service:
        with httpx.Client(base_url=service.url, verify=trusting(certificate), timeout=30) as client:
            assert client.get("/readyz").status_code == 200
            assert service.stop() == 0
        assert not [line for line in service.lines if "Traceback" in line]


def test_the_health_check_of_the_image_shakes_hands(served):
    service, certificate, _ = served
    (check,) = {text.partition("CMD ")[2] for stage in stages().values() for text in stage.all("HEALTHCHECK")}
    environment = {
        "PORTCULLIS_PORT": str(urlsplit(service.url).port),
        "PORTCULLIS_TLS_CERTIFICATE_FILE": str(certificate),
    }
    subprocess.run([sys.executable, *json.loads(check)[1:]], env=environment, check=True, timeout=PATIENCE_SECONDS)


def _break(directory, kind):
    certificate, key = make_pair(directory, "broken")
    if kind == "missing":
        key.unlink()
    elif kind == "no certificate":
        certificate.write_text("hello")
    elif kind == "of two":
        key = make_pair(directory / "other", "other")[1]
    elif kind == "locked":
        certificate, key = make_pair(directory / "locked", "locked", "-passout", "pass:secret")
    return certificate, key


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("missing", "cannot read tls_key_file: No such file or directory"),
        ("no certificate", "tls_certificate_file and tls_key_file are not a certificate and a key in PEM"),
        ("of two", "tls_certificate_file and tls_key_file do not belong together"),
        ("locked", "tls_key_file is locked with a passphrase"),
    ],
)
def test_a_pair_that_cannot_be_used_is_refused_by_its_reason(tmp_path, kind, named):
    with pytest.raises(SettingsError, match=named):
        Certificate(*_break(tmp_path, kind))


def test_a_bad_pair_stops_the_start_with_one_clear_line(models, tmp_path):
    certificate, key = _break(tmp_path, "of two")
    for flags, named in [
        (["--tls-certificate-file", certificate, "--tls-key-file", key], "do not belong together"),
        (["--tls-key-file", key], "tls_certificate_file and tls_key_file come together"),
    ]:
        with pytest.raises(RuntimeError, match=named) as caught:
            RunningService(models, tmp_path / "runtime", *map(str, flags))
        assert "Traceback" not in str(caught.value)
