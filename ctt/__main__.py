"""``python -m ctt`` is ``ctt``."""

import sys

from ctt.cli.main import main

sys.exit(main())
