// SPDX-License-Identifier: BSD-2-Clause
// Adds up what endpoints did and writes it as a table or a line of JSON.
#include "provider/stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

#include "heddle/detail/assert.h"
#include "heddle/post/uuar.h"
#include "provider/domain.h"
#include "provider/host.h"
#include "provider/parameters.h"
#include "provider/stat_names.h"

namespace heddle::provider {
namespace {

using protocol::EndpointCounts;

struct Sum {
    EndpointCounts counts;
    std::uint64_t endpoints = 0;
    Usage usage;  // when most QPs existed
    memory::CacheCounts cache;
    protocol::ReuseCounts reuse;
    protocol::TupleCounts tuples;
    std::uint64_t domain_locks = 0, register_locks = 0;
};

std::mutex g_mutex;
unsigned open_domains = 0;
bool listening = false;  // to SIGUSR2
Sum closed;              // the sum of closed endpoints since the first domain was opened
std::uint64_t register_locks_before = 0;  // when the first domain was opened

// Returns those of all domains of the process. The caller holds g_mutex.
std::uint64_t register_locks_since_opening() {
    const std::uint64_t now = post::detail::register_locks_taken();
    HEDDLE_ASSERT(now >= register_locks_before, "locks are only taken more often");
    return now - register_locks_before;
}

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
    to.protocol_errors += more.protocol_errors;
    to.by_ring += more.by_ring;
    to.from_rings += more.from_rings;
    to.rings += more.rings;
    to.gathered += more.gathered;
    to.rma_copied += more.rma_copied;
    to.rma_direct += more.rma_direct;
    to.shm.sent += more.shm.sent;
    to.shm.received += more.shm.received;
    to.shm.peers += more.shm.peers;
    to.shm.read += more.shm.read;
    to.unregistered += more.unregistered;
    to.stripes.messages += more.stripes.messages;
    to.stripes.bytes += more.stripes.bytes;
    to.stripes.again += more.stripes.again;
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

// ,"key":{"reason":count,...} without the zeros, for `heddle run --explain`.
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

const char* rendezvous_name() noexcept {
    switch (options().protocol.rendezvous) {
        case protocol::Rendezvous::kGet:
            return "rget";
        case protocol::Rendezvous::kPut:
            return "rput";
        case protocol::Rendezvous::kTuple:
            return "tupleq";
        case protocol::Rendezvous::kAuto:
            break;
    }
    return "auto";
}

struct Line {
    const char* key;
    std::uint64_t value;
};

enum class When { kEnd, kSignal };

std::string written(const Sum& sum, const Domain& domain, bool json, When when) {
    const Usage& u = sum.usage;
    const EndpointCounts& c = sum.counts;
    const memory::CacheCounts& m = sum.cache;
    const protocol::ReuseCounts& r = sum.reuse;
    const protocol::TupleCounts& t = sum.tuples;
    const Line lines[] = {
        {"endpoints", sum.endpoints},
        {"contexts", u.contexts},
        {"qps", u.qps},
        {"cqs", u.cqs},
        {"mrs", u.mrs},
        {"uars", u.uars.value_or(0)},
        {"uuars", u.uuars.value_or(0)},
        {"uuars_used", u.uuars_used.value_or(0)},
        {"bytes", u.bytes},
        {"domain_locks", sum.domain_locks},
        {"register_locks", sum.register_locks},
        {"connections", c.connections},
        {"inlined", c.inlined},
        {"eager", c.eager},
        {"gathered", c.gathered},
        {"by_ring", c.by_ring},
        {"by_shm", c.shm.sent},
        {"rendezvous", c.rendezvous},
        {"received", c.received},
        {"from_rings", c.from_rings},
        {"rings", c.rings},
        {"from_shm", c.shm.received},
        {"shm_peers", c.shm.peers},
        {"read_by_process", c.shm.read},
        {"striped", c.stripes.messages},
        {"stripe_bytes", c.stripes.bytes},
        {"stripes_again", c.stripes.again},
        {"unexpected", c.unexpected},
        {"unexpected_bytes_peak", c.unexpected_bytes_peak},
        {"rma", c.rma},
        {"rma_copied", c.rma_copied},
        {"rma_direct", c.rma_direct},
        {"unregistered", c.unregistered},
        {"atomics", c.atomics},
        {"reuse_uses", r.uses},
        {"reuse_frequent", r.frequent},
        {"reuse_registered", r.promoted},
        {"reuse_refused", r.refused},
        {"reuse_gone", r.gone},
        {"reuse_aged", r.aged},
        {"reuse_entries", r.entries},
        {"reuse_used", r.used},
        {"reuse_rests", r.rests},
        {"registrations", m.registrations},
        {"registrations_kept", m.kept},
        {"registration_hits", m.hits},
        {"registration_evictions", m.evictions},
        {"registration_invalidations", m.invalidations},
        {"tuples_asked", t.asked},
        {"tuples_opened", t.opened},
        {"tuple_messages", t.sent},
        {"tuple_blocking", t.blocking},
        {"tuple_held", t.held},
        {"tuple_copied", t.copied},
        {"tuple_again", t.again},
        {"tuple_queues", t.queues},
        {"tuple_queues_peak", t.queues_peak},
        {"tuple_posted", t.posted},
        {"tuple_received", t.received},
        {"damaged", c.protocol_errors},
    };
    static_assert(std::size(lines) == std::size(kStatNames));
    for (std::size_t i = 0; i < std::size(lines); ++i)
        HEDDLE_ASSERT(std::string_view(lines[i].key) == kStatNames[i].key,
                      "both lists in one order");
    const std::string category(heddle::name(domain.protocol->category()));
    const std::string device = domain.protocol->device().name;
    const std::string pid = std::to_string(getpid());
    std::string text;
    if (json) {
        text = "{\"provider\":\"heddle\",\"pid\":" + pid + ",\"device\":\"" + device +
               "\",\"software\":" + (domain.protocol->device().software ? "true" : "false") +
               ",\"category\":\"" + category + "\",\"rndv\":\"" + rendezvous_name() +
               "\",\"when\":\"" + (when == When::kEnd ? "end" : "signal") + "\"";
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
        if (line.value == 0) continue;
        char row[96];
        std::snprintf(row, sizeof row, "heddle:   %-40s %12llu\n", stat_text(line.key).data(),
                      static_cast<unsigned long long>(line.value));
        text += row;
    }
    return text;
}

// Opens a file to append to; nullptr: errno says why. It follows no symbolic link: in a folder that
// other users may write to (/tmp), a link could lead to any file of the user.
std::FILE* open_to_append(const char* path) noexcept {
    const int fd =
        ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0666);
    if (fd < 0) return nullptr;
    std::FILE* const file = ::fdopen(fd, "a");
    if (file == nullptr) ::close(fd);
    return file;
}

// Writes the report. Each process writes at once, since the processes of a job share stderr and the
// file. After a signal the table goes to stderr in any case, since a person waits for it.
void write_out(const Sum& sum, const Domain& domain, When when) {
    const bool to_file = options().stats == Stats::kFile;
    if (!to_file || when == When::kSignal) {
        const std::string text = written(sum, domain, false, when);
        std::fwrite(text.data(), 1, text.size(), stderr);
    }
    if (!to_file) return;
    std::FILE* file = open_to_append(options().stats_file.c_str());
    if (file == nullptr) {
        complain(
            "FI_HEDDLE_STATS: %s cannot be written: %s", options().stats_file.c_str(),
            errno == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(errno));
        return;
    }
    const std::string text = written(sum, domain, true, when);
    std::setvbuf(file, nullptr, _IOFBF, text.size() + 1);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
}

// Installs the handler of SIGUSR2. A program may use the signal itself, so the handler is installed
// only if the signal has the default action.
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

// The handler is installed whatever FI_HEDDLE_STATS is: without one the signal would end the
// program.
void domain_opened() {
    const std::scoped_lock lock(g_mutex);
    if (open_domains++ == 0) register_locks_before = post::detail::register_locks_taken();
    listen_to_signal();
}

void endpoint_closing(Domain& domain, const protocol::RdmEndpoint& endpoint) {
    const Usage usage = domain.protocol->usage();
    const memory::CacheCounts cache = domain.protocol->cache_counts();
    const std::scoped_lock lock(g_mutex);
    HEDDLE_ASSERT(open_domains != 0, "an endpoint outlived its domain");
    add(closed, endpoint);
    if (usage.qps >= closed.usage.qps) closed.usage = usage;
    if (cache.registrations >= closed.cache.registrations) closed.cache = cache;
}

void domain_closing(Domain& domain) {
    // With automatic progress its thread still goes on.
    std::uint64_t locks_taken = 0;
    {
        const Guard guard(domain);
        locks_taken = domain.locks_taken;
    }
    const std::scoped_lock lock(g_mutex);
    HEDDLE_ASSERT(open_domains != 0, "a domain was closed twice");
    closed.domain_locks += locks_taken;
    if (--open_domains != 0) return;
    closed.register_locks = register_locks_since_opening();
    if (wanted()) write_out(closed, domain, When::kEnd);
    closed = {};
}

void report(Domain& domain) {
    Sum now;
    for (const protocol::RdmEndpoint* each : domain.endpoints)
        add(now, *each);
    now.usage = domain.protocol->usage();
    now.cache = domain.protocol->cache_counts();
    now.domain_locks = domain.locks_taken;
    const std::scoped_lock lock(g_mutex);
    now.register_locks = register_locks_since_opening();
    write_out(now, domain, When::kSignal);
}

}  // namespace heddle::provider
