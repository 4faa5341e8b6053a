"""Handlers for Kopf: start, stop, credentials, probes, PodGroups, and pending pods labelled with their min-available. No logic.

No handler makes Kopf write to objects: job operators overwrite the objects that they own, and would remove annotations of Kopf.
Handlers of events return nothing, since Kopf would write the result into the object's status.
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
"""Key of Kopf's memo: set if the operator runs in the process of another program, which it must not end if it can't start."""
TAKE_SIGNALS = "take_signals"
"""Key of Kopf's memo: a function that installs signal handlers. It is called after Kopf has installed its own."""


class _NoDiffBase(kopf.DiffBaseStorage):
    """Storage that stores nothing: Kopf would copy each object several times to compare it with its last state, which no handler needs."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return an empty object instead of the parts of the object that Kopf would compare."""
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Return None: no last state of the object is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Start the scheduler. Bad settings or credentials, an unreachable API server or a port in use end the operator with an error.

    The error ends the process with one line, which Kopf would surround with sixty lines of traceback. An embedded operator raises instead,
    since its process has other work.
    """
    await asyncio.sleep(0)  # Kopf takes the signals and starts its other tasks; Python would warn of unstarted tasks if this fails
    if take_signals := memo.get(TAKE_SIGNALS):
        take_signals()
    keep_records_apart()  # `kopf run` has added its own log handlers
    settings.posting.enabled = False
    # The API server selects the pods, by one selector for the resource. Otherwise Kopf would receive every change of every pod, and drop
    # most of them at a millisecond each. The bind or end of a pod arrives as a last event, since the pod leaves the selection.
    settings.watching.label_selectors["pods"] = MIN_AVAILABLE_LABEL
    settings.watching.field_selectors["pods"] = "status.phase=Pending,spec.nodeName="
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.queueing.idle_timeout = 1.0
    # Kopf logs each call of a handler, which is useless and takes as long as the call.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        app = App(options := load_settings())
        # A failed part ends the whole operator: without it, the operator would look alive and schedule nothing. The kubelet restarts it.
        await app.start(on_failure=lambda: os.kill(os.getpid(), signal.SIGTERM), reach_seconds=options.reach_seconds)
    except asyncio.CancelledError:
        if take_signals:  # the function above ends the operator by itself
            raise
        raise SystemExit(0) from None  # Kopf would wait five seconds for tasks that it hasn't begun yet
    except (SettingsError, CredentialsError, UnreachableError, OSError) as error:
        words = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise (kopf.PermanentError(words) if memo.get(IS_EMBEDDED) else SystemExit(f"Error: {words}")) from None
    memo.app = app


@dataclass(frozen=True, kw_only=True)
class _Session(kopf.AiohttpSession):
    """The session that Kopf would create for the credentials ``info``, except that responses nested too deep for Kopf are pruned.

    Sessions are equal if their ``info`` is equal. Kopf closes the session.
    """

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
        object.__setattr__(self, name, session)  # created at its first use, since Kopf doesn't close unused sessions
        return session


@kopf.on.login()
async def log_in(memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """Return a session with the credentials that the scheduler itself uses."""
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
    """Pass on a PodGroup that was created, changed or deleted."""
    memo.app.observe_pod_group(type, dict(body))


@kopf.on.event("v1", "pods", labels={MIN_AVAILABLE_LABEL: kopf.PRESENT})
async def observe_pending_pod(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # Kopf's name
    """Pass on a pending pod, labelled with its gang's min-available, that was created or changed, or is no longer pending."""
    memo.app.observe_pending_pod(type, dict(body))


@kopf.on.probe(id="scheduler")
async def probe(memo: kopf.Memo, **_: Any) -> dict[str, object]:
    """Return the report of the health endpoint."""
    app: App = memo.app
    return app.health()
