# SPDX-License-Identifier: BSD-2-Clause
"""softhca, a software ConnectX beneath unmodified rdma-core, for tests.

    import softhca

    fabric = softhca.Fabric()
    fabric.run(["ibv_devinfo"], check=True)

Processes that are started on one fabric reach each other. pytest has a fixture `softhca_fabric` that
is one for each test. Standard library only. Fabrics may be used by several threads.
"""

import os
import shutil
import subprocess
import sys
import uuid

__all__ = ["Fabric", "command"]


def command():
    """The path of the command `softhca`: beside this Python, or in PATH. Raises FileNotFoundError."""
    beside = os.path.join(os.path.dirname(sys.executable), "softhca")
    found = beside if os.access(beside, os.X_OK) else shutil.which("softhca")
    if not found:
        raise FileNotFoundError(f"no softhca at {beside} or in PATH")
    return found


class Fabric:
    """A software HCA of its own. options: words of `softhca run`, as ("--port", "roce")."""

    def __init__(self, name=None, options=()):
        self.name = name or f"py-{uuid.uuid4().hex[:16]}"
        self.options = tuple(map(str, options))

    def argv(self, argv):
        """What has to be executed for `argv` to run on this fabric."""
        return [command(), "run", "--fabric", self.name, *self.options, "--", *map(str, argv)]

    def run(self, argv, **keywords):
        """As subprocess.run(), of a program on this fabric."""
        return subprocess.run(self.argv(argv), **keywords)

    def start(self, argv, **keywords):
        """As subprocess.Popen(), of a program on this fabric."""
        return subprocess.Popen(self.argv(argv), **keywords)

    def stat(self):
        """What `softhca stat` says of it, as a dict; None if no process uses it."""
        import json
        done = subprocess.run([command(), "stat", "--json", "--fabric", self.name], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def clean(self):
        """Removes what killed processes have left of it."""
        subprocess.run([command(), "clean", "--fabric", self.name], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
