#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""rdma-core's example programs on softhca: ibv_devices, ibv_devinfo -v and the five ping-pongs,
polling and sleeping on events, received buffers validated where the program offers it.

The same cases over a newer rdma-core: run_rdma_core.py.
"""

import sys

import ibv_cases
from harness import Suite


def main():
    suite = Suite("ibv", __doc__.partition("\n\n")[0])
    ibv_cases.add(suite)
    return suite.main()


if __name__ == "__main__":
    sys.exit(main())
