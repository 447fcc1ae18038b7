"""Replicas on a Ray cluster behind Ray Serve's front: each a whole instance, all on one database.

`application` is for Ray's own tools (`serve run`, `serve deploy`), `deploy` for `portcullis ray-serve`.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import serve
from ray.exceptions import RayActorError

from portcullis.bundle.sources.opening import is_url
from portcullis.commands.on_ray.cluster import connected
from portcullis.commands.settings_sources import load
from portcullis.errors import PortcullisError, SettingsError
from portcullis.processes.replica import CLOSE_SECONDS, Replica
from portcullis.settings import Settings

NAME = "portcullis"
HEALTH_SECONDS = 2.0
HEALTH_TIMEOUT_SECONDS = 30.0  # a machine may stand still for a while


@dataclass(frozen=True)
class Plan:
    """What is said to Ray, beside the settings of every replica."""

    replicas: int = 1
    cpus_per_replica: float = 1.0
    gpus_per_replica: float = 0.0
    own_port: int | None = None
    """First port on which the replicas of a machine listen by themselves; none: through Ray's front alone."""


@serve.ingress()
class RayReplica:
    """A replica as Ray Serve calls it."""

    async def __init__(self, plain: dict[str, Any], own_port: int | None) -> None:  # type: ignore[misc]  # Ray awaits it
        self._replica = Replica(Settings.model_validate(plain), own_port)
        await self._replica.start()

    def __serve_build_asgi_app__(self) -> Any:
        return self._replica.app

    def check_health(self) -> None:
        """After three complaints in a row Ray replaces the replica."""
        complaint = self._replica.complaint()
        if complaint is not None:
            raise RuntimeError(complaint)

    async def __del__(self) -> None:
        """Ray has sent nothing for a while, and has waited for the answers to all that it had sent."""
        await self._replica.close()


def application(arguments: Mapping[str, Any]) -> serve.Application:
    """For a Serve config: `import_path: portcullis.commands.on_ray.serving:application`, settings as its `args`."""
    known = Plan.__dataclass_fields__.keys()
    plan = Plan(**{name: _number(value) for name, value in arguments.items() if name in known})
    settings = load({name: str(value) for name, value in arguments.items() if name not in known})
    return bound(settings, plan)


def bound(settings: Settings, plan: Plan) -> serve.Application:
    """The settings, secrets included, go to every replica through Ray's own channels."""
    _check(settings, plan)
    deployment = serve.deployment(
        name=NAME,
        num_replicas=plan.replicas,
        # a replica sheds by itself, with our answer; these bound what Ray lets wait before it
        max_ongoing_requests=settings.max_connections,
        max_queued_requests=settings.max_connections,
        ray_actor_options={"num_cpus": plan.cpus_per_replica, "num_gpus": plan.gpus_per_replica},
        health_check_period_s=HEALTH_SECONDS,
        health_check_timeout_s=HEALTH_TIMEOUT_SECONDS,
        graceful_shutdown_wait_loop_s=max(settings.drain_seconds, 0.1),
        graceful_shutdown_timeout_s=settings.grace_seconds + settings.drain_seconds + CLOSE_SECONDS,
    )
    return deployment(RayReplica).bind(_everywhere(settings).with_secrets(), plan.own_port)


@contextlib.contextmanager
def deployed(settings: Settings, plan: Plan, address: str | None) -> Iterator[None]:
    """On the cluster at `address`, or one begun for it; drained and taken down after."""
    application = bound(settings, plan)
    with connected(address):
        _start_front(settings)
        try:
            _run(application)
            yield
        finally:
            serve.delete(NAME)


def _start_front(settings: Settings) -> None:
    try:
        serve.start(http_options=_front(settings))
    except (RayActorError, TimeoutError) as error:
        raise PortcullisError(
            "Ray's front did not come up in time; on a machine that is busy let Ray wait for longer with"
            f" RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S in the environment of every node: {str(error).splitlines()[0]}"
        ) from None


def _run(application: serve.Application) -> None:
    try:
        serve.run(application, name=NAME, route_prefix="/")
    except RuntimeError as error:
        raise PortcullisError(f"Ray could not start the replicas: {_causes() or error}") from None


def _causes() -> str:
    """What the replicas said, which is more than Ray's own error has."""
    found = serve.status().applications.get(NAME)
    return "\n".join(one.message for one in found.deployments.values() if one.message) if found else ""


def _everywhere(settings: Settings) -> Settings:
    """Paths as they are seen from here: a replica starts in a directory of Ray's."""
    models = settings.models if is_url(settings.models) else str(Path(settings.models).resolve())
    return settings.model_copy(update={"models": models, "runtime_directory": settings.runtime_directory.resolve()})


def _front(settings: Settings) -> dict[str, Any]:
    return {
        "host": settings.host,
        "port": settings.port,
        "keep_alive_timeout_s": round(settings.keep_alive_seconds),
        "ssl_certfile": settings.tls_certificate_file and str(settings.tls_certificate_file),
        "ssl_keyfile": settings.tls_key_file and str(settings.tls_key_file),
    }


def _check(settings: Settings, plan: Plan) -> None:
    if settings.workers or settings.instance:
        raise SettingsError("a replica is one process with a name of its own: say how many, not workers or instance")
    if settings.port == 0:
        raise SettingsError("Ray's front listens on a port that is named: port 0 is none")
    if plan.replicas > 1 and settings.database is None and settings.state is None:
        raise SettingsError(
            "several replicas must agree: set the database to a PostgreSQL that all reach, or the state to a document"
        )


def _number(value: Any) -> Any:
    return float(value) if "." in str(value) else int(value)
