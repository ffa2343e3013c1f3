"""Receivers of the notices of a fleet: webhooks, mailboxes, an Alertmanager, objects and files.

    https://HOST/PATH                 a POST of the notice as JSON, whose ``text`` chats show
    mailto:NAME@HOST                  an e-mail, by the server that $OPACC_SMTP names: smtp[s]://[USER:PASSWORD@]HOST[:PORT]
    alertmanager+https://HOST[:PORT]  alerts of Prometheus's Alertmanager, which groups, silences and routes them
    s3://BUCKET/KEY, PATH             the notice as a file

The address of a webhook is a secret: messages show only its host.
"""

import html
import http.client
import json
import os
import re
import smtplib
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta
from email.message import EmailMessage
from hashlib import sha256
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from opacc_ray.errors import OpaccError, SpecError, shortened
from opacc_ray.fleet.fleet_documents import AlertNotice, FailedAudit, RaisedAlert
from opacc_ray.lake.store_uris import open_store, split

WAITS = (1.0, 4.0, 10.0)
"""Seconds between tries to reach a server."""

PATIENCE = 10.0
"""Seconds that it may take to answer."""

BUSY = (408, 425, 429)
"""Status of a server that may take it later, as those from 500 on."""

SMTP = "OPACC_SMTP"
"""Environment variable with the server for e-mails."""

MAIL_FROM = "OPACC_MAIL_FROM"
"""Environment variable with the sender of e-mails."""

LASTS = timedelta(days=35)
"""Time after which an Alertmanager takes an alert for resolved if no further summary sends it."""

Kind = Literal["webhook", "mail", "alertmanager", "file"]


class Receiver(NamedTuple):
    """A receiver of alerts."""

    address: str
    shown: str  # in messages
    kind: Kind

    @property
    def key(self) -> str:
        return sha256(self.address.encode()).hexdigest()

    @property
    def keeps(self) -> bool:
        """Whether it shows the last notice, so that it gets one as long as anything is wrong."""
        return self.kind in ("file", "alertmanager")

    def send(self, found: AlertNotice, over: dict[str, str]) -> str | None:
        """Send a notice; return why that failed, or None. ``over`` has the key and the text of what is resolved."""
        if self.kind == "webhook":
            content = found.to_dict() | {"text": html.escape(found.text, quote=False)}  # chats read <…> as mentions
            trouble = _tried(lambda: _post(self.address, content))
        elif self.kind == "alertmanager":
            address = f"{self.address.removeprefix('alertmanager+').rstrip('/')}/api/v2/alerts"
            trouble = _tried(lambda: _post(address, _as_alerts(found, over)))
        elif self.kind == "mail":
            trouble = _tried(lambda: _mail(self.address, found))
        else:
            return _write(self.address, found)
        return trouble and f"{self.shown} {trouble}"


def receiver_of(asked: str) -> Receiver:
    """Return the receiver that `alerts.to` or `--alert-to` names: a URL, URI, mailbox, path or $VARIABLE.

    Raises
    ------
    SpecError
        The variable is not set, or the address cannot be used.
    """
    variable = re.fullmatch(r"\$(\w+)|\$\{(\w+)\}", asked)
    name = variable and (variable[1] or variable[2])
    address = os.environ.get(name, "") if name else asked
    if not address:
        raise SpecError(f"alerts go to ${name}, and the environment has no such variable; set it to a URL or a file")
    if address.startswith("mailto:"):
        return _mailbox(address, f"${name}" if name else address)
    if re.match(r"[\w-]+(\.[\w-]+)+(:\d+)?/", address):
        what = f"${name}" if name else f"{address.partition('/')[0]}/***"
        raise SpecError(f"alerts go to {what}: write https:// before the host of a webhook, or ./ before a path")
    if not re.match(r"(alertmanager\+)?https?://", address, re.IGNORECASE):
        folder, key = split(address)
        uri = open_store(folder).uri_of(key)
        return Receiver(uri, f"${name}" if name else uri, "file")
    shown = f"${name}" if name else _host(address)
    try:
        parts = urlsplit(address)
        is_usable = bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or re.search(r"[\s\x00-\x1f\x7f]", address):
        raise SpecError(
            f"alerts go to {shown}, which is not the URL of a webhook; write https://HOST/PATH, without user@"
        )
    return Receiver(address, shown, "alertmanager" if address.lower().startswith("alertmanager+") else "webhook")


def _mailbox(address: str, shown: str) -> Receiver:
    if not re.fullmatch(r"mailto:[^\s@,;<>?]+@[\w.-]+", address):
        raise SpecError(f"alerts go to {shown}, which is not one mailbox; write mailto:NAME@HOST")
    _smtp()
    return Receiver(address, shown, "mail")


def _host(address: str) -> str:
    """Return the part of a URL that is not secret."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{re.split(r'[/?#]', rest)[0].rpartition('@')[2]}/***"


def _write(address: str, found: AlertNotice) -> str | None:
    try:
        folder, name = split(address)
        open_store(folder).write(name, found.to_bytes())
    except OpaccError as error:
        return str(error)
    return None


class _FailedError(Exception):
    """A try that failed; ``is_final`` if another one is useless."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


