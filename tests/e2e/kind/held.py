"""Runs runc with only the capabilities that this machine grants.

For privileged containers docker requests all capabilities that it knows, and runc refuses those that the machine doesn't grant.
"""

import json
import os
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

# By number: https://github.com/torvalds/linux/blob/master/include/uapi/linux/capability.h
_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN "
    "NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME "
    "SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ "
    "PERFMON BPF CHECKPOINT_RESTORE"
)


def held() -> set[str]:
    """Return the capabilities that this machine grants."""
    found = re.search(r"^CapBnd:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    bits = int(found.group(1), 16) if found else -1
    return {f"CAP_{name}" for bit, name in enumerate(_NAMES.split()) if bits >> bit & 1}


def trim(process: dict[str, Any]) -> None:
    """Remove the capabilities that this machine doesn't grant from a process of the runtime specification."""
    sets, available = process.get("capabilities") or {}, held()
    for kind, names in sets.items():
        sets[kind] = [name for name in names or () if name in available]


def main(words: list[str]) -> None:
    """Replace this process by runc with the arguments ``words``.

    Before that, capabilities that this machine doesn't grant are removed from the container or process that runc is to run.
    """
    for option, value in pairwise(words):
        if option in ("--bundle", "-b", "--process", "-p"):
            is_bundle = option in ("--bundle", "-b")
            path = Path(value, "config.json") if is_bundle else Path(value)
            described = json.loads(path.read_text())
            trim((described.get("process") or {}) if is_bundle else described)
            path.write_text(json.dumps(described))
    runc = shutil.which("runc") or "/usr/sbin/runc"
    os.execv(runc, [runc, *words])


if __name__ == "__main__":
    main(sys.argv[1:])
