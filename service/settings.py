"""Every setting of the service, once: type, default, meaning. The only reader of flags, environment and file.

Precedence: flags, then `PORTCULLIS_*` variables, then the TOML file, then the defaults here. docs/operations.md holds
a table that is generated from this class.
"""

import argparse
import difflib
import os
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo

from service.errors import SettingsError

PREFIX = "PORTCULLIS_"
CONFIG = "config"
FOREIGN = frozenset({"url", "api_key", "data"})
"""Variables with our prefix that are not the server's: two of the client, one of the training line."""


def _split(value: object) -> object:
    """A comma-separated list, as flags and the environment write it."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _auto(value: object) -> object:
    return 0 if value == "auto" else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Secrets = Annotated[tuple[SecretStr, ...], BeforeValidator(_split)]
AutoCount = Annotated[int, BeforeValidator(_auto), Field(ge=0)]


class Settings(BaseModel):
    """One frozen object; each worker gets the same."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    # -- where -------------------------------------------------------------------------------------------------------
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    models: Path = Path("models")
    """Directory with the bundles, <name>/<version>/."""
    runtime_directory: Path = Path("runtime")
    """Directory for what the workers share: metrics, score rings, desired state, audit log. Keep it across restarts."""

    # -- what is served ----------------------------------------------------------------------------------------------
    serve: Names = ()
    """Models to serve, comma-separated, as name or name@version to pin; empty: the newest version of every name."""
    default_model: str | None = None
    """Model that answers when a request names none; empty: the first of those served, by name."""
    gate: str = "accept95"
    """Gate at the start: an operating point (accept95, any accept<percent>) or an absolute score threshold."""
    allow_request_gate: bool = True
    """Whether a request may bring its own operating_point or threshold."""

    watch_models_seconds: float = Field(0.0, ge=0)
    """Look for newer versions in the models directory this often, and adopt those that validate; 0: only at a start."""

    # -- processes and engine ----------------------------------------------------------------------------------------
    workers: AutoCount = 0
    """Worker processes; auto: one a core on CPU, one a device on GPU."""
    providers: Names = ("auto",)
    """Execution providers in order of preference: auto, or any of tensorrt, cuda, cpu."""
    allow_fallback: bool = False
    """Whether a provider that is asked for by name may be missing."""
    device_ids: Annotated[tuple[int, ...], BeforeValidator(_split)] = ()
    """GPUs to use, one worker each in turn; empty: all."""
    engine_threads: int = Field(1, ge=1)
    """Threads of one engine on the CPU."""
    tensorrt_cache: Path | None = None
    """Directory for TensorRT's engines, so that a restart need not build them again."""
    gpu_memory_limit_bytes: int | None = Field(None, ge=1)
    """Memory that one engine may take on its GPU."""

    # -- batching and load -------------------------------------------------------------------------------------------
    max_batch: AutoCount = 0
    """Images in one engine run at the most; auto: 8 on CPU, 64 on GPU."""
    queue_capacity: int = Field(128, ge=1)
    """Images allowed to wait in one worker; beyond this, 503."""
    overload_wait_seconds: float = Field(0.004, gt=0)
    """While more is offered than can be served, a request is admitted only if it waits no longer than this."""
    deadline_seconds: float = Field(10.0, gt=0)
    """Time from the last byte of a request to its answer; then 504, and the work is dropped."""
    decode_threads: AutoCount = 0
    """Threads that decode images too large to decode on the engine's own thread; auto: 1 on CPU, 4 on GPU."""
    inline_decode_bytes: int | None = Field(None, ge=0)
    """Bodies up to this size are decoded on the engine's own thread; empty: 65536 on CPU, 0 on GPU."""
    drain_seconds: float = Field(0.5, ge=0)
    """Time after SIGTERM in which requests that still arrive are answered, while /readyz says not ready."""
    grace_seconds: float = Field(20.0, gt=0)
    """Time that a worker has to finish what is queued after SIGTERM."""

    # -- limits ------------------------------------------------------------------------------------------------------
    max_body_bytes: int = Field(10 * 1024 * 1024, ge=1)
    """Bytes of one image at the most."""
    max_batch_bytes: int = Field(64 * 1024 * 1024, ge=1)
    """Bytes of one body of /v1/predict/batch at the most."""
    max_batch_files: int = Field(64, ge=1)
    """Files in one batch request at the most."""
    max_pixels: int = Field(50_000_000, ge=1)
    """Pixels of one image at the most, read from its header before it is decoded."""
    max_connections: int = Field(1000, ge=1)
    """Connections that one worker holds at the most; further ones wait in the kernel's queue."""
    header_timeout_seconds: float = Field(10.0, gt=0)
    """Time that a client has to send the headers of a request."""
    body_timeout_seconds: float = Field(30.0, gt=0)
    """Time that a client has to send the body of a request."""
    keep_alive_seconds: float = Field(75.0, gt=0)
    """Time that an idle connection is kept."""

    # -- access ------------------------------------------------------------------------------------------------------
    predict_keys: Secrets = ()
    """Keys that may predict, as name:secret, comma-separated; none: everybody may."""
    predict_keys_file: Path | None = None
    """File with one name:secret a line, added to predict_keys."""
    admin_keys: Secrets = ()
    """Keys that may change the running service, as name:secret; none: the admin routes are off."""
    admin_keys_file: Path | None = None
    """File with one name:secret a line, added to admin_keys."""
    cors_origins: Names = ()
    """Origins whose pages may call the API, comma-separated; none: CORS is off."""

    # -- drift -------------------------------------------------------------------------------------------------------
    drift_window: int = Field(2000, ge=50)
    """Images in the sliding window that PSI, KS and the ratios are computed over."""
    drift_alarm_images: int = Field(1_000_000, ge=1000)
    """Images that pass between two false drift alarms, on average at the least."""

    # -- review queue ------------------------------------------------------------------------------------------------
    review_enabled: bool = False
    """Whether rejected images and a sample of accepted ones are kept for a person to look at."""
    review_accept_sample: float = Field(0.01, ge=0, le=1)
    """Share of accepted images that is kept too."""
    review_directory: Path | None = None
    """Directory for the kept images; empty: review/ in the runtime directory."""
    review_max_items: int = Field(10_000, ge=1)
    """Images kept at the most; the oldest go first, whatever their state."""
    review_max_bytes: int = Field(1024**3, ge=1)
    """Bytes of kept images at the most."""
    review_max_age_seconds: float = Field(30 * 86_400, gt=0)
    """Age at which a kept image goes, whatever its state."""

    # -- logs --------------------------------------------------------------------------------------------------------
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe event that is logged."""
    log_format: Literal["json", "text"] = "json"
    """Shape of a log line."""
    log_requests_per_second: float = Field(100.0, ge=0)
    """Request lines a second and worker at the most; those left out are counted in the next line. 0: none."""
    otlp_endpoint: str | None = None
    """Address of an OpenTelemetry collector (OTLP over HTTP), such as http://collector:4318; empty: no traces."""
    trace_sample: float = Field(0.1, ge=0, le=1)
    """Share of requests that are traced where their caller has not decided."""

    @model_validator(mode="after")
    def _keys_have_names(self) -> "Settings":
        for secret in (*self.predict_keys, *self.admin_keys):
            name, _, value = secret.get_secret_value().partition(":")
            if not name or len(value) < 8:
                raise ValueError("a key is written name:secret, with a secret of at least 8 characters")
        return self

    def with_secrets(self) -> dict[str, Any]:
        """Everything as plain JSON, secrets included: for a worker's private pipe only."""
        plain = self.model_dump(mode="json")
        for field in ("predict_keys", "admin_keys"):
            plain[field] = [secret.get_secret_value() for secret in getattr(self, field)]
        return plain


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag a setting; values stay text here and are checked with those of the other sources."""
    parser.add_argument("--config", metavar="FILE", help="TOML file with settings")
    for name, field in Settings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        default = "" if field.default in (None, ()) else f" (default: {_shown(field.default)})"
        text = (field.description or "").replace("%", "%%") + default
        if field.annotation is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag, metavar=_metavar(field), default=None, help=text)


def load(flags: Mapping[str, object], environment: Mapping[str, str] | None = None) -> Settings:
    """Merge the sources and check them; whatever is unknown or wrong is named with where it came from."""
    environment = os.environ if environment is None else environment
    given = {name: value for name, value in flags.items() if value is not None and name != CONFIG}
    variables = _from_environment(environment)
    file = flags.get(CONFIG) or variables.pop(CONFIG, None)
    sources = {"file": _from_file(Path(str(file))) if file else {}, "environment": variables, "flag": given}
    merged: dict[str, object] = {}
    origin: dict[str, str] = {}
    for source, values in sources.items():
        for name in values:
            if name not in Settings.model_fields:
                raise SettingsError(f"unknown setting {_spelled(name, source)} ({source}){_nearest(name)}")
        merged |= values
        origin |= dict.fromkeys(values, source)
    try:
        return _with_key_files(Settings.model_validate(merged))
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(problem, origin) for problem in error.errors())) from None


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker: ours less our own variables, which it gets through its pipe, plus `extra`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)} | dict(extra)


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    ours = {name.removeprefix(PREFIX).lower(): value for name, value in environment.items() if name.startswith(PREFIX)}
    return {name: value for name, value in ours.items() if name not in FOREIGN}


def client_defaults() -> tuple[str | None, str | None]:
    """Address and key for the commands that talk to a running service: PORTCULLIS_URL, PORTCULLIS_API_KEY."""
    return os.environ.get(f"{PREFIX}URL"), os.environ.get(f"{PREFIX}API_KEY")


def _from_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None


def _with_key_files(settings: Settings) -> Settings:
    merged = settings.with_secrets()
    for field in ("predict_keys", "admin_keys"):
        path = getattr(settings, f"{field}_file")
        if path is None:
            continue
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise SettingsError(f"cannot read {field}_file: {error.strerror}") from None
        merged[field] += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        merged[f"{field}_file"] = None
    return Settings.model_validate(merged)


def _problem(problem: Any, origin: Mapping[str, str]) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else "settings"
    source = origin.get(name, "default")
    got = "" if "key" in name or not problem["loc"] else f", got {problem['input']!r}"
    return f"setting {_spelled(name, source)} ({source}): {problem['msg'].removeprefix('Value error, ')}{got}"


def _spelled(name: str, source: str) -> str:
    if source == "flag":
        return "--" + name.replace("_", "-")
    return PREFIX + name.upper() if source == "environment" else name


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _metavar(field: FieldInfo) -> str:
    kinds = [field.annotation]
    while get_origin(kinds[0]) in (Union, types.UnionType, Annotated, tuple):
        kinds = [get_args(kinds[0])[0]]
    if get_origin(kinds[0]) is Literal:
        return "|".join(map(str, get_args(kinds[0])))
    return {int: "N", float: "X", Path: "PATH"}.get(kinds[0], "TEXT")  # type: ignore[arg-type]


def _shown(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return "auto" if value == 0 else str(value)
