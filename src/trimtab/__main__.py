"""`python -m trimtab`, as launchers such as torchrun start it."""

import sys

from trimtab.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
