"""Where the openb trace is (Weng et al., USENIX ATC'23). Its licence is for research, so it isn't in this repository."""

import argparse
import os
from pathlib import Path

ALL_NODES = "openb_node_list_all_node.csv"
GPU_NODES = "openb_node_list_gpu_node.csv"
TASKS = "openb_pod_list_default.csv"


def openb(name: str) -> Path | None:
    """A file of the trace in the folder that OPENB names; ``None`` when it names none. Ends the program when it isn't there."""
    folder = os.environ.get("OPENB")
    if not folder:
        return None
    path = Path(folder, name)
    if not path.is_file():
        raise SystemExit(f"Error: OPENB must name the folder of the trace, and {path} isn't there")
    return path


def existing(name: str) -> Path:
    """A file that an option names, for argparse."""
    path = Path(name)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {name}")
    return path
