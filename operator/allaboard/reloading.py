"""Applies a changed configuration file while the scheduler runs, without losing any state of gangs.

Changes are detected by the file's content and not by its modification time, since a mounted ConfigMap changes by a symbolic link. A file
that can't be used changes nothing. The log says why, once for each content.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from allaboard.model.errors import shown
from allaboard.settings.files import MOST_BYTES
from allaboard.settings.options import CONFIG_VARIABLE, Settings, SettingsError, load_settings

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 5.0

AT_RUN_TIME = frozenset({"objective", "topology", "packing", "gpu", "schedule_timeout_seconds"})
"""Options that a changed file changes at once, like profiles. Changes of other options take effect at the next start."""


def reloaded(old: Settings, new: Settings) -> tuple[Settings, tuple[str, ...]]:
    """Return ``old`` with the changes of ``new`` that take effect at run time, and messages about the other changes.

    A scheduler name whose profile is removed keeps that profile, since the removal may be a mistake. Raises ``SettingsError`` if the
    configuration file of ``new`` states nothing.
    """
    if not new.in_force.is_stated:
        raise SettingsError(f"{os.environ.get(CONFIG_VARIABLE)}: states nothing; was it cut off?")
    changed = old.model_copy(update={name: getattr(new, name) for name in AT_RUN_TIME})
    profiles = {name: profile for name, profile in {**old.profiles, **new.profiles}.items() if name in old.scheduler_names}
    options = sorted(name for name in Settings.model_fields.keys() - AT_RUN_TIME if getattr(old, name) != getattr(new, name))
    kept = (
        *(f"{name}: has changed, and stays as it was until the operator starts again" for name in options),
        *(
            f"{shown(name)} no longer has a profile in the file; it keeps its scoring until the operator starts again"
            for name in profiles
            if name not in new.profiles
        ),
        *(
            f"pods of schedulerName {shown(name)} aren't scheduled until the operator starts again"
            for name in new.scheduler_names
            if name not in old.scheduler_names
        ),
    )
    return changed.with_profiles(replace(new.in_force, names=old.scheduler_names, profiles=profiles)), kept


class Reloading:
    """Checks the configuration file every few seconds, and calls ``apply`` with the new settings if the file has changed.

    ``count`` is called with ``applied`` or ``refused`` for each change of the file.
    """

    def __init__(
        self,
        settings: Settings,
        apply: Callable[[Settings], None],
        count: Callable[[str], None] = lambda result: None,
        load: Callable[[], Settings] = load_settings,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._apply = apply
        self._count = count
        self._load = load
        self._sleep = sleep
        self._seen = _fingerprint()

    async def run(self) -> None:
        """Check the file again and again, until cancelled."""
        while True:
            await self._sleep(_CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """Check the file once, and apply a change. A thread reads the file, so that the event loop doesn't wait for it."""
        found = await asyncio.to_thread(_fingerprint)
        if found == self._seen:
            return
        self._seen = found
        try:
            settings, kept = reloaded(self._settings, await asyncio.to_thread(self._load))
            self._apply(settings)
        except SettingsError as error:
            self._count("refused")
            logger.error("the configuration has changed and can't be used; the settings in force stay: %s", error)
            return
        except Exception:  # a bug in reading the file mustn't end this task, since that would end the operator
            self._count("refused")
            logger.exception("the configuration has changed and can't be read; the settings in force stay")
            return
        known = set(self._settings.warnings)
        self._settings = settings
        self._count("applied")
        logger.info("the configuration has changed and is in force")
        for warning in (*kept, *(each for each in settings.warnings if each not in known)):
            logger.warning("configuration: %s", warning)


def _fingerprint() -> str:
    """Return a hash of the configuration file's content; the error if it can't be read, and an empty string if no file is named."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            return hashlib.sha256(file.read(MOST_BYTES + 1)).hexdigest()
    except OSError as error:
        return error.strerror or type(error).__name__
