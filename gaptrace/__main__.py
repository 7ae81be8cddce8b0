"""``python -m gaptrace`` is the ``gaptrace`` command."""

import sys

from gaptrace.cli import main

sys.exit(main())
