// SPDX-License-Identifier: BSD-2-Clause
// What a fabric holds at one moment, as plain values: `softhca stat` and `softhca top` print it.
// It is read while the device works, so it is exact for each number and only nearly simultaneous
// between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "softhca/device/segment.h"
#include "softhca/view/fabric_file.h"

namespace softhca::view {

struct CounterValues {
    std::uint64_t doorbells = 0, blueflame = 0, wqes = 0;
    std::uint64_t dma_read_wqe = 0, dma_read_payload = 0;
    std::uint64_t dma_write_payload = 0, dma_write_cqe = 0;
    std::uint64_t rnr_naks = 0, retries = 0;
    std::uint64_t bytes_sent = 0, bytes_resent = 0;

    void add(const device::Counters& counters);
    void add(const CounterValues& other);
    // What was counted since `earlier`; nothing where a counter went back (objects were closed and
    // their process ended between the two).
    CounterValues since(const CounterValues& earlier) const;
};

// One counter: how it is called in JSON, above a column of a table, and how it is read.
struct CounterField {
    const char* key;
    const char* heading;
    std::uint64_t CounterValues::*value;
};
extern const CounterField kCounterFields[11];

struct ProcessUse {
    std::uint32_t slot = 0, generation = 0;
    int pid = 0;
    bool alive = false;
    std::string command;
    std::uint64_t contexts = 0, pds = 0, mrs = 0, dms = 0, qps = 0, cqs = 0, srqs = 0, xrcds = 0,
                  channels = 0;
    std::uint64_t uar_pages = 0, uuars = 0;  // uuars: those that a queue pair uses
    std::uint64_t mr_bytes = 0, dm_bytes = 0, queue_bytes = 0, shared_bytes = 0, pinned_bytes = 0;
    CounterValues counters;  // of its contexts
};

struct ContextUse {
    std::uint32_t index = 0, slot = 0;
    std::uint32_t device = 0;  // which of the fabric's
    int pid = 0;
    bool static_uars = false;
    std::uint64_t uar_pages = 0, uuars = 0, qps = 0, cqs = 0, srqs = 0;
    CounterValues counters;  // of its objects, also of those that were destroyed
};

struct QpUse {
    std::uint32_t number = 0, context = 0;
    int pid = 0;
    const char* type = "";
    const char* state = "";
    std::uint32_t remote_number = 0;  // 0: not connected
    std::uint32_t send_wr = 0, receive_wr = 0;
    std::uint32_t uar_page = 0, uuar = 0;
    bool blueflame = false;
    CounterValues counters;
};

struct CqUse {
    std::uint32_t number = 0, context = 0;
    int pid = 0;
    std::uint32_t entries = 0, entry_bytes = 0;
    bool overrun = false;
    CounterValues counters;
};

struct SrqUse {
    std::uint32_t number = 0, context = 0;
    int pid = 0;
    const char* type = "";
    std::uint32_t wr = 0, limit = 0;
    CounterValues counters;
};

// An id of rdma_cm.
struct ConnectionUse {
    std::uint32_t number = 0;
    int pid = 0;
    const char* space = "";
    const char* state = "";
    std::string source, destination;  // "127.0.0.1:7471"; empty without an address
};

struct Snapshot {
    std::string fabric;
    std::uint64_t age_ns = 0;
    std::vector<ProcessUse> processes;
    std::vector<ContextUse> contexts;
    std::vector<QpUse> qps;
    std::vector<CqUse> cqs;
    std::vector<SrqUse> srqs;
    std::vector<ConnectionUse> connections;
};

Snapshot take_snapshot(const FabricFile& fabric, const device::Segment& segment);

// The snapshot of a fabric by name. Throws FabricError: if there is none, with the names of those
// there are; if another version of softhca made it.
Snapshot take_snapshot(const std::string& name);

}  // namespace softhca::view
