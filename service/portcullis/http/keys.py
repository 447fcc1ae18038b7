"""API keys: who may predict, who may change the service. Knows no HTTP."""

import hashlib
import hmac
from collections.abc import Iterable

from pydantic import SecretStr

from portcullis.errors import Forbidden, Unauthorized


class Keys:
    """Named secrets, several at once so that they can be rotated; compared in constant time."""

    def __init__(self, secrets: Iterable[SecretStr]) -> None:
        pairs = (secret.get_secret_value().partition(":") for secret in secrets)
        self._digests = [(name, _digest(value)) for name, _, value in pairs]

    @property
    def is_empty(self) -> bool:
        return not self._digests

    def name_of(self, secret: str) -> str | None:
        """The name of a key; every key is compared, so that the time tells nothing."""
        given = _digest(secret)
        found = None
        for name, digest in self._digests:
            if hmac.compare_digest(given, digest):
                found = name
        return found


class Access:
    """Which keys open which doors. An admin key may also predict."""

    def __init__(self, predict: Keys, admin: Keys) -> None:
        self._predict, self._admin = predict, admin

    @property
    def is_open(self) -> bool:
        """Whether everybody may predict."""
        return self._predict.is_empty

    def check_predict(self, secret: str | None) -> None:
        if self._predict.is_empty:
            return
        if secret is None:
            raise Unauthorized("this service wants a key: Authorization: Bearer <key> or X-API-Key: <key>")
        names = (self._predict.name_of(secret), self._admin.name_of(secret))
        if names == (None, None):
            raise Forbidden("the key is not one of those that may predict")

    def check_admin(self, secret: str | None) -> str:
        """The name of the admin key, for the audit log."""
        if self._admin.is_empty:
            raise Forbidden("admin routes are off: the service was started without an admin key")
        if secret is None:
            raise Unauthorized("this route wants an admin key: Authorization: Bearer <key> or X-API-Key: <key>")
        name = self._admin.name_of(secret)
        if name is None:
            raise Forbidden("the key is not an admin key")
        return name


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
