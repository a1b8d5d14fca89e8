# SPDX-License-Identifier: BSD-2-Clause
"""`heddle reproduce --hosts FILE`: experiments between processes that mpiexec starts on several hosts. Each line of
the file begins with a host. All of them see the folders of heddle, of --out and of $TMPDIR under the same names."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from .samples import Broken

KERNELS = ("message-rate", "global-array", "stencil")  # of `heddle bench`: each is one of mpiexec's processes
VARIABLE = "HEDDLE_HOSTS"  # names with commas; tests/mpi/mpis.py reads it
LOCAL = ("localhost", "127.0.0.1", "::1")
MANY = 1024  # processes of a host: without a number Open MPI starts one


class Hosts:
    """Those of a file, and the mpiexec that is found first. Throws Broken."""

    def __init__(self, path):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Broken(f"--hosts {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
        lines = (line.partition("#")[0].split() for line in text.splitlines())
        self.names = list(dict.fromkeys(words[0] for words in lines if words))
        if not self.names:
            raise Broken(f"--hosts {path}: there is no host in it; each line begins with one")
        self.mpiexec = shutil.which("mpiexec") or shutil.which("mpirun")
        if self.mpiexec is None:
            raise Broken("--hosts: there is no mpiexec in PATH, which starts processes on other hosts")
        said = subprocess.run([self.mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
        self.is_openmpi = any(name in said for name in ("Open MPI", "OpenRTE", "PRRTE"))

    @property
    def text(self):
        return ",".join(self.names)

    @property
    def others(self):
        """The hosts that are not this one."""
        here = {*LOCAL, platform.node(), platform.node().partition(".")[0]}
        return [name for name in self.names if name not in here]

    def words(self, processes):
        """Before a program that takes part as so many processes, on one host after the other."""
        return [self.mpiexec, *on_hosts(self.names, self.is_openmpi), "-n", str(processes)]


def on_hosts(names, is_openmpi):
    """Options of mpiexec. Open MPI's hands on named variables only."""
    if not is_openmpi:
        return ["-hosts", ",".join(names), "-ppn", "1"]
    words = ["--host", ",".join(f"{name}:{MANY}" for name in names), "--map-by", "node", "--oversubscribe",
             "--bind-to", "none", "-x", "FI_*", "-x", "HEDDLE_*"]
    return [*words, "--allow-run-as-root"] if os.geteuid() == 0 else words


def processes_of(command):
    """How many processes of an experiment's command mpiexec has to start; 0: it is not for mpiexec."""
    if command[:1] != ["bench"] or command[1] not in KERNELS:
        return 0
    return int(command[command.index("--processes") + 1]) if "--processes" in command else 2
