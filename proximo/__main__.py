"""`python -m proximo` is the command proximo."""

import sys

from proximo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
