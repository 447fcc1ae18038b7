"""Who made a bundle: Ed25519 signatures over its manifest, whose digests cover every other file. The only user of
cryptography, which is the extra `signing`.

`manifest.sig` has a line a signature: the public key and what it signed, both in base64. The key in a line says which
one to try; only keys that were named as trusted count.
"""

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from portcullis.bundle.files import MANIFEST_FILE, SIGNATURE_FILE, Bundle, load_bundle
from portcullis.errors import BundleError, PortcullisError, SettingsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["SIGNATURE_FILE", "Trust", "make_key", "sign"]

ALGORITHM = "ed25519"
_CONTEXT = b"portcullis bundle manifest\n"  # what these keys sign is never taken for something else
_MAX_SIGNATURE_BYTES = 65536
_KEY_BYTES = 32


class Trust:
    """Whose bundles are loaded: everybody's, or, with keys, those that one of them has signed."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = frozenset(_parse_key(key) for key in keys)
        if self._keys:
            _require()

    @property
    def is_demanded(self) -> bool:
        """Whether a signature is."""
        return bool(self._keys)

    def load(self, path: Path) -> Bundle:
        """Read and verify a bundle, its signature first."""
        return load_bundle(path, self.check)

    def check(self, path: Path, manifest: bytes) -> None:
        """Raise unless a trusted key has signed these very bytes."""
        if not self._keys:
            return
        lines = _read_lines(path)
        if not lines:
            raise BundleError(f"bundle {path.name} is not signed, and a trusted key is set")
        if not any(key in self._keys and _has_signed(key, signature, manifest) for key, signature in lines):
            raise BundleError(f"bundle {path.name} is not signed by a trusted key")


def sign(path: Path, private_key: Path) -> str:
    """Add a signature to the bundle at `path`, once its files are verified; the public key that did it."""
    bundle = load_bundle(path)
    key = _read_private(private_key)
    public = key.public_key().public_bytes_raw()
    manifest = (path / MANIFEST_FILE).read_bytes()
    kept = [line for line in _read_lines(path) if line[0] != public]
    lines = [*kept, (public, key.sign(_CONTEXT + manifest))]
    text = "".join(f"{ALGORITHM} {_text(public)} {_text(signature)}\n" for public, signature in lines)
    try:
        (path / SIGNATURE_FILE).write_text(text)
    except OSError as error:
        raise BundleError(f"cannot sign bundle {bundle.label}: {error.strerror}") from error
    return f"{ALGORITHM}:{_text(public)}"


def make_key(file: Path) -> str:
    """Write a new private key, readable by its owner only; the public key, as the setting takes it."""
    _require()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        file.touch(mode=0o600, exist_ok=False)
        file.write_bytes(text)
    except OSError as error:
        raise PortcullisError(f"cannot write {file}: {error.strerror}") from None
    return f"{ALGORITHM}:{_text(key.public_key().public_bytes_raw())}"


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise SettingsError(
            "signatures need the package cryptography; install portcullis with the extra signing"
        ) from None


def _parse_key(text: str) -> bytes:
    algorithm, _, encoded = text.partition(":")
    key = _bytes(encoded)
    if algorithm != ALGORITHM or key is None or len(key) != _KEY_BYTES:
        raise SettingsError(
            f"expected a trusted key as {ALGORITHM}:… in base64, as `portcullis models keygen` prints it"
        )
    return key


def _read_private(file: Path) -> "Ed25519PrivateKey":
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except OSError as error:
        raise PortcullisError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise PortcullisError(f"{file} is no private key in PEM without a passphrase") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PortcullisError(f"{file} is no Ed25519 key; make one with: portcullis models keygen FILE")
    return key


def _read_lines(path: Path) -> list[tuple[bytes, bytes]]:
    """Key and signature of every line that is one; what is none signs nothing."""
    try:
        with (path / SIGNATURE_FILE).open("rb") as stream:
            text = stream.read(_MAX_SIGNATURE_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BundleError(f"bundle {path.name}: cannot read {SIGNATURE_FILE}: {error.strerror}") from error
    words = [line.split() for line in text.splitlines()]
    decoded = [(_bytes(line[1]), _bytes(line[2])) for line in words if len(line) == 3 and line[0] == ALGORITHM]
    return [(key, signature) for key, signature in decoded if key is not None and signature is not None]


def _has_signed(key: bytes, signature: bytes, manifest: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _CONTEXT + manifest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
