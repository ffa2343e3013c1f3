"""Run a fleet: its missing work, the summary, and notices to receivers: whatever Apprise can notify, and files.

    https://HOST/PATH          a POST of JSON, whose ``text`` chats show; or what Apprise knows of this host
    mailtos://…, slack://…     a URL of Apprise (https://appriseit.com): e-mail, chats, pagers and some hundred others
    s3://BUCKET/KEY, PATH      the notice as a file

The address of a receiver is a secret: messages show its scheme, or the host of a webhook.

A receiver gets a notice when an alert or failure starts, when somebody acknowledges it, when the error of a failure
changes, and when it is over; an alert that the next run raises again is not sent again. A file is written as long as
anything is wrong.
"""

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from io import StringIO
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from opacc_ray.documents import Document
from opacc_ray.errors import AlertError, DeliveryError, OpaccError, SpecError, as_ours, counted, shortened
from opacc_ray.extensions.fleet import fleet_summary, summary_page
from opacc_ray.extensions.fleet.alerts import AlertRule
from opacc_ray.extensions.fleet.fleet_spec import Fleet
from opacc_ray.extensions.fleet.fleet_summary import SUMMARY, Delivery, FleetSummary, Problem
from opacc_ray.extensions.fleet.queue import AuditFailure, Ended, Outcomes, work_through
from opacc_ray.lake.store import Store, write_files
from opacc_ray.lake.store_uris import is_scheme_of_stores, open_store, split, write_object
from opacc_ray.registry import require
from opacc_ray.samplers.base import Report, unreported

if TYPE_CHECKING:
    from apprise import NotifyBase

log = logging.getLogger(__name__)

SUMMARY_PAGE, SUMMARY_TEXT, DELIVERED = "summary.html", "summary.md", "delivered.json"

WAITS = (1.0, 4.0, 10.0)
"""Seconds between tries to reach a server."""

CLEAR = ("mailto", "json", "http", "form", "xml")
"""Schemes without TLS; those of mail providers that Apprise knows are secure all the same."""

HARMLESS = str.maketrans("<>", "‹›")
"""Characters that chats read as the ends of a mention, and what stands for them."""


class AlertNotice(Document):
    """What is wrong with a fleet, as a receiver gets it; a service shows the ``text``, a file has all."""

    format: Literal["opacc-alert/1"] = "opacc-alert/1"
    fleet: str  # name of the fleet
    text: str = ""  # the notice as text, one line each, as a chat shows it
    state: Literal["firing", "resolved"] = "firing"  # firing: something is wrong; resolved: nothing is wrong any more
    made: str  # time of the notice: ISO 8601, UTC
    summary: str  # URI of the page of the summary
    problems: list[Problem]  # alerts and failures
    guarantee: str | None = None  # error bound in words; null: no limits are set


class DeliveredAlerts(Document):
    """Alerts sent to each receiver, so that nothing is sent twice: ``fleets/NAME/delivered.json``."""

    remedy: ClassVar[str] = "delete it, and run `opacc fleet` again"

    format: Literal["opacc-delivered/1"] = "opacc-delivered/1"
    # alerts and failures by SHA-256 of the address of the receiver that knows of them
    receivers: dict[str, list[Problem]]


class FleetError(OpaccError):
    """Something is wrong with a fleet; the exit code is that of the first failed audit, of delivery or of an alert."""


class Written(NamedTuple):
    """The summary of a fleet, its files, and what is wrong."""

    summary: FleetSummary
    files: list[str]  # URIs
    failure: FleetError | None


def run_fleet(fleet: Fleet, progress: Report = unreported, *, work: bool = True, trial: bool = True) -> Written:
    """Run what is missing of a fleet, write its summary, and deliver alerts even after errors.

    Parameters
    ----------
    progress : counts audits
    work : False: run nothing, report only how the audits stand, by their last outcomes
    trial : try each model on some examples here before Ray starts

    Raises
    ------
    DataError
        The last summary cannot be read, before anything is run: alerts and acknowledgements would begin anew.
    """
    receivers = [receiver_of(address) for address in (fleet.spec.alerts.receivers if fleet.spec.alerts else ())]
    store = fleet.folder
    try:
        before = fleet_summary.last_summary(store)
        if work:
            ends = work_through(fleet, progress, trial=trial)
        else:
            ends = [Outcomes(store).last(audit) for audit in fleet.audits]
        summary = fleet_summary.summarise(fleet, ends, before)
        contents = {
            SUMMARY_PAGE: summary_page.page(summary).encode(),
            SUMMARY: summary.to_bytes(),
            SUMMARY_TEXT: summary_page.summary_text(summary).encode(),
        }
        files = write_files(store, contents)
    except Exception as error:
        for delivery in deliver(store, _without_summary(fleet, error), receivers, is_whole=False):
            if delivery.error is not None:
                log.error("%s", delivery.error)
        raise
    deliveries = deliver(store, _notice(fleet, summary.made, summary.problems, summary.rule), receivers)
    codes, failure = _failure(summary, ends, deliveries)
    summary = summary.model_copy(update={"deliveries": deliveries, "exit_codes": codes})
    store.write(SUMMARY, summary.to_bytes())
    return Written(summary, files, failure)


