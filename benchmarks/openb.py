"""Finds the openb trace (Weng et al., USENIX ATC'23). Its licence is for research only, so the trace isn't in this repository."""

import argparse
import os
from pathlib import Path

ALL_NODES = "openb_node_list_all_node.csv"
GPU_NODES = "openb_node_list_gpu_node.csv"
TASKS = "openb_pod_list_default.csv"


def openb(name: str) -> Path | None:
    """Return a file of the trace in the folder that OPENB names; None if OPENB isn't set. Ends the program if the file doesn't exist."""
    folder = os.environ.get("OPENB")
    if not folder:
        return None
    path = Path(folder, name)
    if not path.is_file():
        raise SystemExit(f"Error: OPENB must name the folder of the trace, but {path} doesn't exist")
    return path


def existing(name: str) -> Path:
    """Return the file that an option of argparse names. Raises ``ArgumentTypeError`` if there is none."""
    path = Path(name)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {name}")
    return path
