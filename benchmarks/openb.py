"""Where the openb trace is (Weng et al., USENIX ATC'23). Its licence is for research, so it isn't in this repository."""

import os
from pathlib import Path

ALL_NODES = "openb_node_list_all_node.csv"
GPU_NODES = "openb_node_list_gpu_node.csv"
TASKS = "openb_pod_list_default.csv"


def openb(name: str) -> Path | None:
    """A file of the trace in the folder that OPENB names; ``None`` when it names none."""
    folder = os.environ.get("OPENB")
    return Path(folder, name) if folder else None