def _notice(fleet: Fleet, made: str, problems: list[Problem], rule: AlertRule | None = None) -> AlertNotice:
    page, guarantee = fleet.folder.uri_of(SUMMARY_PAGE), rule.guarantee if rule else None
    return AlertNotice(fleet=fleet.spec.name, made=made, summary=page, problems=problems, guarantee=guarantee)


def _without_summary(fleet: Fleet, error: Exception) -> AlertNotice:
    """Return the notice to send if no summary can be written, for instance because storage is down."""
    ours, name, now = as_ours(error), fleet.spec.name, datetime.now(UTC).isoformat(timespec="seconds")
    failure = AuditFailure(
        error=f"no summary could be written: {shortened(str(ours))}", exit_code=ours.exit_code, at=now
    )
    return _notice(fleet, now, [fleet_summary.failure_of(name, name, failure)])


def _failure(
    summary: FleetSummary, ends: Sequence[Ended], deliveries: Sequence[Delivery]
) -> tuple[list[int], FleetError | None]:
    """Return the exit codes of all that is wrong, and one error of it: failures, delivery, alerts nobody knows of."""
    wrong = list[tuple[int, str]]()
    failures = {audit.name: audit.failure.exit_code for audit in summary.audits if audit.failure}
    if failures:
        failed = f"{counted(len(failures), 'audit')} of {len(summary.audits)} failed: {', '.join(failures)}"
        wrong.append((next(iter(failures.values())), failed))
    if undelivered := "; ".join(delivery.error for delivery in deliveries if delivery.error):
        wrong.append((DeliveryError.exit_code, f"the notice was not delivered: {undelivered}"))
    problems = (problem for problem in summary.problems if problem.check and not problem.acknowledged)
    if raised := list(dict.fromkeys(problem.audit for problem in problems)):
        wrong.append((AlertError.exit_code, f"{counted(len(raised), 'audit')} raised an alert: {', '.join(raised)}"))
    if not wrong:
        return [], None
    error = FleetError("; ".join(text for _, text in wrong) + "; see above")
    error.exit_code, error.details = wrong[0][0], "\n".join(end.details for end in ends if end.details)
    return [code for code, _ in wrong], error


# -- delivery ------------------------------------------------------------------------------------------------


def deliver(
    folder: Store, notice: AlertNotice, receivers: Sequence["Receiver"], *, is_whole: bool = True
) -> list[Delivery]:
    """Send a notice to all receivers that do not know its content; a failed delivery stops no other.

    Parameters
    ----------
    folder : of the fleet, which keeps what each receiver knows
    notice : what is wrong, possibly nothing
    is_whole : False: nothing is over because the notice does not have it
    """
    delivered, deliveries = dict[str, list[Problem]](), list[Delivery]()
    if receivers:
        with _warned():  # sending twice is better than never
            data = folder.read_if_there(DELIVERED)
            if data is not None:
                delivered = DeliveredAlerts.from_bytes(data, folder.uri_of(DELIVERED)).receivers
    known = dict(delivered)
    for receiver in receivers:
        before = {problem.alert: problem for problem in known.get(receiver.key, ())}
        problems = ({} if is_whole else before) | {problem.alert: problem for problem in notice.problems}
        error: str | None = None
        state: Literal["delivered", "known", "failed"] = "known"
        is_new = {key: item.news for key, item in problems.items()} != {key: item.news for key, item in before.items()}
        if is_new or (problems and receiver.is_file):
            error = receiver.send(_news(notice, [item.text for key, item in before.items() if key not in problems]))
            state = "failed" if error else "delivered"
        deliveries.append(Delivery(to=receiver.shown, state=state, error=error))
        if error is None:
            delivered[receiver.key] = [*problems.values()]
    if delivered != known:
        with _warned():
            folder.write(DELIVERED, DeliveredAlerts(receivers=delivered).to_bytes())
    return deliveries


def _news(notice: AlertNotice, resolved: list[str]) -> AlertNotice:
    """Return a notice with its text: a line for each problem, with who knows of it, and for what is over."""
    lines = [f"{item.text} ({item.acknowledged})" if item.acknowledged else item.text for item in notice.problems]
    text = "\n".join([*lines, *(f"Resolved: {text}" for text in resolved)])
    state = "firing" if notice.problems else "resolved"
    return notice.model_copy(update={"text": text, "state": state})


@contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except OpaccError as error:
        log.warning("%s; alerts may be sent twice", error)


# -- receivers -----------------------------------------------------------------------------------------------


