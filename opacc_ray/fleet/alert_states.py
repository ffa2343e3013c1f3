"""States of alerts and failures of fleets, and their delivery to receivers, once for each change.

They are firing, acknowledged, and resolved once a summary no longer has them. The fleet's folder has the open ones in
``alerts.json`` and an object per acknowledgement, so that a summary and an acknowledgement at the same time never
overwrite each other; and what each receiver knows.

A receiver gets a notice when an alert or failure starts, when somebody acknowledges it, when the error of a failure
changes, and when it is over; an alert that the next run raises again is not sent again. A file is written, and an
Alertmanager is told, as long as anything is wrong.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256

from opacc_ray.errors import DataError, OpaccError, SpecError, shown
from opacc_ray.fleet.fleet_documents import (
    Acknowledgement,
    AlertNotice,
    DeliveredAlerts,
    DeliveredItem,
    Delivery,
    FailedAudit,
    FleetSummary,
    OpenAlert,
    OpenAlerts,
    RaisedAlert,
)
from opacc_ray.fleet.receivers import Receiver
from opacc_ray.lake.store import Store
from opacc_ray.lake.store_uris import open_store

log = logging.getLogger(__name__)

FLEETS, NOTICE, SUMMARY, ACKNOWLEDGED = "fleets/", "alerts.json", "summary.json", "acknowledged/"
DELIVERED = "delivered.json"


def with_states(folder: Store, found: AlertNotice) -> AlertNotice:
    """Return a notice whose alerts and failures have their start and acknowledgement; forget those that are over."""
    known = {ack.alert: ack for ack in _read_acknowledged(folder)}
    before = read_notice(folder)
    since = {item.key: item.since for item in (before.alerts if before else ())}
    alerts = [
        item.model_copy(update={"since": since.get(item.key) or found.made, "acknowledged": known.get(item.key)})
        for item in found.alerts
    ]
    failures = [item.model_copy(update={"acknowledged": known.get(item.key)}) for item in found.failures]
    done = found.model_copy(update={"alerts": alerts, "failures": failures})
    for key in known.keys() - {item.key for item in done.items}:
        folder.delete(_place(key))
    return done


def read_notice(folder: Store) -> AlertNotice | None:
    """Read what was wrong at the last summary of a fleet; None if nothing was."""
    data = folder.read_if_there(NOTICE)
    return None if data is None else AlertNotice.from_bytes(data, folder.uri_of(NOTICE))


def open_alerts(output: str) -> OpenAlerts:
    """Return the alerts and failures of all fleets of an output; raises DataError if there is no fleet."""
    store, found, unknown = open_store(output), list[OpenAlert](), list[str]()
    names = sorted({entry.key.split("/")[1] for entry in store.list(FLEETS)})
    if not names:
        raise DataError(f"{store.uri} has no fleet; give the `output` of a fleet")
    for name in names:
        folder = store.store(f"{FLEETS}{name}")
        if notice := read_notice(folder):
            known = {ack.alert: ack for ack in _read_acknowledged(folder)}
            found += [_open(name, item, known.get(item.key)) for item in notice.items]
        if data := folder.read_if_there(SUMMARY):
            audits = FleetSummary.from_bytes(data, folder.uri_of(SUMMARY)).audits
            unknown += [item.name for item in audits if item.last is None and item.failure is None]
    return OpenAlerts(output=store.uri, fleets=names, alerts=found, unknown=unknown)


def _open(fleet: str, item: RaisedAlert | FailedAudit, ack: Acknowledgement | None) -> OpenAlert:
    return OpenAlert(
        fleet=fleet,
        audit=item.audit,
        alert=item.key,
        state="acknowledged" if ack else "firing",
        since=item.since,
        text=item.text,
        acknowledged=ack,
    )


def acknowledge(output: str, audit: str, by: str, note: str | None = None) -> OpenAlerts:
    """Acknowledge all that is wrong with an audit; returns it. Raises SpecError if nothing is."""
    found = open_alerts(output)
    own = [item for item in found.alerts if audit in (item.audit, item.alert)]
    if not own:
        wrong = ", ".join(dict.fromkeys(item.audit for item in found.alerts)) or "no audit"
        raise SpecError(f"nothing is wrong with an audit {shown(audit)} in {found.output}; {wrong} has an alert")
    for item in own:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        ack = Acknowledgement(alert=item.alert, by=by, at=at, note=note)
        open_store(output).store(f"{FLEETS}{item.fleet}").write(_place(item.alert), ack.to_bytes())
    done = {(item.fleet, item.alert) for item in own}
    return found.model_copy(
        update={"alerts": [item for item in open_alerts(output).alerts if (item.fleet, item.alert) in done]}
    )


def _read_acknowledged(folder: Store) -> list[Acknowledgement]:
    keys = [entry.key for entry in folder.list(ACKNOWLEDGED)]
    return [Acknowledgement.from_bytes(folder.read(key), folder.uri_of(key)) for key in keys]


def _place(key: str) -> str:
    return f"{ACKNOWLEDGED}{sha256(key.encode()).hexdigest()[:16]}.json"


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
