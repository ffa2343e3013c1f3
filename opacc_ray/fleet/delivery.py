"""Send alerts and failures of a fleet to a webhook (POST), an object or a file.

A webhook gets a notice when an alert or failure starts, changes its run or error, or is over.
The fleet's folder keeps what each receiver knows. A file is written as long as anything is wrong. The address of a
webhook is a secret: messages show only its host.
"""

import html
import http.client
import json
import logging
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import urlsplit

from opacc_ray.errors import OpaccError, SpecError, shortened
from opacc_ray.fleet.fleet_documents import AlertNotice, DeliveredAlerts, DeliveredItem, Delivery, FailedAudit
from opacc_ray.lake.store import Store
from opacc_ray.lake.store_uris import open_store, split

log = logging.getLogger(__name__)

DELIVERED = "delivered.json"

WAITS = (1.0, 4.0, 10.0)
"""Seconds between tries to reach a webhook."""

PATIENCE = 10.0
"""Seconds that it may take to answer."""

BUSY = (408, 425, 429)
"""Status of a server that may take it later, as those from 500 on."""

FAILURE = " failure"
"""Ends the key of a failure; keys begin with the audit's name, which holds no space."""


class Receiver(NamedTuple):
    """A receiver of alerts."""

    address: str
    shown: str  # in messages
    is_web: bool

    @property
    def key(self) -> str:
        return sha256(self.address.encode()).hexdigest()


def receiver_of(asked: str) -> Receiver:
    """Return the receiver that `alerts.to` or `--alert-to` names: a URL, URI, path or $VARIABLE.

    Raises
    ------
    SpecError
        The variable is not set, or the URL cannot be used.
    """
    variable = re.fullmatch(r"\$(\w+)|\$\{(\w+)\}", asked)
    name = variable and (variable[1] or variable[2])
    address = os.environ.get(name, "") if name else asked
    if not address:
        raise SpecError(f"alerts go to ${name}, and the environment has no such variable; set it to a URL or a file")
    if re.match(r"[\w-]+(\.[\w-]+)+(:\d+)?/", address):
        what = f"${name}" if name else f"{address.partition('/')[0]}/***"
        raise SpecError(f"alerts go to {what}: write https:// before the host of a webhook, or ./ before a path")
    if not re.match(r"https?://", address, re.IGNORECASE):
        folder, key = split(address)
        uri = open_store(folder).uri_of(key)
        return Receiver(uri, f"${name}" if name else uri, is_web=False)
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
    return Receiver(address, shown, is_web=True)


def _host(address: str) -> str:
    """Return the part of a URL that is not secret."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{re.split(r'[/?#]', rest)[0].rpartition('@')[2]}/***"


def deliver(
    store: Store, found: AlertNotice, receivers: Sequence[Receiver], unknown: Collection[str] = ()
) -> list[Delivery]:
    """Send a notice to all receivers that do not know its content; a failed delivery stops no other.

    Parameters
    ----------
    store : folder of the fleet, which keeps what each receiver knows
    found : what is wrong, possibly nothing
    unknown : audits whose alerts may or may not be over
    """
    known = _read(store) if receivers else {}
    delivered, deliveries = dict(known), list[Delivery]()
    for receiver in receivers:
        before = known.get(receiver.key, {})
        items = {
            key: item for key, item in before.items() if key.partition(" ")[0] in unknown and not key.endswith(FAILURE)
        }
        items |= _items(found)
        over = [item.text for key, item in before.items() if key not in items]
        is_new = {key: item.about for key, item in items.items()} != {key: item.about for key, item in before.items()}
        if is_new or (items and not receiver.is_web):
            text = "\n".join([*found.text.splitlines(), *(f"Resolved: {text}" for text in over)])
            state = "firing" if items else "resolved"
            error = _send(receiver, found.model_copy(update={"text": text, "state": state, "resolved": over}))
            deliveries.append(Delivery(to=receiver.shown, state="failed" if error else "delivered", error=error))
        else:
            deliveries.append(Delivery(to=receiver.shown, state="known", error=None))
        if deliveries[-1].error is None:
            delivered[receiver.key] = items
    if delivered != known:
        with _warned():
            store.write(DELIVERED, DeliveredAlerts(receivers=delivered).to_bytes())
    return deliveries


def _is_alert_of(key: str, audits: Collection[str]) -> bool:
    name = key.partition(" ")[0]
    return name in audits and key != f"{name}{FAILURE}"


def _items(found: AlertNotice) -> dict[str, DeliveredItem]:
    """Return alerts and failures, by audit, kind, and metric or slices."""
    items = {
        " ".join(filter(None, (item.audit, item.kind, item.of))): DeliveredItem(about=item.run, text=item.text)
        for item in found.alerts
    }
    return items | {
        f"{item.audit}{FAILURE}": DeliveredItem(about=item.error, text=failure_text(item)) for item in found.failures
    }


def failure_text(failure: FailedAudit) -> str:
    """Return a failure as one sentence."""
    return f"{failure.audit} failed: {shortened(failure.error, 600)}"


def _send(receiver: Receiver, found: AlertNotice) -> str | None:
    """Send a notice; return why that failed, or None."""
    if receiver.is_web:
        trouble = _post(receiver.address, found)
        return trouble and f"{receiver.shown} {trouble}"
    try:
        folder, name = split(receiver.address)
        open_store(folder).write(name, found.to_bytes())
    except OpaccError as error:
        return str(error)
    return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a POST would become a GET without content."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(address: str, found: AlertNotice) -> str | None:
    """Send a notice to a webhook, with retries; return why that failed, or None."""
    content = found.to_dict() | {"text": html.escape(found.text, quote=False)}  # chats read <…> as links and mentions
    headers = {"Content-Type": "application/json", "User-Agent": "opacc"}
    request = urllib.request.Request(address, json.dumps(content).encode(), headers, method="POST")
    trouble = ""
    for wait in (*WAITS, None):
        trouble, is_final = _try(request)
        if not trouble:
            return None
        if is_final:
            return f"did not accept the notice: {trouble}"
        time.sleep(wait or 0)
    return f"did not accept the notice in {len(WAITS) + 1} tries: {trouble}"


def _try(request: urllib.request.Request) -> tuple[str, bool]:
    """Send once; return the error, empty for none, and whether a retry is useless."""
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=PATIENCE):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"status {error.code}", error.code < 500 and error.code not in BUSY
    except urllib.error.URLError as error:
        return shortened(str(error.reason)), False
    except (OSError, http.client.HTTPException, ValueError) as error:  # its text may hold the address
        return type(error).__name__, isinstance(error, ValueError)


def _read(store: Store) -> dict[str, dict[str, DeliveredItem]]:
    """Return what each receiver knows; nothing if that cannot be read, since sending twice is better than never."""
    with _warned():
        data = store.read_if_there(DELIVERED)
        if data is not None:
            return DeliveredAlerts.from_bytes(data, store.uri_of(DELIVERED)).receivers
    return {}


@contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except OpaccError as error:
        log.warning("%s; alerts may be sent twice", error)
