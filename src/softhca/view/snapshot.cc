// SPDX-License-Identifier: BSD-2-Clause
// Reading the segment. Nothing in it is trusted: it is mapped by processes that may be broken, so
// every index is checked and every text is bounded.
#include "softhca/view/snapshot.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>
#include <time.h>

#include <algorithm>
#include <map>

#include "softhca/base/assert.h"

namespace softhca::view {

const CounterField kCounterFields[11] = {
    {"doorbells", "doorbells", &CounterValues::doorbells},
    {"blueflame", "BlueFlame", &CounterValues::blueflame},
    {"wqes", "WQEs", &CounterValues::wqes},
    {"dma_read_wqe", "rd WQE", &CounterValues::dma_read_wqe},
    {"dma_read_payload", "rd data", &CounterValues::dma_read_payload},
    {"dma_write_payload", "wr data", &CounterValues::dma_write_payload},
    {"dma_write_cqe", "wr CQE", &CounterValues::dma_write_cqe},
    {"rnr_naks", "RNR", &CounterValues::rnr_naks},
    {"retries", "retries", &CounterValues::retries},
    {"bytes_sent", "bytes sent", &CounterValues::bytes_sent},
    {"bytes_resent", "resent", &CounterValues::bytes_resent},
};

void CounterValues::add(const device::Counters& counters) {
    const auto read = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    doorbells += read(counters.doorbells);
    blueflame += read(counters.blueflame);
    wqes += read(counters.wqes);
    dma_read_wqe += device::wqe_reads(counters);
    dma_read_payload += read(counters.dma_read_payload);
    dma_write_payload += read(counters.dma_write_payload);
    dma_write_cqe += read(counters.dma_write_cqe);
    rnr_naks += read(counters.rnr_naks);
    retries += read(counters.retries);
    bytes_sent += read(counters.bytes_sent);
    bytes_resent += read(counters.bytes_resent);
}

void CounterValues::add(const CounterValues& other) {
    for (const CounterField& field : kCounterFields)
        this->*field.value += other.*field.value;
}

CounterValues CounterValues::since(const CounterValues& earlier) const {
    static_assert(std::size(kCounterFields) * sizeof(std::uint64_t) == sizeof(CounterValues),
                  "each counter has a field");
    CounterValues difference;
    for (const CounterField& field : kCounterFields) {
        const std::uint64_t now = this->*field.value, then = earlier.*field.value;
        difference.*field.value = now > then ? now - then : 0;
    }
    return difference;
}

namespace {

const char* qp_type(std::uint32_t type) {
    switch (type) {
        case IB_UVERBS_QPT_RC:
            return "RC";
        case IB_UVERBS_QPT_UC:
            return "UC";
        case IB_UVERBS_QPT_UD:
            return "UD";
        case IB_UVERBS_QPT_RAW_PACKET:
            return "RAW";
        case IB_UVERBS_QPT_XRC_INI:
            return "XRC_INI";
        case IB_UVERBS_QPT_XRC_TGT:
            return "XRC_TGT";
        case device::kDciType:
            return "DCI";
        case device::kDctType:
            return "DCT";
        default:
            return "?";
    }
}

const char* qp_state(std::uint32_t state) {
    static const char* const kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return state < std::size(kNames) ? kNames[state] : "?";
}

// Only printable ASCII must reach a terminal or JSON: another process wrote the text.
std::string printable(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c < 0x20 || c > 0x7e) c = '?';
    return result;
}

const char* srq_type(std::uint32_t type) {
    return type == IBV_SRQT_BASIC ? "basic" : type == IBV_SRQT_XRC ? "XRC" : "?";
}

const char* port_space(std::uint32_t space) {
    switch (space) {
        case RDMA_PS_TCP:
            return "tcp";
        case RDMA_PS_UDP:
            return "udp";
        case RDMA_PS_IPOIB:
            return "ipoib";
        case RDMA_PS_IB:
            return "ib";
        default:
            return "?";
    }
}

const char* connection_state(device::CmState state) {
    constexpr const char* kNames[] = {"idle",    "bound",     "resolved",
                                      "routed",  "listening", "requested",
                                      "replied", "connected", "disconnected"};
    const auto index = static_cast<std::size_t>(state);
    return index < std::size(kNames) ? kNames[index] : "?";
}

std::string address_text(const device::CmAddress& address) {
    char text[INET6_ADDRSTRLEN];
    const bool is_ipv4 = address.family == AF_INET;
    if (!is_ipv4 && address.family != AF_INET6 && address.family != AF_IB) return {};
    if (inet_ntop(is_ipv4 ? AF_INET : AF_INET6, address.ip, text, sizeof text) == nullptr)
        return {};
    const std::string port = ":" + std::to_string(ntohs(address.port));
    return is_ipv4 ? text + port : "[" + std::string(text) + "]" + port;
}

class Reader {
public:
    Reader(const device::Segment& segment, Snapshot* out) : segment_(segment), out_(*out) {}

