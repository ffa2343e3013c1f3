"""Send alerts and failures of a fleet to its receivers, once for each change.

A receiver gets a notice when an alert or failure starts, when somebody acknowledges it, when the error of a failure
changes, and when it is over; an alert that the next run raises again is not sent again. The fleet's folder keeps what
each receiver knows. A file is written, and an Alertmanager is told, as long as anything is wrong.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from opacc_ray.errors import OpaccError
from opacc_ray.fleet.fleet_documents import AlertNotice, DeliveredAlerts, DeliveredItem, Delivery, FailedAudit
from opacc_ray.fleet.receivers import Receiver
from opacc_ray.lake.store import Store

log = logging.getLogger(__name__)

DELIVERED = "delivered.json"


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
        items = {key: item for key, item in before.items() if _is_alert_of(key, unknown)} | _items(found)
        over = {key: item.text for key, item in before.items() if key not in items}
        is_new = {key: item.about for key, item in items.items()} != {key: item.about for key, item in before.items()}
        if is_new or (items and receiver.keeps):
            text = "\n".join([*found.text.splitlines(), *(f"Resolved: {text}" for text in over.values())])
            state = "firing" if items else "resolved"
            changed = found.model_copy(update={"text": text, "state": state, "resolved": list(over.values())})
            error = receiver.send(changed, over)
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
    return name in audits and key != FailedAudit(audit=name, error="", exit_code=1).key


def _items(found: AlertNotice) -> dict[str, DeliveredItem]:
    """Return alerts and failures by their keys."""
    items = dict[str, DeliveredItem]()
    for item in found.items:
        about = item.error if isinstance(item, FailedAudit) else "raised"
        if item.acknowledged is not None:
            about = f"acknowledged by {item.acknowledged.by}"
        items[item.key] = DeliveredItem(about=about, text=item.text)
    return items


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
