"""Wait for the API server at startup, or until it serves a kind of objects, before the tasks that need it begin."""

import asyncio
import logging
from collections.abc import Callable

from allaboard.kube.client import ApiError, ApiServer, kubeconfig_in_use
from allaboard.kube.paths import NODES, ApiPath
from allaboard.kube.retry import Sleep

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 8.0
_READABLE_SECONDS = 30.0  # the pause between two tries to list objects


class UnreachableError(Exception):
    """No API server answers at the address, or another program does. The message is one line: the problem, the address, and the remedy."""


async def reach(server: ApiServer, seconds: float, sleep: Sleep = asyncio.sleep) -> None:
    """Wait until the API server responds; a definite refusal (such as 403) counts as a response.

    Tries again for ``seconds``, and logs each failure. Raises ``UnreachableError`` after that.
    """
    clock = asyncio.get_running_loop().time
    end, pause = clock() + seconds, _FIRST_PAUSE_SECONDS
    while True:
        try:
            await server.get(NODES.everywhere, {"limit": "1"})
            return
        except ApiError as error:
            if error.status and not error.is_transient:
                return
            problem = " ".join(str(error).split())
            left = end - clock() if error.is_transient else 0.0
        if left <= 0:
            raise UnreachableError(_explained(server, problem))
        logger.warning("%s; trying again for %.0f s", problem, left)
        await sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


async def until_readable(
    server: ApiServer, path: ApiPath, sleep: Sleep = asyncio.sleep, on_refusal: Callable[[ApiError], None] = lambda error: None
) -> None:
    """Wait until objects can be listed. A missing CRD or a missing right is normal here, and isn't logged as a warning.

    ``on_refusal`` is called with the error of each try.
    """
    while True:
        try:
            await server.get(path, {"limit": "1"})
        except ApiError as error:
            logger.debug("%s: %s", path, error)
            on_refusal(error)
            await sleep(_READABLE_SECONDS)
        else:
            return


def _explained(server: ApiServer, problem: str) -> str:
    kubeconfig, host = kubeconfig_in_use(server.kubeconfig), server.configuration.host
    if not kubeconfig:
        return f"the pod's service account leads to {host}, and {problem}"
    return f"{kubeconfig} leads to {host}, and {problem}; start that cluster, or set KUBECONFIG to that of another"