    void read_processes(const FabricFile& fabric) {
        const std::uint32_t high = std::min(segment_.processes_high.load(std::memory_order_acquire),
                                            device::kMaxProcesses);
        for (std::uint32_t slot = 0; slot < high; ++slot) {
            const device::Process& process = segment_.processes[slot];
            if (process.state.load(std::memory_order_acquire) == device::kFree) continue;
            SOFTHCA_ASSERT(!process_of_.contains(slot), "a slot is read once");
            process_of_[slot] = out_.processes.size();
            ProcessUse use;
            use.slot = slot;
            use.generation = process.generation.load(std::memory_order_relaxed);
            use.pid = process.pid;
            use.alive = fabric.alive(slot);
            const std::string_view command(process.command, sizeof process.command);
            use.command = printable(command.substr(0, command.find('\0')));
            use.shared_bytes = process.shared_bytes.load(std::memory_order_relaxed);
            use.pinned_bytes = process.pinned_pages.load(std::memory_order_relaxed) * 4096;
            out_.processes.push_back(use);
        }
    }

    void read_contexts() {
        SOFTHCA_ASSERT(out_.processes.size() == process_of_.size(), "processes are read first");
        each(segment_.contexts,
             [&](std::uint32_t i, const device::Context& item, ProcessUse& owner) {
                 SOFTHCA_ASSERT(!context_of_.contains(i), "a context is read once");
                 context_of_[i] = out_.contexts.size();
                 ContextUse use;
                 use.index = i;
                 use.slot = owner.slot;
                 use.device = std::min(item.device, device::kMaxDevices - 1);
                 use.pid = owner.pid;
                 use.static_uars = item.static_uars != 0;
                 use.counters.add(item.counters);
                 use.counters.add(item.retired_cq);
                 out_.contexts.push_back(use);
                 ++owner.contexts;
             });
    }

    void read_uars() {
        each(segment_.uars, [&](std::uint32_t, const device::UarPage& item, ProcessUse& owner) {
            std::uint64_t used = 0;
            for (const auto& users : item.users)
                if (users.load(std::memory_order_relaxed) != 0) ++used;
            ++owner.uar_pages;
            owner.uuars += used;
            if (ContextUse* context = context_of(item.head)) {
                ++context->uar_pages;
                context->uuars += used;
            }
        });
    }

    void read_qps() {
        each(segment_.qps, [&](std::uint32_t, const device::QueuePair& item, ProcessUse& owner) {
            if (item.alias_of != device::kNone) return;  // counted where it was made
            QpUse use;
            use.number = item.number;
            use.context = item.head.context;
            use.pid = owner.pid;
            use.type = qp_type(item.type);
            const std::uint32_t state = item.state.load(std::memory_order_relaxed);
            use.state = qp_state(state);
            const bool connected = item.type != IB_UVERBS_QPT_UD && item.type != device::kDciType &&
                                   item.type != device::kDctType && state >= IBV_QPS_RTR;
            use.remote_number = connected ? item.attr.dest_qpn : 0;
            use.send_wr = item.max_send_wr;
            use.receive_wr = item.max_recv_wr;
            use.uar_page = item.uar_page == device::kNone ? 0 : item.uar_page;
            use.uuar = item.uuar;
            use.blueflame = item.blueflame != 0;
            use.counters.add(item.send);
            use.counters.add(item.receive);
            ++owner.qps;
            owner.queue_bytes += item.buffer.length + item.record.length;
            if (ContextUse* context = context_of(item.head)) {
                ++context->qps;
                context->counters.add(use.counters);
            }
            out_.qps.push_back(use);
        });
    }

    void read_cqs() {
        each(segment_.cqs,
             [&](std::uint32_t, const device::CompletionQueue& item, ProcessUse& owner) {
                 CqUse use;
                 use.number = item.number;
                 use.context = item.head.context;
                 use.pid = owner.pid;
                 use.entries = item.cqe_count;
                 use.entry_bytes = item.cqe_size;
                 use.overrun = item.failed != 0;
                 use.counters.add(item.counters);
                 ++owner.cqs;
                 owner.queue_bytes += item.buffer.length + item.record.length;
                 if (ContextUse* context = context_of(item.head)) {
                     ++context->cqs;
                     context->counters.add(use.counters);
                 }
                 out_.cqs.push_back(use);
             });
    }

