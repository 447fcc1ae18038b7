"""Bundles in MLflow's model registry: `models:/<name>` for every registered version, `models:/<name>/<version>` or
`models:/<name>@<alias>` for one. The only user of mlflow, whose client finds its server by MLFLOW_TRACKING_URI.

A registered version holds the files of one bundle. MLflow numbers versions by itself, so the number of a bundle is not
MLflow's but the one in its manifest, which is read once for each.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from portcullis.bundle.files import MANIFEST_FILE, MAX_MANIFEST_BYTES, parse_manifest, read_manifest
from portcullis.bundle.sources.listing import Entry, Listing, gather
from portcullis.bundle.sources.remote import too_large
from portcullis.errors import BundleError, SettingsError

_URL = re.compile(r"models:/(?P<name>[^/@:]+)(/(?P<version>\d+)|@(?P<alias>[^/@]+))?/?")
_READY = "READY"
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")


class MlflowRegistry:
    """One registered model."""

    def __init__(self, url: str) -> None:
        self.url = url
        match = _URL.fullmatch(url)
        if match is None:
            raise SettingsError(f"expected models:/name, models:/name/version or models:/name@alias, not {url!r}")
        self._name, self._version, self._alias = match["name"], match["version"], match["alias"]
        self._mlflow = _library()
        self._client = self._mlflow.MlflowClient()
        self._known: dict[str, tuple[str, str] | None] = {}
        """By place, name and version of the bundle there; None where there is none."""

    def look(self) -> Listing:
        found = []
        for registered in sorted(self._registered(), key=lambda version: int(version.version)):
            place = self._client.get_model_version_download_uri(self._name, registered.version)
            if place not in self._known:
                self._known[place] = self._identify(place)
            identity = self._known[place]
            if identity is not None:
                found.append((*identity, Entry(place, f"{registered.version}.{registered.creation_timestamp}")))
        return gather(found)

    def download(self, place: str, file: str, target: Path, max_bytes: int) -> int:
        sizes = {entry.path.rpartition("/")[2]: entry.file_size for entry in self._list(place, file)}
        size = sizes.get(target.name)
        if size is None:
            raise FileNotFoundError(file)
        if size > max_bytes:
            raise too_large(file, max_bytes)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetching-") as directory:
            fetched = self._mlflow.artifacts.download_artifacts(artifact_uri=f"{place}/{file}", dst_path=directory)
            if Path(fetched).stat().st_size > max_bytes:
                raise too_large(file, max_bytes)
            return Path(fetched).rename(target).stat().st_size

    def upload(self, directory: Path, name: str, version: int, files: list[str]) -> None:
        """As the artifacts of a run, which is registered once they are all there."""
        if self._version is not None or self._alias is not None:
            raise BundleError(f"push to models:/{self._name}: MLflow numbers the version itself")
        experiment = self._client.get_experiment_by_name(self._name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self._name)
        run = self._client.create_run(number, run_name=f"{name}/{version}")
        for file in files:
            folder = f"bundle/{file}".rpartition("/")[0]
            self._client.log_artifact(run.info.run_id, str(directory / file), folder)
        self._client.set_terminated(run.info.run_id)
        if not self._is_registered():
            self._client.create_registered_model(self._name)
        source = f"{run.info.artifact_uri}/bundle"
        self._client.create_model_version(
            self._name, source, run.info.run_id, tags={"portcullis.bundle": f"{name}/{version}"}
        )

    # -- what is registered ------------------------------------------------------------------------------------------

    def _registered(self) -> list[Any]:
        if self._alias is not None:
            return [self._client.get_model_version_by_alias(self._name, self._alias)]
        if self._version is not None:
            return [self._client.get_model_version(self._name, self._version)]
        versions = self._client.search_model_versions(f"name='{self._name}'")
        return [version for version in versions if version.status == _READY]

    def _is_registered(self) -> bool:
        try:
            self._client.get_registered_model(self._name)
        except self._mlflow.MlflowException as error:
            if error.error_code in _ABSENT:
                return False
            raise
        return True

    def _identify(self, place: str) -> tuple[str, str] | None:
        """Name and version by the manifest; a registered model that is no bundle of ours is passed over."""
        with tempfile.TemporaryDirectory() as directory:
            try:
                self.download(place, MANIFEST_FILE, Path(directory, MANIFEST_FILE), MAX_MANIFEST_BYTES)
                manifest = parse_manifest(read_manifest(Path(directory)), place)
            except (FileNotFoundError, BundleError):
                return None
        return manifest.name, str(manifest.version)

    def _list(self, place: str, file: str) -> list[Any]:
        folder = file.rpartition("/")[0]
        return list(self._mlflow.artifacts.list_artifacts(artifact_uri=f"{place}/{folder}".rstrip("/")))


def _library() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise SettingsError(
            f"bundles at models:/ need more packages; install portcullis with the extra mlflow ({error})"
        ) from None
    return mlflow
