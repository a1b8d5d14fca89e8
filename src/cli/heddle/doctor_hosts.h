// SPDX-License-Identifier: BSD-2-Clause
// `heddle doctor` for several hosts: each is examined there, then hosts are compared, then each
// pair exchanges messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/heddle/doctor.h"
#include "cli/heddle/host_agents.h"
#include "cli/heddle/hosts.h"

namespace heddle::cli {

struct HostsRequest {
    DoctorRequest doctor;
    HostList hosts;
    std::string ssh;
    unsigned timeout_s = 30;  // for the report of a host, and for the messages of a pair
};

// What hosts or a pair of them do not have in common, with what to do.
struct HostsFinding {
    Severity verdict;
    std::string seen, remedy;
};

class HostsCheckup {
public:
    // Starts the agents and waits for their reports. One thread.
    explicit HostsCheckup(const HostsRequest& request);

    // Lets each pair exchange messages; pairs without a host in common do so at once.
    void try_pairs();

    // "node1  heddle 0.2.0, libfabric 1.20, mlx5_0 ACTIVE, RoCE v2, MTU 4096": a line a host, then
    // its problems with what to do about each.
    std::string host_lines() const;
    // Comparisons and pairs.
    std::string other_lines() const;
    nlohmann::ordered_json to_json() const;
    unsigned problems() const noexcept { return problems_; }
    bool any_without_device() const;

private:
    struct Host {
        HostAgent agent;
        nlohmann::ordered_json report;  // null: it did not answer
        std::string why;
        std::string address() const;
    };
    struct Pair {
        std::size_t a = 0, b = 0;
        bool is_tried = true;  // false: one of them has no endpoint
        std::string error;     // empty: messages went both ways
        double small_us = 0, large_us = 0;
    };

    void compare(const char* key, const char* what, Severity verdict, const char* remedy);
    void compare_hosts();
    void try_round(const std::vector<std::pair<std::size_t, std::size_t>>& round);

    HostsRequest request_;
    std::vector<Host> hosts_;
    std::vector<HostsFinding> findings_;
    std::vector<Pair> pairs_;
    unsigned problems_ = 0;
};

// The agent's part: reads commands from standard input until it ends. Returns an exit status.
int serve_pairs(FabricProbe* probe);
// Writes a line that HostAgent::read() returns.
void print_for_launcher(const nlohmann::ordered_json& line);

}  // namespace heddle::cli
