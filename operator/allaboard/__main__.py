"""Run the ``allaboard`` command as ``python -m allaboard``."""

from allaboard.cli.main import main

if __name__ == "__main__":  # a spawned worker imports this module under another name
    main()