class Receiver(NamedTuple):
    """A receiver of alerts."""

    address: str
    shown: str  # in messages
    is_file: bool

    @property
    def key(self) -> str:
        return sha256(self.address.encode()).hexdigest()

    def send(self, notice: AlertNotice) -> str | None:
        """Send a notice; return why that failed, or None."""
        if self.is_file:
            try:
                write_object(self.address, notice.to_bytes())
            except OpaccError as error:
                return str(error)
            return None
        reason = ""
        for wait in (*WAITS, None):
            with _silent() as reasons:
                if _notify(self.address, notice):
                    return None
                reason = reasons.getvalue().strip().rpartition("\n")[2]
            if wait is not None:
                time.sleep(wait)
        return f"{self.shown} did not accept the notice in {len(WAITS) + 1} tries: {self._redacted(shortened(reason))}"

    def _redacted(self, text: str) -> str:
        """Return what Apprise says of a failure without any part of the address that is not shown."""
        for part in re.split(r"[/:@?&=#,]+", self.address.partition("://")[2]):
            if len(part) > 3 and part not in self.shown:
                text = text.replace(part, "***").replace(unquote(part), "***")
        return text


def receiver_of(asked: str) -> Receiver:
    """Return the receiver that `alerts.to` names: a URL, URI, path or $VARIABLE.

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
    if re.match(r"[\w-]+(\.[\w-]+)+(:\d+)?/", address):
        what = f"${name}" if name else f"{address.partition('/')[0]}/***"
        raise SpecError(f"alerts go to {what}: write https:// before the host of a webhook, or ./ before a path")
    if not _is_url(address):
        folder, key = split(address)
        uri = open_store(folder).uri_of(key)
        return Receiver(uri, f"${name}" if name else uri, is_file=True)
    shown = f"${name}" if name else _without_secrets(address)
    service = None if re.search(r"[\s\x00-\x1f\x7f]", address) else _service(address)
    if service is None:
        raise SpecError(
            f"alerts go to {shown}, which Apprise cannot use; write https://HOST/PATH, or a URL as it has them"
        )
    scheme = address.partition(":")[0].lower()
    if scheme in CLEAR and getattr(service, "password", None) and not service.secure:
        raise SpecError(f"alerts go to {shown}, which sends a password without TLS; write {scheme}s:// instead")
    return Receiver(address, shown, is_file=False)


def _is_url(address: str) -> bool:
    """Return whether an address is a webhook or has a scheme of Apprise, which none of a store is."""
    scheme = re.match(r"([a-z][\w+.-]*):", address, re.IGNORECASE)
    if not scheme or is_scheme_of_stores(scheme[1]):
        return False
    if scheme[1].lower() in ("http", "https"):
        return True
    require("a receiver of alerts", "apprise")
    from apprise.plugins import N_MGR

    return scheme[1].lower() in N_MGR


def _without_secrets(address: str) -> str:
    """Return the scheme of an address, since services have tokens anywhere after it; with its host for a webhook."""
    scheme, _, rest = address.partition("://")
    host = re.split(r"[/?#]", rest)[0].rpartition("@")[2] + "/" if scheme.lower() in ("http", "https") else ""
    return f"{scheme}://{host}***"


def _service(address: str) -> "NotifyBase | None":
    """Return what Apprise notifies by an address; None if it can use none."""
    require("a receiver of alerts", "apprise")
    from apprise import Apprise

    with _silent():
        found = Apprise.instantiate(address)
        if found is None and (webhook := re.match(r"http(s?)://(.+)", address, re.IGNORECASE)):
            query = urlencode([(f"-{name}", value) for name, value in parse_qsl(urlsplit(address).query)])
            place = webhook[2].partition("?")[0]
            found = Apprise.instantiate(f"json{webhook[1]}://{place}?:message=text&redirect=no&{query}")
    return found


def _notify(address: str, notice: AlertNotice) -> bool:
    """Notify once; return whether the service took it."""
    from apprise import Apprise, NotifyFormat, NotifyType

    service = _service(address)
    state = f"{len(notice.problems)} open" if notice.state == "firing" else "all resolved"
    text = f"{notice.text}\n\nSummary: {notice.summary}".translate(HARMLESS)
    kind = NotifyType.FAILURE if notice.state == "firing" else NotifyType.SUCCESS
    services = Apprise([service] if service else [])
    title = f"opacc {notice.fleet}: {state}"
    return bool(services.notify(text, title, notify_type=kind, body_format=NotifyFormat.TEXT))


@contextmanager
def _silent() -> Iterator[StringIO]:
    """Keep what Apprise logs, the last line of which says why it failed; it may hold the address."""
    from apprise import LogCapture

    logger = logging.getLogger("apprise")
    propagates, logger.propagate = logger.propagate, False
    try:
        with LogCapture(level=logging.WARNING, fmt="%(message)s") as lines:  # type: ignore[no-untyped-call]
            yield lines
    finally:
        logger.propagate = propagates
