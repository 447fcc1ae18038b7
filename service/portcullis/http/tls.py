"""TLS: a certificate and its key, taken anew when their files change. Knows no HTTP and no connection.

A pair that cannot be used stops the start. Later the pair before stays until one comes that can: whoever renews the two
files writes one of them first.
"""

import logging
import ssl
from pathlib import Path

from portcullis.errors import SettingsError

logger = logging.getLogger(__name__)

FileStamp = tuple[int, int, int]
Stamp = tuple[FileStamp, FileStamp]


class Certificate:
    """What new connections are shown."""

    def __init__(self, certificate_file: Path, key_file: Path) -> None:
        self._certificate_file, self._key_file = certificate_file, key_file
        self._complained: Stamp | None = None
        self._stamp, self.context = self._look(), self._load()

    def refresh(self) -> None:
        """Take the pair that lies there now if it has changed and can be used. Reads files: not for the event loop."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        try:
            self.context, self._stamp = self._load(), stamp
            logger.info("took the renewed certificate")
        except SettingsError as error:  # tried again at the next look, but said once
            if stamp != self._complained:
                logger.error("the certificate in use stays: %s", error)
            self._complained = stamp

    def _look(self) -> Stamp:
        return _stamp(self._certificate_file), _stamp(self._key_file)

    def _load(self) -> ssl.SSLContext:
        _check_readable("tls_certificate_file", self._certificate_file)
        _check_readable("tls_key_file", self._key_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate_file, self._key_file, _no_passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise SettingsError("tls_certificate_file and tls_key_file do not belong together") from None
            raise SettingsError(
                f"tls_certificate_file and tls_key_file are not a certificate and a key in PEM ({error.reason})"
            ) from None
        except OSError as error:  # gone since, or out of file descriptors
            raise SettingsError(f"cannot read tls_certificate_file or tls_key_file: {error.strerror}") from None
        return context


def certificate_of(certificate_file: Path | None, key_file: Path | None) -> Certificate | None:
    """The pair that the settings name, if they name one."""
    return Certificate(certificate_file, key_file) if certificate_file and key_file else None


def _stamp(file: Path) -> FileStamp:
    try:
        status = file.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _check_readable(setting: str, file: Path) -> None:
    try:
        file.open("rb").close()
    except OSError as error:
        raise SettingsError(f"cannot read {setting}: {error.strerror}") from None


def _no_passphrase() -> str:
    raise SettingsError("tls_key_file is locked with a passphrase, and nobody is there to type it")
