// SPDX-License-Identifier: BSD-2-Clause
// `heddle doctor`: what would stop a job on this host, and what to do about it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/heddle/fabric_probe.h"
#include "heddle/device.h"
#include "provider/options.h"
#include "verbs/handles.h"

namespace heddle::cli {

enum class Severity : std::uint8_t { kOk, kNote, kProblem };
const char* text_of(Severity verdict) noexcept;  // "ok", "note", "PROBLEM"

std::string times_text(std::uint64_t count, const char* what);  // "1 rank", "2 ranks"

struct Diagnosis {
    const char* name;  // "port"
    Severity verdict;
    std::string seen;    // the cause, in a line
    std::string remedy;  // what to do; empty if there is nothing to do
};

struct DoctorRequest {
    std::string device;         // as of heddle::device(); empty: FI_HEDDLE_DEVICE, or any
    std::uint32_t ranks = 0;    // of the job; 0: as many as this host has processors
    std::uint32_t hosts = 1;    // over which the ranks are spread
    std::uint32_t threads = 1;  // of a rank that call MPI at once
    std::string libfabric = "libfabric.so.1";
    std::uint32_t ranks_here() const noexcept { return (ranks + hosts - 1) / hosts; }
};

// Runs the checks of one host in their order. Each check uses what those before it have found. One
// thread, once in a process: the options of the environment become those of the process.
class Checkup {
public:
    explicit Checkup(const DoctorRequest& request);

    const std::vector<Diagnosis>& diagnoses() const noexcept { return diagnoses_; }
    unsigned problems() const noexcept;
    // The findings, and what hosts are compared by: version, device, port, MTU, ...
    nlohmann::ordered_json report() const;
    // The endpoint that the check "loop" used. nullptr: there is none.
    FabricProbe* probe() noexcept { return probe_.get(); }

private:
    void ok(const char* name, const std::string& seen);
    void note(const char* name, const std::string& seen, const std::string& remedy);
    void problem(const char* name, const std::string& seen, const std::string& remedy);

    // doctor_checks.cc: the host and its device.
    void check_options();
    void check_device();
    void check_port();
    void check_address();
    void check_mtu();
    void check_fork();
    // doctor_limits.cc: the size of the job, and by what its messages go.
    void check_transport();
    void check_memlock();
    void check_limits();
    // doctor_provider.cc: what libfabric makes of it.
    void check_shared_memory();
    void check_provider();
    void check_libfabric();
    void check_loop();

    DoctorRequest request_;
    provider::Options options_;
    std::vector<Diagnosis> diagnoses_;
    nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
    DeviceInfo device_;
    verbs::Context context_;  // nullptr: no device can be opened
    bool is_usable_ = false;  // a port is active and has an address
    std::string provider_;    // the folder of libheddle-fi.so; empty: it cannot be loaded
    std::unique_ptr<FabricProbe> probe_;
};

}  // namespace heddle::cli
