"""``python -m pdnn``: the command line."""

import sys

from pdnn.cli import main

sys.exit(main())
