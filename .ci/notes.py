"""Prints what CHANGELOG.md says of a version that is being released, for the page of the release.

    python .ci/notes.py VERSION REPOSITORY

The section's title is the version and a date, `## 1.2.3 - 2026-12-31`: a version that is not said to be released isn't.
"""

import re
import sys
from datetime import date

from distributions import ROOT, with_absolute_links


def main(version: str, repository: str) -> str:
    """The section of ``version``, whose links lead to the project at its tag. Exits with a sentence where there is none with a date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)} - ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"notes: CHANGELOG.md has no section `## {version} - DATE`")
    try:
        date.fromisoformat(found[1].strip())
    except ValueError:
        sys.exit(f"notes: CHANGELOG.md dates {version} `{found[1]}`, which is no date such as 2026-12-31")
    return with_absolute_links(found[2].strip(), f"{repository}/blob/v{version}")


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]) + "\n")
