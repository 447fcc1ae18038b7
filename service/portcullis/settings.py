"""Every setting of the service, once: type, default, meaning. Where values come from is in settings_sources.

docs/operations.md holds a table that is generated from this class.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


def _split(value: object) -> object:
    """A comma-separated list, as flags and the environment write it."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _as_texts(value: object) -> object:
    """Indices of devices may be written as numbers in a file; UUIDs may not."""
    return [str(part) for part in value] if isinstance(value, list | tuple) else value


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _auto(value: object) -> object:
    return 0 if value == "auto" else value


def _named(keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    for key in keys:
        name, _, secret = key.get_secret_value().partition(":")
        if not name or len(secret) < 8:
            raise ValueError("a key is written name:secret, with a secret of at least 8 characters")
    return keys


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Keys = Annotated[tuple[SecretStr, ...], BeforeValidator(_split), AfterValidator(_named)]
AutoCount = Annotated[int, BeforeValidator(_auto), Field(ge=0)]


class Settings(BaseSettings):
    """One frozen object; each worker gets the same. By itself it takes what it is given and looks nowhere else."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        enable_decoding=False,  # a list is written with commas everywhere, never as JSON
    )

    # -- where -------------------------------------------------------------------------------------------------------
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    models: Annotated[str, BeforeValidator(_as_text)] = "models"
    """Directory or URL (s3://, gs://, az://, https://, hf://, models:/) with bundles, <name>/<version>/; or one."""
    models_cache: Path | None = None
    """Directory for bundles that are fetched from a URL; empty: bundles/ in the runtime directory. Keep it."""
    models_cache_bytes: int = Field(20 * 1024**3, ge=1)
    """Bytes of fetched bundles at the most; those that are served stay, of the others those longest unused go."""
    models_timeout_seconds: float = Field(15.0, gt=0)
    """Time that a URL has to say which bundles it has; then what was fetched before counts."""
    max_bundle_bytes: int = Field(4 * 1024**3, ge=1)
    """Bytes of one fetched bundle at the most."""
    trusted_keys: Names = ()
    """Public keys, ed25519:…, comma-separated; bundles that none of them has signed are refused. None: all load."""
    runtime_directory: Path = Path("runtime")
    """Directory for what the workers share: metrics, score rings, the database. Keep it across restarts."""
    database: SecretStr | None = None
    """PostgreSQL that several instances share, postgresql://…; empty: SQLite in the runtime directory."""
    instance: str | None = Field(None, min_length=1, max_length=200)
    """Name of this instance, unlike any other of its fleet; empty: from the host's name and the runtime directory."""
    state: str | None = Field(None, pattern=r"^file:.+")
    """Document that says what is served, file:…: it is followed, and admin calls that would change it are refused."""

    # -- what is served ----------------------------------------------------------------------------------------------
    serve: Names = ()
    """Models to serve, comma-separated, as name or name@version to pin; empty: the newest version of every name."""
    default_model: str | None = None
    """Model that answers when a request names none; empty: that of the file `default` in models, or the first."""
    gate: str = "accept95"
    """Gate at the start: accept95, accept95:by-class, accept95+right99, right99, mmles:accept95 or a score."""
    allow_request_gate: bool = True
    """Whether a request may bring its own operating_point or threshold."""

    watch_models_seconds: float = Field(0.0, ge=0)
    """Look for newer versions in models this often, and adopt those that validate; 0: only at a start."""

    # -- processes and engine ----------------------------------------------------------------------------------------
    workers: AutoCount = 0
    """Worker processes; auto: one a core. Each has an engine on CPU; on GPU they share an engine process a device."""
    providers: Names = ("auto",)
    """Execution providers, of tensorrt, cuda, cpu: the first that starts is used. auto: cuda, then cpu."""
    allow_fallback: bool = False
    """Whether the CPU may stand in where no provider that is asked for by name starts."""
    device_ids: Annotated[Names, BeforeValidator(_as_texts)] = ()
    """GPUs to use, one engine process each, as nvidia-smi counts them or by UUID (GPU-…, MIG-…); empty: all."""
    engine_threads: int = Field(1, ge=1)
    """Threads of one engine on the CPU."""
    tensorrt_cache: Path | None = None
    """Directory for TensorRT's engines, which take minutes to build; empty: tensorrt/ in the runtime directory."""
    tensorrt_fp16: bool = False
    """Whether TensorRT may compute in 16 bits. Refused at the start where that moves the scores too far."""
    gpu_tf32: bool = False
    """Whether a GPU may round float32 to 10 bits of mantissa: faster, and not what the gate was calibrated on."""
    gpu_fp16: bool = False
    """Whether CUDA computes in 16 bits (extra fp16). Refused at the start where that moves the scores too far."""
    gpu_cuda_graphs: bool = False
    """Whether CUDA records a batch of each size once and plays it back: less time to launch, one batch at a time."""
    gpu_memory_limit_bytes: int | None = Field(None, ge=1)
    """Memory that one engine may take on its GPU, shared evenly among its batch sizes."""

    # -- batching and load -------------------------------------------------------------------------------------------
    max_batch: AutoCount = 0
    """Images in one engine run at the most; auto: 8 on CPU, 64 on GPU."""
    queue_capacity: int = Field(128, ge=1)
    """Images allowed to wait in one worker, on GPU before one device; beyond this, 503."""
    overload_wait_seconds: float = Field(0.004, gt=0)
    """While more is offered than can be served, a request must fill up the next batch or wait no longer than this."""
    deadline_seconds: float = Field(10.0, gt=0)
    """Time from the last byte of a request to its answer; then 504, and the work is dropped."""
    decode_threads: AutoCount = 0
    """Threads of one worker that decode images too large for inline_decode_bytes; auto: 1."""
    inline_decode_bytes: int = Field(65536, ge=0)
    """Larger bodies are decoded by threads beside; so are those of more than 65,536 pixels on GPU."""
    drain_seconds: float = Field(0.5, ge=0)
    """Time after SIGTERM in which requests that still arrive are answered, while /readyz says not ready."""
    grace_seconds: float = Field(20.0, gt=0)
    """Time that a worker has to finish what is queued after SIGTERM."""

    # -- limits ------------------------------------------------------------------------------------------------------
    max_body_bytes: int = Field(10 * 1024 * 1024, ge=1)
    """Bytes of one image at the most."""
    max_batch_bytes: int = Field(64 * 1024 * 1024, ge=1)
    """Bytes of one body of /v1/predict/batch, of /v2 infer or of images to calibrate on at the most."""
    max_bodies_bytes: AutoCount = 0
    """Bytes of bodies above 64 KiB that one worker holds at a time; beyond this, 503. auto: four of the largest."""
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
    predict_keys: Keys = ()
    """Keys that may predict, as name:secret, comma-separated; none: everybody may."""
    predict_keys_file: Path | None = None
    """File with one name:secret a line, added to predict_keys."""
    admin_keys: Keys = ()
    """Keys that may change the running service, as name:secret; none: the admin routes are off."""
    admin_keys_file: Path | None = None
    """File with one name:secret a line, added to admin_keys."""
    tls_certificate_file: Path | None = None
    """Certificate chain in PEM: serve over TLS; taken anew when it changes. Empty: plain HTTP."""
    tls_key_file: Path | None = None
    """Private key of that certificate in PEM, without a passphrase."""
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
    review_directory: str | None = None
    """Directory or URL (s3://, gs://, az://) for kept images; empty: runtime directory, or the database of a fleet."""
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
    def _tls_files_come_together(self) -> "Settings":
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file come together")
        return self

    @model_validator(mode="after")
    def _largest_body_fits(self) -> "Settings":
        largest = max(self.max_batch_bytes, 2 * self.max_body_bytes)  # an image as base64 takes a third more
        if 0 < self.max_bodies_bytes < largest:
            raise ValueError(f"max_bodies_bytes must be {largest} or more: max_batch_bytes, and twice max_body_bytes")
        return self

    @field_validator("review_directory")
    @classmethod
    def _images_can_be_written_there(cls, place: str | None) -> str | None:
        scheme, mark, rest = (place or "").partition("://")
        if mark and (scheme not in ("s3", "gs", "az") or "?" in rest or "@" in rest):
            raise ValueError("a directory, or a URL of s3://, gs:// or az:// without credentials")
        return place

    @classmethod
    def settings_customise_sources(  # type: ignore[override]
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, **others: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is given: a worker, or a test, must not be swayed by the environment that it was started in."""
        return (init_settings,)

    def with_secrets(self) -> dict[str, Any]:
        """Everything as plain JSON, secrets included: for a worker's private pipe only."""
        plain = self.model_dump(mode="json")
        for field in ("predict_keys", "admin_keys"):
            plain[field] = [secret.get_secret_value() for secret in getattr(self, field)]
        plain["database"] = self.database.get_secret_value() if self.database is not None else None
        return plain


def default_text(field: FieldInfo) -> str:
    """A default as a person would write it; empty where there is none."""
    if field.default in (None, ()):
        return ""
    if _auto in (getattr(mark, "func", None) for mark in field.metadata) and field.default == 0:
        return "auto"
    if isinstance(field.default, tuple):
        return ",".join(map(str, field.default))
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
