"""The Django project: everything that knows HTTP or WebSockets.

`tenants` and `inference` lie beside platform/, at the root. A server started by hand inside platform/ finds this package alone, so the
root is added here where it is missing.
"""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)
