"""Opens URLs without following redirects, which would carry a log-in to another host."""

from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, build_opener

from .security import ClientTls


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def plain_opener(tls: ClientTls | None) -> OpenerDirector:
    if tls is None:
        return build_opener(_NoRedirect)
    from .tls import client_context  # noqa: PLC0415  # loads OpenSSL

    return build_opener(_NoRedirect, HTTPSHandler(context=client_context(tls)))
