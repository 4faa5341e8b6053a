"""Takes a changed configuration file while the scheduler runs; nothing that it remembers is lost.

What a file says is looked at, not when it was written: a ConfigMap that is mounted changes by a symbolic link. A file that can't be used
changes nothing, and the log says why, once for each content.
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

_LOOK_SECONDS = 5.0

AT_RUN_TIME = frozenset({"objective", "topology", "packing", "gpu", "schedule_timeout_seconds"})
"""Options that a changed file changes at once, as it does profiles; others hold from the next start on."""


def taken_from(old: Settings, new: Settings) -> tuple[Settings, tuple[str, ...]]:
    """``old`` with what of ``new`` can be had at run time, and in words what stays as it is instead.

    A name that is ours and has no profile any more keeps the one it had: its pods would be placed otherwise by a slip. Raises
    ``SettingsError`` if the file states nothing.
    """
    if not new.in_force.is_stated:
        raise SettingsError(f"{os.environ.get(CONFIG_VARIABLE)}: states nothing; was it cut off?")
    changed = old.model_copy(update={name: getattr(new, name) for name in AT_RUN_TIME})
    profiles = {name: profile for name, profile in {**old.profiles, **new.profiles}.items() if name in old.scheduler_names}
    options = sorted(name for name in Settings.model_fields.keys() - AT_RUN_TIME if getattr(old, name) != getattr(new, name))
    kept = (
        *(f"{name}: has changed, and stays as it was until the operator starts again" for name in options),
        *(
            f"{shown(name)} has no profile in the file any more; it keeps its scoring until the operator starts again"
            for name in profiles
            if name not in new.profiles
        ),
        *(f"{shown(name)} isn't ours until the operator starts again" for name in new.scheduler_names if name not in old.scheduler_names),
    )
    return changed.with_profiles(replace(new.in_force, names=old.scheduler_names, profiles=profiles)), kept


class Reloading:
    """Looks at the file now and then; ``apply`` is given the settings that are to hold from now on.

    ``count`` is told of each change of the file: ``applied`` or ``refused``.
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
        """Look until cancelled."""
        while True:
            await self._sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once, and take what has changed. The file is read beside the event loop."""
        found = await asyncio.to_thread(_fingerprint)
        if found == self._seen:
            return
        self._seen = found
        try:
            settings, kept = taken_from(self._settings, await asyncio.to_thread(self._load))
            self._apply(settings)
        except SettingsError as error:
            self._count("refused")
            logger.error("the configuration has changed and can't be used; what was in force stays so: %s", error)
            return
        except Exception:  # a defect of ours in reading a file mustn't end the operator, which this task's end does
            self._count("refused")
            logger.exception("the configuration has changed and can't be read; what was in force stays so")
            return
        known = set(self._settings.warnings)
        self._settings = settings
        self._count("applied")
        logger.info("the configuration has changed and is in force")
        for warning in (*kept, *(each for each in settings.warnings if each not in known)):
            logger.warning("configuration: %s", warning)


def _fingerprint() -> str:
    """Of what the file says; without a file, or one that can't be read, what is wrong with it."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            return hashlib.sha256(file.read(MOST_BYTES + 1)).hexdigest()
    except OSError as error:
        return error.strerror or type(error).__name__
