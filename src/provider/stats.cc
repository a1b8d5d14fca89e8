// SPDX-License-Identifier: BSD-2-Clause
// Counting up what endpoints did, and writing it as a table or a line of JSON.
#include "provider/stats.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "provider/domain.h"
#include "provider/host.h"
#include "provider/parameters.h"

namespace heddle::provider {
namespace {

using protocol::EndpointCounts;

struct Sum {
    EndpointCounts counts;
    std::uint64_t endpoints = 0;
    Usage usage;  // when the most was in use
    memory::CacheCounts cache;
    protocol::ReuseCounts reuse;
    protocol::TupleCounts tuples;
};

std::mutex g_mutex;
unsigned open_domains = 0;
bool listening = false;  // to SIGUSR2
Sum closed;              // what has ended since the first domain

bool wanted() noexcept { return options().stats != Stats::kOff; }

void add(Sum& sum, const protocol::RdmEndpoint& endpoint) {
    const EndpointCounts more = endpoint.counts();
    sum.reuse += endpoint.reuse_counts();
    sum.tuples += endpoint.tuple_counts();
    EndpointCounts& to = sum.counts;
    to.eager += more.eager;
    to.inlined += more.inlined;
    to.rendezvous += more.rendezvous;
    to.rma += more.rma;
    to.atomics += more.atomics;
    to.received += more.received;
    to.unexpected += more.unexpected;
    to.unexpected_bytes_peak = std::max(to.unexpected_bytes_peak, more.unexpected_bytes_peak);
    to.connections += more.connections;
    to.damaged += more.damaged;
    to.by_ring += more.by_ring;
    to.from_rings += more.from_rings;
    to.rings += more.rings;
    to.gathered += more.gathered;
    to.rma_copied += more.rma_copied;
    to.rma_direct += more.rma_direct;
    for (std::size_t i = 0; i < EndpointCounts::kSizes; ++i) {
        to.copied_by_size[i] += more.copied_by_size[i];
        to.gathered_by_size[i] += more.gathered_by_size[i];
    }
    ++sum.endpoints;
}

// ,"key":[...], for `heddle run --reuse-report`.
template <class Numbers>
std::string json_list(const char* key, const Numbers& numbers) {
    std::string text = std::string(",\"") + key + "\":[";
    for (std::size_t i = 0; i < numbers.size(); ++i)
        text += (i != 0 ? "," : "") + std::to_string(numbers[i]);
    return text + "]";
}

// ,"key":{"reason":count,...}, of those that there were, for `heddle run --explain`.
template <class Numbers>
std::string json_reasons(const char* key, const Numbers& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size(); ++i)
        if (numbers[i] != 0)
            text += std::string(text.empty() ? "\"" : ",\"") +
                    text_of(static_cast<protocol::TupleReason>(i)) +
                    "\":" + std::to_string(numbers[i]);
    return std::string(",\"") + key + "\":{" + text + "}";
}

struct Line {
    const char *key, *text;
    std::uint64_t value;
};

std::string written(const Sum& sum, const Domain& domain, bool json) {
    const Usage& u = sum.usage;
    const EndpointCounts& c = sum.counts;
    const memory::CacheCounts& m = sum.cache;
    const protocol::ReuseCounts& r = sum.reuse;
    const protocol::TupleCounts& t = sum.tuples;
    const Line lines[] = {
        {"endpoints", "endpoints", sum.endpoints},
        {"contexts", "contexts", u.contexts},
        {"qps", "queue pairs", u.qps},
        {"cqs", "completion queues", u.cqs},
        {"mrs", "memory regions", u.mrs},
        {"uars", "UAR pages", u.uars.value_or(0)},
        {"uuars", "doorbell registers", u.uuars.value_or(0)},
        {"uuars_used", "doorbell registers in use", u.uuars_used.value_or(0)},
        {"bytes", "bytes of the driver", u.bytes},
        {"connections", "connections", c.connections},
        {"inlined", "messages sent inline", c.inlined},
        {"eager", "messages sent eagerly", c.eager},
        {"gathered", "of those, from where they stand", c.gathered},
        {"by_ring", "of both, written to the peer's ring", c.by_ring},
        {"rendezvous", "messages sent by rendezvous", c.rendezvous},
        {"received", "messages received", c.received},
        {"from_rings", "of those, written by the peer", c.from_rings},
        {"rings", "rings for peers that talk much", c.rings},
        {"unexpected", "messages that came unexpected", c.unexpected},
        {"unexpected_bytes_peak", "bytes of them at most, of an endpoint", c.unexpected_bytes_peak},
        {"rma", "RMA operations", c.rma},
        {"rma_copied", "of those, small ones by a copy", c.rma_copied},
        {"rma_direct", "of those, small ones without", c.rma_direct},
        {"atomics", "atomic operations", c.atomics},
        {"reuse_uses", "uses of small buffers looked up", r.uses},
        {"reuse_frequent", "of those, of registered ones", r.frequent},
        {"reuse_registered", "small buffers registered", r.promoted},
        {"reuse_refused", "small buffers that could not be", r.refused},
        {"reuse_gone", "of those that were, ended as memory went", r.gone},
        {"reuse_aged", "of those that were, used no more", r.aged},
        {"reuse_entries", "entries of the reuse tables", r.entries},
        {"reuse_used", "of those in use", r.used},
        {"reuse_rests", "epochs in which they rested", r.rests},
        {"registrations", "memory registrations for operations", m.registrations},
        {"registrations_kept", "of those kept after use", m.kept},
        {"registration_hits", "operations on memory that was registered", m.hits},
        {"registration_evictions", "registrations ended for want of room", m.evictions},
        {"registration_invalidations", "registrations ended as memory went", m.invalidations},
        {"tuples_asked", "tuple queues asked for", t.asked},
        {"tuples_opened", "of those, opened", t.opened},
        {"tuple_messages", "messages sent to tuple queues", t.sent},
        {"tuple_blocking", "of those, before their receives", t.blocking},
        {"tuple_held", "of those, held back for want of a queue pair", t.held},
        {"tuple_copied", "of those, copied", t.copied},
        {"tuple_again", "of those, sent again otherwise", t.again},
        {"tuple_queues", "tuple queues for peers", t.queues},
        {"tuple_queues_peak", "of those at once, of an endpoint", t.queues_peak},
        {"tuple_posted", "receives posted to them", t.posted},
        {"tuple_received", "of those, done", t.received},
        {"damaged", "damaged messages dropped", c.damaged},
    };
    const std::string category(heddle::name(domain.protocol->category()));
    const std::string device = domain.protocol->device().name;
    const std::string pid = std::to_string(getpid());
    std::string text;
    if (json) {
        text = "{\"provider\":\"heddle\",\"pid\":" + pid + ",\"device\":\"" + device +
               "\",\"category\":\"" + category + "\"";
        for (const Line& line : lines)
            text += std::string(",\"") + line.key + "\":" + std::to_string(line.value);
        text += json_list("copied_by_size", c.copied_by_size);
        text += json_list("gathered_by_size", c.gathered_by_size);
        text += json_list("buffers_by_uses", r.by_uses);
        text += json_reasons("tuples_declined", t.declined);
        text += json_reasons("tuples_ended", t.ended);
        return text + "}\n";
    }
    text = "heddle: process " + pid + ", " + device + ", endpoints " + category + "\n";
    for (const Line& line : lines) {
        char row[96];
        std::snprintf(row, sizeof row, "heddle:   %-40s %12llu\n", line.text,
                      static_cast<unsigned long long>(line.value));
        text += row;
    }
    return text;
}

void write_out(const Sum& sum, const Domain& domain) {
    const bool to_file = options().stats == Stats::kFile;
    const std::string text = written(sum, domain, to_file);
    std::FILE* file = to_file ? std::fopen(options().stats_file.c_str(), "ae") : stderr;
    if (file == nullptr) {
        complain("FI_HEDDLE_STATS: %s cannot be written: %s", options().stats_file.c_str(),
                 std::strerror(errno));
        return;
    }
    // In one write: the processes of a job append to the same file.
    std::setvbuf(file, nullptr, to_file ? _IOFBF : _IONBF, to_file ? text.size() + 1 : 0);
    std::fwrite(text.data(), 1, text.size(), file);
    if (to_file) std::fclose(file);
}

// As libfabric's programs may have a use of their own for the signal, it is taken only where there
// was none.
void listen_to_signal() {
    if (listening) return;
    struct sigaction present {};
    if (sigaction(SIGUSR2, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) return;
    struct sigaction ours {};
    ours.sa_handler = [](int) { reports_asked.fetch_add(1, std::memory_order_relaxed); };
    ours.sa_flags = SA_RESTART;
    listening = sigaction(SIGUSR2, &ours, nullptr) == 0;
}

}  // namespace

void forget_signal() noexcept {
    if (listening) std::signal(SIGUSR2, SIG_DFL);
    listening = false;
}

void domain_opened() {
    if (!wanted()) return;
    const std::scoped_lock lock(g_mutex);
    ++open_domains;
    listen_to_signal();
}

void endpoint_closing(Domain& domain, const protocol::RdmEndpoint& endpoint) {
    if (!wanted()) return;
    const Usage usage = domain.protocol->usage();
    const memory::CacheCounts cache = domain.protocol->cache_counts();
    const std::scoped_lock lock(g_mutex);
    add(closed, endpoint);
    if (usage.qps >= closed.usage.qps) closed.usage = usage;
    if (cache.registrations >= closed.cache.registrations) closed.cache = cache;
}

void domain_closing(Domain& domain) {
    if (!wanted()) return;
    const std::scoped_lock lock(g_mutex);
    if (--open_domains != 0) return;
    write_out(closed, domain);
    closed = {};
}

void report(Domain& domain) {
    if (!wanted()) return;
    Sum now;
    for (const protocol::RdmEndpoint* each : domain.endpoints)
        add(now, *each);
    now.usage = domain.protocol->usage();
    now.cache = domain.protocol->cache_counts();
    const std::scoped_lock lock(g_mutex);
    write_out(now, domain);
}

}  // namespace heddle::provider
