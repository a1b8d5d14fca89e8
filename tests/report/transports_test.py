# SPDX-License-Identifier: BSD-2-Clause
"""bench/mpi/transports.py: what it understands of what a job says that tries a peer."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "mpi"))
import transports  # noqa: E402

# UCX 1.20 and 1.13, with UCX_LOG_LEVEL=info.
TIME = "[1795727211.763179] [vm:23047:0]"
SELF = f"{TIME} ucp_worker.c:1912 UCX  INFO    ucp_context_0 self cfg#0 tag(self/memory rc_verbs/mlx5_0:1)\n"
LANES = f"{TIME} ucp_worker.c:1912 UCX  INFO    ucp_context_0 intra-node cfg#1 tag(NAME/mlx5_0:1)  rma(NAME/mlx5_0:1)\n"
OLD_LANES = f"{TIME} ucp_worker.c:1720 UCX  INFO  ep_cfg[1]: tag(NAME/mlx5_0:1);\n"
NO_TRANSPORT = (f"{TIME} ucp_context.c:1381 UCX  WARN  transports 'dc_mlx5','dc_mlx5' are not available, please use one or "
                "more of: rc_mlx5\n")
NO_CACHE = f"{TIME} ucp_context.c:2521 UCX  DIAG  could not create UCP registration cache: Unsupported operation\n"
TURN = "turn latency 8 2.2e-06\n"


def lanes(name, text=LANES):
    return text.replace("NAME", name)


class Tried(unittest.TestCase):
    def test_what_is_there(self):
        for text in (LANES, OLD_LANES):
            self.assertEqual(transports.why_useless("rc_verbs", SELF + lanes("rc_verbs", text) + TURN, 0), "")
        for peer in transports.OF_LIBFABRIC:
            self.assertEqual(transports.why_useless(peer, TURN, 0), "")

    def test_ucx_takes_another_transport(self):
        """It does its work, and would be measured under a name that is not its own."""
        said = transports.why_useless("dc_mlx5", SELF + lanes("ud_mlx5") + TURN, 0)
        self.assertEqual(said, "UCX takes ud_mlx5 instead")
        said = transports.why_useless("dc_mlx5", NO_TRANSPORT + lanes("ud_mlx5") + TURN, 0)
        self.assertEqual(said, "UCX: transports 'dc_mlx5','dc_mlx5' are not available")
        self.assertNotEqual(transports.why_useless("rc_mlx5", SELF + lanes("rc_verbs") + TURN, 0), "")

    def test_ucx_without_its_registration_cache(self):
        said = transports.why_useless("rc_verbs", NO_CACHE + lanes("rc_verbs") + TURN, 0)
        self.assertEqual(said, "UCX has no registration cache here")

    def test_jobs_that_fail(self):
        mpich = ("libfabric:1:2:ofi_rxm:verbs:fabric:vrb_get_rai_id():290<warn> rdma_create_id: Cannot allocate memory (12)\n"
                 "find_provider(132).........: OFI call getinfo failed (default nic=(n/a): No data available)\n")
        self.assertEqual(transports.why_useless("rxm", mpich, 15), "rdma_create_id: Cannot allocate memory (12)")
        openmpi = "-----\nNo components were able to be opened in the pml framework.\n\n  Host:  vm\n-----\n"
        self.assertEqual(transports.why_useless("shm", openmpi, 1), "No components were able to be opened in the pml framework")
        self.assertEqual(transports.why_useless("tcp", "something else  \n----\n", 1), "something else")
        self.assertEqual(transports.why_useless("tcp", "", 1), "it said nothing")

    def test_jobs_that_do_not_end(self):
        self.assertIn("does not end within", transports.why_useless("tcp", "", None))
        # MPICH's mpiexec may wait for ever once a rank has ended in error.
        self.assertIn("not available", transports.why_useless("dc_mlx5", NO_TRANSPORT, None))
        self.assertIn("does not end within", transports.why_useless("rc_verbs", lanes("rc_verbs"), None))

    def test_environments(self):
        mpi = SimpleNamespace(key="mpich", is_openmpi=False, environment=lambda provider, **more: {"FI_PROVIDER": provider})
        for peer, lists in (("rc_verbs", "rc_verbs,ud_verbs,self"), ("rc_mlx5", "rc_mlx5,ud_mlx5,self"),
                            ("dc_mlx5", "dc_mlx5,ud_mlx5,self")):
            found = transports.environment_of(mpi, peer, "lib")
            self.assertEqual((found["UCX_TLS"], found["MPIR_CVAR_NOLOCAL"]), (lists, "1"))
        with mock.patch.object(transports, "with_devices", return_value={"HWLOC_XMLFILE": "file"}):
            self.assertEqual(transports.environment_of(mpi, "rxm", "lib"),
                             {"FI_PROVIDER": "verbs;ofi_rxm", "HWLOC_XMLFILE": "file"})
            self.assertEqual(transports.environment_of(mpi, "tcp", "lib"), {"FI_PROVIDER": "tcp"})
        with tempfile.TemporaryDirectory() as folder:
            self.assertNotIn("LD_PRELOAD", transports.environment_of(mpi, "heddle", folder))
            library = Path(folder) / "libheddle-yield.so"
            library.touch()
            for before, after in (("", str(library)), ("libsofthca.so", f"{library}:libsofthca.so")):
                with mock.patch.dict(os.environ, {"LD_PRELOAD": before}):
                    self.assertEqual(transports.environment_of(mpi, "heddle", folder)["LD_PRELOAD"], after)


if __name__ == "__main__":
    unittest.main(verbosity=2)
