"""Services with settings of their own, for tests that change what is served or look at what is kept."""

from collections.abc import Iterator

import pytest

from tests import tiny
from tests.running import RunningService

PREDICT_KEY = "test-predict-secret"


@pytest.fixture(scope="session")
def reviewed_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Two versions of the tiny bundle with keys and the review queue on; tests may change it, and put it back."""
    models = tmp_path_factory.mktemp("reviewed-models")
    tiny.write(models, version=1)
    tiny.write(models, version=2, sharpness=1.1)
    flags = ["--serve", "tiny@1", "--predict-keys", f"caller:{PREDICT_KEY}", "--review-enabled"]
    with RunningService(models, tmp_path_factory.mktemp("reviewed"), *flags, "--review-accept-sample", "0") as service:
        yield service
