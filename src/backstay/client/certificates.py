"""Certificates: the trusted authorities, and the meaning of TLS errors for users."""

import os
import ssl

import httpx2

from backstay.config import is_loopback
from backstay.errors import ConfigError

_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def trusted(base: httpx2.URL) -> ssl.SSLContext | bool:
    """The authorities that sign certificates of this server: those of the environment, or else of the system.

    Raises:
        ConfigError: The environment names a file that has no certificates.
    """
    if base.scheme == "http" and is_loopback(base.host):
        return False  # Nothing is verified, and loading the authorities takes longer than most commands.
    try:
        return httpx2.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        named = next((name for name in _AUTHORITIES if os.environ.get(name)), "")
        raise ConfigError(
            f"the certificates of {named or 'the system'} cannot be read: {error.strerror or error}",
            hint="Set SSL_CERT_FILE to a file of authorities in PEM format, or unset it.",
        ) from error


def fault_of(error: BaseException, base: httpx2.URL) -> ConfigError | None:
    """The error for a server that is not trusted, or that speaks no TLS; None if it is another fault."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigError(
            f"the certificate of {base.host} is not trusted: {cause.verify_message}",
            hint="Nothing was sent. If the server is yours, set SSL_CERT_FILE to the certificate of its authority, "
            "and use a host name of its certificate.",
        )
    if cause is not None and cause.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return ConfigError(
            f"the server at {base} does not speak HTTPS",
            hint=f"Nothing was sent. Use its HTTPS port, or http:// on this machine: {base.copy_with(scheme='http')}",
        )
    return None