    void read_srqs() {
        each(segment_.srqs,
             [&](std::uint32_t, const device::SharedReceiveQueue& item, ProcessUse& owner) {
                 SrqUse use;
                 use.number = item.number;
                 use.context = item.head.context;
                 use.pid = owner.pid;
                 use.type = srq_type(item.type);
                 use.wr = item.max_wr;
                 use.limit = item.limit;
                 use.counters.add(item.counters);
                 ++owner.srqs;
                 owner.queue_bytes += item.buffer.length + item.record.length;
                 if (ContextUse* context = context_of(item.head)) {
                     ++context->srqs;
                     context->counters.add(use.counters);
                 }
                 out_.srqs.push_back(use);
             });
    }

    void read_connections() {
        each(segment_.cm_ids, [&](std::uint32_t index, const device::CmId& id, ProcessUse& owner) {
            out_.connections.push_back({index, owner.pid, port_space(id.port_space),
                                        connection_state(id.state), address_text(id.source),
                                        address_text(id.destination)});
        });
    }

    void read_the_rest() {
        for (const ContextUse& context : out_.contexts) {
            SOFTHCA_ASSERT(process_of_.contains(context.slot) || context.pid == 0,
                           "a context is of a process that was read");
        }
        each(segment_.pds, [](auto, const auto&, ProcessUse& owner) { ++owner.pds; });
        each(segment_.xrcd_handles, [](auto, const auto&, ProcessUse& owner) { ++owner.xrcds; });
        each(segment_.channels, [](auto, const auto&, ProcessUse& owner) { ++owner.channels; });
        each(segment_.mrs, [](auto, const device::MemoryRegion& item, ProcessUse& owner) {
            ++owner.mrs;
            owner.mr_bytes += item.length;
        });
        each(segment_.dms, [](auto, const device::DeviceMemory& item, ProcessUse& owner) {
            ++owner.dms;
            owner.dm_bytes += item.length;
        });
        for (const ContextUse& context : out_.contexts)
            for (ProcessUse& process : out_.processes)
                if (process.slot == context.slot) process.counters.add(context.counters);
    }

private:
    // Visits the live objects of a table. Objects without an owner are left out: they are XRC
    // targets that another process still uses. So are those of a process that has just joined,
    // until the next snapshot.
    template <class Table, class Visit>
    void each(const Table& table, Visit visit) {
        const std::uint32_t high =
            std::min(table.high.load(std::memory_order_acquire), Table::kSize);
        for (std::uint32_t i = 0; i < high; ++i) {
            const auto& item = table[i];
            if (!item.head.live()) continue;
            const auto owner = process_of_.find(item.head.owner());
            if (owner != process_of_.end())
                visit(i, item, out_.processes[owner->second]);
            else if (item.head.owner() == device::kNone)
                visit(i, item, nobody_);
        }
    }

    ContextUse* context_of(const device::ObjectHead& head) {
        const auto found = context_of_.find(head.context);
        SOFTHCA_ASSERT(context_of_.size() == out_.contexts.size(), "contexts are read first");
        return found == context_of_.end() ? nullptr : &out_.contexts[found->second];
    }

    const device::Segment& segment_;
    Snapshot& out_;
    ProcessUse nobody_;
    std::map<std::uint32_t, std::size_t> process_of_, context_of_;
};

}  // namespace

Snapshot take_snapshot(const FabricFile& fabric, const device::Segment& segment) {
    Snapshot snapshot;
    snapshot.fabric = fabric.name();
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::uint64_t now_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
                                 static_cast<std::uint64_t>(now.tv_nsec);
    snapshot.age_ns = now_ns > segment.created_ns ? now_ns - segment.created_ns : 0;
    Reader reader(segment, &snapshot);
    reader.read_processes(fabric);
    reader.read_contexts();
    reader.read_uars();
    reader.read_qps();
    reader.read_cqs();
    reader.read_srqs();
    reader.read_connections();
    reader.read_the_rest();
    return snapshot;
}

Snapshot take_snapshot(const std::string& name) {
    const std::unique_ptr<FabricFile> fabric = FabricFile::open(name);
    if (!fabric) {
        std::string others;
        std::size_t count = 0;
        for (const std::string& other : fabric_names()) {
            if (++count <= 5) others += (others.empty() ? "" : ", ") + other;
        }
        if (count > 5) others += " and " + std::to_string(count - 5) + " more (softhca list)";
        throw FabricError("there is no fabric '" + name + "' now" +
                          (others.empty() ? "; this user has none" : "; there are: " + others));
    }
    if (!fabric->segment())
        throw FabricError("fabric '" + name + "' was made by another version of softhca");
    return take_snapshot(*fabric, *fabric->segment());
}

}  // namespace softhca::view
