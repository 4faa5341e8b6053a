"""Print the section of CHANGELOG.md about a version, for the page of its release.

    python .ci/notes.py VERSION REPOSITORY

The title of the section has the version and a date: `## [1.2.3] - 2026-12-31`. A version without a date can't be released.
"""

import re
import sys
from datetime import date

from distributions import ROOT, with_absolute_links


def main(version: str, repository: str) -> str:
    """Return the section of ``version``, with links to the files at its tag. Exits with a message if the section or its date is missing."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\] - ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"notes: CHANGELOG.md has no section `## [{version}] - DATE`")
    try:
        date.fromisoformat(found[1].strip())
    except ValueError:
        sys.exit(f"notes: CHANGELOG.md dates {version} `{found[1]}`, which is not a date such as 2026-12-31")
    return with_absolute_links(found[2].strip(), f"{repository}/blob/v{version}")


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]) + "\n")
