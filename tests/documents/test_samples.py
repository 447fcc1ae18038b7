"""What documents and the API's own description show of the shipped bundles is what they answer."""

import re
import subprocess
import sys

import httpx
import pytest

from portcullis.bundle import files as bundles
from tests.documents.pages import ROOT, SHIPPED
from tests.hammer import eventually
from tests.running import RunningService

APPROXIMATE = ("probability", "score", "p_value", "threshold")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with RunningService(ROOT / "models", tmp_path_factory.mktemp("runtime")) as service:
        yield service


@pytest.fixture(scope="module")
def description(service):
    return httpx.get(f"{service.url}/openapi.json", timeout=120).raise_for_status().json()


def accepted(description):
    (shown,) = description["components"]["schemas"]["Answer"]["examples"]
    return shown


def rejected(description):
    answers = description["paths"]["/v1/predict"]["post"]["responses"]["422"]["content"]["application/json"]
    return answers["examples"]["rejected"]["value"]


@pytest.mark.slow
@pytest.mark.parametrize(("example", "picture"), [(accepted, "cat"), (rejected, "retina")])
def test_the_answers_that_the_api_describes_are_real_ones(service, description, example, picture):
    shown = example(description)
    image = (ROOT / "docs" / "examples" / f"{picture}.jpg").read_bytes()
    answer = httpx.post(f"{service.url}/v1/predict", content=image).raise_for_status().json()
    answer = {name: value for name, value in answer.items() if value is not None}  # FastAPI shows no null
    assert answer.keys() == shown.keys()
    assert [top["label"] for top in answer["top"]] == [top["label"] for top in shown["top"]]
    for field in answer.keys() - {"top", "request_id", *APPROXIMATE}:
        assert answer[field] == shown[field], field
    for field in APPROXIMATE:
        assert answer[field] == pytest.approx(shown[field], abs=0.02), field


@pytest.mark.slow
def test_the_models_that_the_api_describes_are_shipped(description):
    parameters = [
        parameter
        for methods in description["paths"].values()
        for method in methods.values()
        for parameter in method.get("parameters", [])
    ]
    named = {example for parameter in parameters if parameter["name"] == "name" for example in _examples(parameter)}
    adopted = description["components"]["schemas"]["ScanResult"]["properties"]["adopted"]["examples"]
    assert named and named <= SHIPPED.keys()
    for label in (label for example in adopted for label in example):
        name, version = label.split("/")
        assert int(version) in SHIPPED[name]


def _examples(parameter: dict) -> list[str]:
    return [*parameter.get("examples", []), *parameter["schema"].get("examples", [])]


@pytest.mark.slow
def test_a_service_has_as_many_series_as_the_capacity_page_predicts(service):
    page = " ".join((ROOT / "docs" / "operations.md").read_text().split())
    own, a_version = map(
        int, re.search(r"some (\d+) of its own, some (\d+) a model version and one a label", page).groups()
    )
    manifests = [bundles.load_bundle(ROOT / "models" / name / str(max(SHIPPED[name]))).manifest for name in SHIPPED]
    predicted = own + sum(a_version + len(manifest.labels) for manifest in manifests)
    for picture in (ROOT / "docs" / "examples").glob("*.jpg"):
        for name in SHIPPED:
            httpx.post(f"{service.url}/v1/predict?model={name}", content=picture.read_bytes()).raise_for_status()

    def counted():
        lines = httpx.get(f"{service.url}/metrics").raise_for_status().text.splitlines()
        is_whole = all(f'portcullis_drift_psi{{model="{name}"' in "\n".join(lines) for name in SHIPPED)
        return sum(not line.startswith("#") for line in lines) if is_whole else None

    assert eventually(counted) == pytest.approx(predicted, rel=0.1)
    assert f"some {predicted} for the three bundles that ship" in page


@pytest.mark.slow
def test_the_triton_sample_runs(service):
    text = (ROOT / "docs" / "models.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = program.replace("127.0.0.1:8000", service.url.removeprefix("http://"))
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "reject" in run.stdout, "a black image is none of those it knows"
