"""What an image of a role has at run time, as lines of a lock file: `python deploy/image/runtime_lock.py ROLE LOCK`.

`deploy/Containerfile` calls it with a Python that has everything of the lock file installed; `__main__` installs the
same into images that are made without a container engine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from layers import pinned
from roles import ROLES, distributions_of

if __name__ == "__main__":
    role, lock = sys.argv[1:]
    sys.stdout.write(pinned(Path(lock).read_text(), distributions_of(ROLES[role], Path.cwd())))
