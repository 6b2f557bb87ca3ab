"""`python -m hybrisfs.daemon`: see `hybrisfs.daemon.main`."""

from __future__ import annotations

import sys

from hybrisfs.daemon.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
