// SPDX-License-Identifier: BSD-2-Clause
// topology FILE: writes this machine's topology, with its PCI devices, for an MPI whose own hwloc
// finds none of them.
#include <hwloc.h>
#include <stdio.h>

int main(int argc, char** argv) {
    hwloc_topology_t topology;
    if (argc != 2) {
        fprintf(stderr, "usage: topology FILE\n");
        return 2;
    }
    if (hwloc_topology_init(&topology) != 0 ||
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) != 0 ||
        hwloc_topology_load(topology) != 0 ||
        hwloc_topology_export_xml(topology, argv[1], 0) != 0) {
        perror("topology");
        return 1;
    }
    hwloc_topology_destroy(topology);
    return 0;
}
