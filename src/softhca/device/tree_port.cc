// SPDX-License-Identifier: BSD-2-Clause
// What the discovery tree has of a port, and how it changes: see tree_port.h. Counter files exist
// because monitors expect them, but they stay zero: the traffic of the fabric is counted in its
// segment (`softhca stat`).
#include "softhca/device/tree_port.h"

#include <new>

namespace softhca::device {

namespace {

std::string port_path(const Port& port) {
    return pci_path(port.device()) + "/infiniband/" + device_name(port.device()).c_str() +
           "/ports/" + tree_number(port.number());
}

void write_link(TreeWriter& w, const std::string& path, const Port& port) {
    w.line(path + "/state", port.is_up() ? "4: ACTIVE" : "1: DOWN");
    w.line(path + "/phys_state", port.is_up()         ? "5: LinkUp"
                                 : port.is_ethernet() ? "3: Disabled"
                                                      : "2: Polling");
}

// InfiniBand GIDs have the type name of RoCE v1, for historical reasons. None of them has a network
// device, so gid_attrs/ndevs has no readable entry.
void write_gids(TreeWriter& w, const std::string& path, const Port& port) {
    for (unsigned i = 0; i < kGidTableLength; ++i) {
        const GidEntry entry = port.gid(i);
        w.line(path + "/gids/" + tree_number(i), "%s", gid_groups(entry.high, entry.low).c_str());
        const std::string type = path + "/gid_attrs/types/" + tree_number(i);
        if (port.is_ethernet() && entry.type == GidType::kNone)
            w.absent(type);  // the kernel answers EINVAL here
        else
            w.line(type, entry.type == GidType::kV2 ? "RoCE v2" : "IB/RoCE v1");
    }
}

}  // namespace

void write_port(TreeWriter& w, const Port& described) {
    const std::string port = port_path(described);
    const bool ethernet = described.is_ethernet();
    w.directory(port);
    write_link(w, port, described);
    w.line(port + "/rate", "200 Gb/sec (4X HDR)");
    w.line(port + "/lid", "0x%x", described.lid());
    w.line(port + "/sm_lid", "0x%x", described.sm_lid());
    w.line(port + "/lid_mask_count", "0");
    w.line(port + "/sm_sl", "0");
    w.line(port + "/cap_mask", "0x%08x", described.capabilities());
    w.line(port + "/link_layer", ethernet ? "Ethernet" : "InfiniBand");
    w.directory(port + "/gids");
    w.directory(port + "/gid_attrs/types");
    w.directory(port + "/gid_attrs/ndevs");
    write_gids(w, port, described);
    w.directory(port + "/pkeys");
    for (unsigned i = 0; i < described.pkey_table_length(); ++i) {
        w.line(port + "/pkeys/" + tree_number(i), "0x%04x", i == 0 ? kDefaultPkey : 0);
    }

    // The IBTA counters PortCounters and PortCountersExtended, then those that mlx5_ib adds.
    w.directory(port + "/counters");
    for (const char* name : {"VL15_dropped",
                             "excessive_buffer_overrun_errors",
                             "link_downed",
                             "link_error_recovery",
                             "local_link_integrity_errors",
                             "multicast_rcv_packets",
                             "multicast_xmit_packets",
                             "port_rcv_constraint_errors",
                             "port_rcv_data",
                             "port_rcv_errors",
                             "port_rcv_packets",
                             "port_rcv_remote_physical_errors",
                             "port_rcv_switch_relay_errors",
                             "port_xmit_constraint_errors",
                             "port_xmit_data",
                             "port_xmit_discards",
                             "port_xmit_packets",
                             "port_xmit_wait",
                             "symbol_error",
                             "unicast_rcv_packets",
                             "unicast_xmit_packets"}) {
        w.line(port + "/counters/" + name, "0");
    }
    w.directory(port + "/hw_counters");
    for (const char* name :
         {"duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer",
          "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
          "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error",
          "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors",
          "rnr_nak_retry_err", "rx_atomic_requests", "rx_read_requests", "rx_write_requests"}) {
        w.line(port + "/hw_counters/" + name, "0");
    }
    w.line(port + "/hw_counters/lifespan", "10");
}

int change_port(const std::string& root, const Port& port) noexcept {
    const int fd = libc::open(root.c_str(), kTreeDirectoryFlags);
    if (fd < 0) return errno;
    int error = ENOMEM;
    try {
        TreeWriter w(fd, TreeWriter::Mode::kChange);
        const std::string path = port_path(port);
        write_link(w, path, port);
        write_gids(w, path, port);
        error = w.error();
    } catch (const std::bad_alloc&) {
    }
    libc::close(fd);
    return error;
}

}  // namespace softhca::device
