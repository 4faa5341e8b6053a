"""Write the dashboard and the alerts of config/ from the definitions of the metrics, the panels and the alerts.

``python -m tests.monitoring`` writes the files; tests/unit/test_monitoring.py requires that they are current.
"""

from pathlib import Path

from tests.monitoring.files import written

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Write all files."""
    for path, content in written().items():
        (ROOT / path).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