def _tried(send: Callable[[], None]) -> str | None:
    """Send with retries; return why that failed, or None."""
    trouble = ""
    for wait in (*WAITS, None):
        try:
            send()
            return None
        except _FailedError as error:
            if error.is_final:
                return f"did not accept the notice: {error}"
            trouble = str(error)
        if wait is not None:
            time.sleep(wait)
    return f"did not accept the notice in {len(WAITS) + 1} tries: {trouble}"


# -- over HTTP -----------------------------------------------------------------------------------------------


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a POST would become a GET without content."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(address: str, content: Any) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "opacc"}
    request = urllib.request.Request(address, json.dumps(content).encode(), headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE):
            return
    except urllib.error.HTTPError as error:
        error.close()
        is_final = error.code < 500 and error.code not in BUSY
        raise _FailedError(f"status {error.code}", is_final=is_final) from None
    except urllib.error.URLError as error:
        raise _FailedError(shortened(str(error.reason))) from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # its text may hold the address
        raise _FailedError(type(error).__name__, is_final=isinstance(error, ValueError)) from None


def _as_alerts(found: AlertNotice, over: dict[str, str]) -> list[dict[str, Any]]:
    """Return a notice as the API of an Alertmanager takes it: alerts that last, and alerts that end now."""
    now = datetime.fromisoformat(found.made)
    firing = [_as_alert(found, item.key, item.text, now + LASTS, item) for item in found.items]
    return [*firing, *(_as_alert(found, key, text, now) for key, text in over.items())]


def _as_alert(
    found: AlertNotice, key: str, text: str, ends: datetime, item: RaisedAlert | FailedAudit | None = None
) -> dict[str, Any]:
    audit, kind, of = [*key.split(" ", 2), "", ""][:3]
    name = "OpaccAuditFailed" if kind == "failure" else "OpaccAlert"
    labels = {"alertname": name, "fleet": found.fleet, "audit": audit, "kind": kind, "of": of}
    notes = {"summary": text, "description": found.summary}
    if item is not None and item.acknowledged is not None:
        notes["acknowledged"] = str(item.acknowledged)
    alert: dict[str, Any] = {"labels": {name: value for name, value in labels.items() if value}, "annotations": notes}
    if item is not None and item.since is not None:
        alert["startsAt"] = item.since
    return alert | {"endsAt": ends.isoformat()}


# -- e-mail --------------------------------------------------------------------------------------------------


class _Server(NamedTuple):
    """The server for e-mails."""

    host: str
    port: int
    is_secure: bool  # from the first byte
    user: str | None
    password: str | None

    def connect(self) -> smtplib.SMTP:
        """Return a connection over TLS, if the server has it or a password is sent."""
        context = ssl.create_default_context()
        if self.is_secure:
            return smtplib.SMTP_SSL(self.host, self.port, timeout=PATIENCE, context=context)
        link = smtplib.SMTP(self.host, self.port, timeout=PATIENCE)
        link.ehlo()
        if self.user or link.has_extn("starttls"):
            link.starttls(context=context)
        return link


def _smtp() -> _Server:
    address = os.environ.get(SMTP, "")
    try:
        parts = urlsplit(address)
        if parts.scheme in ("smtp", "smtps") and parts.hostname:
            is_secure = parts.scheme == "smtps"
            user, password = (part and unquote(part) for part in (parts.username, parts.password))
            return _Server(parts.hostname, parts.port or (465 if is_secure else 587), is_secure, user, password)
    except ValueError:
        pass
    state = "is not set" if not address else "is not such an address"
    raise SpecError(f"alerts go to a mailbox, and ${SMTP} {state}; set it to smtp://USER:PASSWORD@HOST:587")


def _mail(address: str, found: AlertNotice) -> None:
    """Send an e-mail; a password is only sent over TLS."""
    server, message = _smtp(), _message(address, found)
    try:
        with server.connect() as link:
            if server.user:
                link.login(server.user, server.password or "")
            link.send_message(message)
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise _FailedError(f"{error.smtp_code} {shortened(text)}", is_final=error.smtp_code >= 500) from None
    except smtplib.SMTPRecipientsRefused:
        raise _FailedError(f"{server.host} refused the mailbox", is_final=True) from None
    except (OSError, smtplib.SMTPException) as error:
        raise _FailedError(f"{type(error).__name__} of {server.host}: {shortened(str(error))}") from None


def _message(address: str, found: AlertNotice) -> EmailMessage:
    message = EmailMessage()
    num = len(found.alerts) + len(found.failures)
    state = f"{num} open" if found.state == "firing" else "all resolved"
    message["Subject"] = f"opacc {found.fleet}: {state}"
    message["From"] = os.environ.get(MAIL_FROM) or f"opacc@{socket.getfqdn()}"
    message["To"] = address.removeprefix("mailto:")
    message.set_content(f"{found.text}\n\nSummary: {found.summary}\n")
    return message
