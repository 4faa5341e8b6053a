"""Kopf's side of the operator: start, stop, credentials, probes, PodGroups, and pending pods labelled with their min-available. No logic.

Only handlers that write nothing: job operators overwrite the objects they own, so annotations and finalizers of ours would be a
fight. Handlers return nothing, since Kopf would write that to the object's status.
"""

import asyncio
import logging
import os
import signal
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import kopf

from allaboard.app import App
from allaboard.gangs.membership import MIN_AVAILABLE_LABEL
from allaboard.kube.client import CredentialsError, load_credentials
from allaboard.kube.deep_json import PrunedResponse
from allaboard.kube.reachable import UnreachableError
from allaboard.logs import keep_records_apart
from allaboard.settings.options import SettingsError, load_settings

PODGROUPS = ("scheduling.x-k8s.io", "v1alpha1", "podgroups")
IS_EMBEDDED = "is_embedded"
"""What the memo of an operator says that mustn't end its process when it can't start."""
TAKE_SIGNALS = "take_signals"
"""What the memo of an operator has that takes signals itself: a function that does, called when Kopf has taken them."""


class _NoDiffBase(kopf.DiffBaseStorage):
    """Nothing is compared with what it was: Kopf would copy each object several times over for handlers that we don't have."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        pass


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Start the scheduler; with settings, credentials, an API server or a port that can't be used the operator ends and says why.

    It ends the process, in one line, which Kopf would wrap in sixty of traceback; unless it is embedded in one that has more to do.
    """
    await asyncio.sleep(0)  # Kopf takes the signals, and begins its other tasks, or Python warns of them when this fails
    if take_signals := memo.get(TAKE_SIGNALS):
        take_signals()
    keep_records_apart()  # `kopf run` has made its own handlers
    settings.posting.enabled = False
    # Selected on the server, which has one selector for a resource: Kopf would otherwise receive every change of every pod of the
    # cluster, to drop most of them at a millisecond each. A pod's bind or end comes as one more event, by which it leaves the selection.
    settings.watching.label_selectors["pods"] = MIN_AVAILABLE_LABEL
    settings.watching.field_selectors["pods"] = "status.phase=Pending,spec.nodeName="
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.queueing.idle_timeout = 1.0
    # Kopf tells of each call of a handler, which is of no use and costs as much as the call.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        app = App(options := load_settings())
        # Whoever runs the operator starts it again; half of one would look alive and decide nothing.
        await app.start(on_death=lambda: os.kill(os.getpid(), signal.SIGTERM), reach_seconds=options.reach_seconds)
    except asyncio.CancelledError:
        if take_signals:  # and ends the operator by itself
            raise
        raise SystemExit(0) from None  # Kopf would wait five seconds for tasks that it hasn't begun yet
    except (SettingsError, CredentialsError, UnreachableError, OSError) as error:
        words = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise (kopf.PermanentError(words) if memo.get(IS_EMBEDDED) else SystemExit(f"Error: {words}")) from None
    memo.app = app


@dataclass(frozen=True, kw_only=True)
class _Session(kopf.AiohttpSession):
    """What Kopf would make of ``info``, by which it is known, but for answers that are nested too deep for Kopf. Kopf closes it."""

    info: kopf.ConnectionInfo
    aiohttp_session: aiohttp.ClientSession = field(init=False, compare=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        if name != "aiohttp_session":
            raise AttributeError(name)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self.info.as_ssl_context()),
            headers=self.info.as_http_headers(),
            proxy=self.info.proxy_url,
            response_class=PrunedResponse,
        )
        object.__setattr__(self, name, session)  # made when it is first used: who isn't used isn't closed
        return session


@kopf.on.login()
async def log_in(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """The credentials the scheduler itself uses."""
    try:
        configuration = await load_credentials(memo.app.settings.kubeconfig if "app" in memo else "")
    except CredentialsError as error:
        raise kopf.LoginError(str(error)) from error
    header = (await configuration.auth_settings()).get("BearerToken", {}).get("value") or ""
    scheme, _separator, token = header.rpartition(" ")
    info = kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
    return _Session(server=info.server, info=info)


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Stop the scheduler."""
    app: App | None = memo.get("app")
    if app is not None:
        await app.stop()


@kopf.on.event(*PODGROUPS)
async def observe_pod_group(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # Kopf's name
    """A PodGroup has come, changed or gone."""
    memo.app.observe_pod_group(type, dict(body))


@kopf.on.event("v1", "pods", labels={MIN_AVAILABLE_LABEL: kopf.PRESENT})
async def observe_pending_pod(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # Kopf's name
    """A pending pod that is labelled with its gang's min-available has come or changed, or is pending no more."""
    memo.app.observe_pending_pod(type, dict(body))


@kopf.on.probe(id="scheduler")
async def probe(memo: kopf.Memo, **_: Any) -> dict[str, object]:
    """What the health endpoint tells."""
    app: App = memo.app
    return app.health()
