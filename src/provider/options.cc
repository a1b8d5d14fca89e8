// SPDX-License-Identifier: BSD-2-Clause
// The table of options, and how a text becomes a value.
#include "provider/options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::provider {
namespace {

bool equal(std::string_view a, std::string_view b) noexcept {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](char x, char y) { return lower(x) == lower(y); });
}

// "8192", "8K", "1M": a number within the range.
template <class Number>
bool number(std::string_view text, std::uint64_t least, std::uint64_t most, Number& out) {
    HEDDLE_ASSERT(least <= most && most <= std::numeric_limits<Number>::max(),
                  "the type is too small");
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end == text.data()) return false;
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    unsigned shift = 0;
    if (equal(unit, "K"))
        shift = 10;
    else if (equal(unit, "M"))
        shift = 20;
    else if (equal(unit, "G"))
        shift = 30;
    else if (!unit.empty())
        return false;
    if (value > std::numeric_limits<std::uint64_t>::max() >> shift) return false;
    value <<= shift;
    if (value < least || value > most) return false;
    out = static_cast<Number>(value);
    return true;
}

bool truth(std::string_view text, bool& out) {
    for (const char* yes : {"1", "yes", "true", "on"})
        if (equal(text, yes)) return out = true;
    for (const char* no : {"0", "no", "false", "off"})
        if (equal(text, no)) {
            out = false;
            return true;
        }
    return false;
}

using Text = std::string_view;

constexpr OptionDeclaration kTable[] = {
    {"device", FI_PARAM_STRING, "", "a name that `heddle info` shows",
     "The device to use. All devices with an active port are offered when this is empty.",
     [](Text text, Options& o) {
         o.protocol.device = text;
         return true;
     }},
    {"endpoints", FI_PARAM_STRING, "auto",
     "auto, mpi-everywhere, 2xdynamic, dynamic, shared-dynamic, static, mpi+threads",
     "How much of the device the endpoints of a process share (docs/endpoints.md). auto: 2xdynamic "
     "for as many domains as there are cores, dynamic beyond; static where the device has no "
     "thread domains.",
     [](Text text, Options& o) {
         if (equal(text, "auto")) {
             o.protocol.endpoints.reset();
             return true;
         }
         for (const Category each : kCategories)
             if (equal(text, name(each))) {
                 o.protocol.endpoints = each;
                 return true;
             }
         return false;
     }},
    {"post", FI_PARAM_STRING, "auto", "auto, verbs, direct",
     "How work reaches the device: by libibverbs, or written into an mlx5 device's queues and "
     "registers directly. auto: directly where the device is one, unless heddle calibrate has "
     "found that to take longer.",
     [](Text text, Options& o) {
         if (equal(text, "auto"))
             o.protocol.post = protocol::PostPath::kAuto;
         else if (equal(text, "verbs"))
             o.protocol.post = protocol::PostPath::kVerbs;
         else if (equal(text, "direct"))
             o.protocol.post = protocol::PostPath::kDirect;
         else
             return false;
         return true;
     }},
    {"xrc", FI_PARAM_BOOL, "yes", "yes, no",
     "Connect to processes instead of endpoints where the device has XRC: T x P queue pairs "
     "instead of T x T x P. Without: RC.",
     [](Text text, Options& o) { return truth(text, o.protocol.xrc); }},
    {"rndv", FI_PARAM_STRING, "rget", "auto, tupleq, rget, rput",
     "How messages above the eager size travel: the receiver reads them (rget); the sender writes "
     "them (rput); the device matches and places messages of all sizes, where a tag repeats, by "
     "queues for tuples of sender and tag (tupleq); or those do so of which large messages repeat "
     "and whose receives are mostly there before them (auto). What has no queue goes by rget.",
     [](Text text, Options& o) {
         if (equal(text, "auto"))
             o.protocol.rendezvous = protocol::Rendezvous::kAuto;
         else if (equal(text, "tupleq"))
             o.protocol.rendezvous = protocol::Rendezvous::kTuple;
         else if (equal(text, "rget"))
             o.protocol.rendezvous = protocol::Rendezvous::kGet;
         else if (equal(text, "rput"))
             o.protocol.rendezvous = protocol::Rendezvous::kPut;
         else
             return false;
         return true;
     }},
    {"tuples", FI_PARAM_SIZE_T, "256", "0 to 4096",
     "Tuple queues of an endpoint: shared receive queues of the device, of 32 receives each. The "
     "one "
     "that has been used least goes when another is wanted. 0: none.",
     [](Text text, Options& o) { return number(text, 0, 4096, o.protocol.tuples); }},
    {"process_tuples", FI_PARAM_SIZE_T, "1024", "0 to 65536",
     "The same of all endpoints of a process together.",
     [](Text text, Options& o) { return number(text, 0, 65536, o.protocol.process_tuples); }},
    {"tuple_qps", FI_PARAM_SIZE_T, "2", "1 to 64",
     "Queue pairs to a process on which messages of tuples wait, at the device, for receives. "
     "Further tuples wait in the sender.",
     [](Text text, Options& o) { return number(text, 1, 64, o.protocol.tuple_queues); }},
    {"tuple_after", FI_PARAM_SIZE_T, "128", "1 to 65536",
     "Messages of a tuple until auto asks for a queue: about as many as cost what opening one "
     "does.",
     [](Text text, Options& o) { return number(text, 1, 65536, o.protocol.tuple_after); }},
    {"tuple_copy", FI_PARAM_SIZE_T, "8192", "0 to 1048576 bytes (K and M)",
     "Messages of tuples below this size that have no receive yet are copied, and their senders go "
     "on. Larger ones, or with 0 all, end when they have been received.",
     [](Text text, Options& o) { return number(text, 0, 1 << 20, o.protocol.tuple_copy); }},
    {"no_wildcards", FI_PARAM_BOOL, "no", "yes, no",
     "A promise: the program receives from no MPI_ANY_SOURCE and no MPI_ANY_TAG and never probes, "
     "where tuple queues are used.",
     [](Text text, Options& o) { return truth(text, o.protocol.no_wildcards); }},
    {"eager_size", FI_PARAM_SIZE_T, "8192", "256 to 1048576 bytes (K and M are understood)",
     "Messages up to this size are sent at once, through buffers of the receiver; larger ones by "
     "rendezvous.",
     [](Text text, Options& o) { return number(text, 256, 1 << 20, o.protocol.eager_bytes); }},
    {"inject_size", FI_PARAM_SIZE_T, "128", "0 to 1024 bytes",
     "Messages up to this size are copied into the work queue entry itself; the largest that "
     "fi_inject takes.",
     [](Text text, Options& o) {
         return number(text, 0, protocol::kMostInline, o.protocol.inject_bytes);
     }},
    {"unexpected_size", FI_PARAM_SIZE_T, "524288", "0 to 1073741824 bytes (K and M)",
     "Eager payload that a peer may send before its receives are posted. What is more goes by "
     "rendezvous: memory for unexpected messages is bounded.",
     [](Text text, Options& o) {
         return number(text, 0, 1ULL << 30, o.protocol.unexpected_bytes);
     }},
    {"unexpected_limit", FI_PARAM_SIZE_T, "1G", "65536 to 1T bytes (K, M and G)",
     "Memory that messages of one peer may take here before their receives are posted, small ones "
     "and requests of large ones included. A peer that exceeds it fails.",
     [](Text text, Options& o) {
         return number(text, 65'536, 1ULL << 40, o.protocol.unexpected_limit);
     }},
    {"receive_buffers", FI_PARAM_SIZE_T, "256", "16 to 16384",
     "Buffers of an endpoint for messages that come in, each of the eager size and a header.",
     [](Text text, Options& o) { return number(text, 16, 16384, o.protocol.receive_buffers); }},
    {"receive_memory", FI_PARAM_SIZE_T, "8M", "0 to 1G bytes (K, M and G)",
     "When a burst of messages has taken half of these buffers, the endpoint has twice as many "
     "from "
     "then on, up to so many bytes in all. 0: they never become more.",
     [](Text text, Options& o) { return number(text, 0, 1ULL << 30, o.protocol.receive_bytes); }},
    {"send_depth", FI_PARAM_SIZE_T, "128", "16 to 8192", "Entries of a connection's work queue.",
     [](Text text, Options& o) { return number(text, 16, 8192, o.protocol.send_depth); }},
    {"rings", FI_PARAM_SIZE_T, "0", "0 to 1024",
     "Peers of an endpoint - those that talk to it most - whose eager messages are written by RDMA "
     "into a ring of 128 buffers each, instead of sent to the receive buffers of all. 0: none.",
     [](Text text, Options& o) { return number(text, 0, 1024, o.protocol.rings); }},
    {"ring_size", FI_PARAM_SIZE_T, "1024", "64 to 1048576 bytes (K and M)",
     "The largest message that is written into a ring; larger eager ones are sent as all others.",
     [](Text text, Options& o) { return number(text, 64, 1 << 20, o.protocol.ring_bytes); }},
    {"reuse", FI_PARAM_STRING, "auto", "auto, off, or 4 to 65535 uses",
     "Small messages and RMA of buffers that are used often move without a copy, from memory that "
     "stays registered. auto: after as many uses as pay for it on this host (`heddle calibrate`); "
     "a number: after so many.",
     [](Text text, Options& o) {
         if (equal(text, "auto")) {
             o.protocol.reuse_after.reset();
             return true;
         }
         std::uint32_t uses = 0;
         if (!equal(text, "off") && !number(text, 4, 65535, uses)) return false;
         o.protocol.reuse_after = uses;
         return true;
     }},
    {"speculation", FI_PARAM_INT, "25", "1 to 100 percent",
     "Of the uses that pay for a registration, so much is waited for: who was used that often will "
     "be used again.",
     [](Text text, Options& o) { return number(text, 1, 100, o.protocol.speculation); }},
    {"mr_cache", FI_PARAM_SIZE_T, "1G", "0 to 1T bytes (K, M and G)",
     "Memory of a program that stays registered after it was used twice for messages above the "
     "eager size or for RMA; at most half of `ulimit -l`, where the process is held to that. 0: "
     "memory is registered for each operation.",
     [](Text text, Options& o) { return number(text, 0, 1ULL << 40, o.protocol.mr_cache_bytes); }},
    {"relaxed_ordering", FI_PARAM_BOOL, "yes", "yes, no",
     "Let the adapter's writes to memory pass each other on their way through PCIe, in receive "
     "buffers and in memory of the program whose operations end with a completion. Memory that the "
     "program registers (fi_mr_reg) and that peers write to is never relaxed, as it may be polled. "
     "Kernels and adapters without it ignore this.",
     [](Text text, Options& o) { return truth(text, o.protocol.relaxed_ordering); }},
    {"gid_index", FI_PARAM_STRING, "auto", "auto, or 0 to 255",
     "Which entry of the port's GID table is used (`ibv_devinfo -v` shows it), on Ethernet. auto: "
     "RoCE v2 before v1, then IPv4, an IPv6 address that routers pass on, a link-local one.",
     [](Text text, Options& o) {
         unsigned index = 0;
         if (text == "auto") {
             o.gid_index.reset();
             return true;
         }
         if (!number(text, 0, 255, index)) return false;
         o.gid_index = static_cast<std::uint8_t>(index);
         return true;
     }},
    {"connect_timeout", FI_PARAM_INT, "30000", "100 to 600000 ms",
     "How long a peer that does not answer is asked for a connection, before operations to it "
     "fail.",
     [](Text text, Options& o) {
         return number(text, 100, 600'000, o.protocol.connect_timeout_ms);
     }},
    {"timeout", FI_PARAM_INT, "18", "8 to 31",
     "How long a try waits for the peer's acknowledgement: 4.096 us * 2^N, so 14 is 67 ms, 18 is "
     "1.07 s and 20 is 4.3 s. A link that is down for all tries ends the connection.",
     [](Text text, Options& o) { return number(text, 8, 31, o.protocol.ack_timeout); }},
    {"retry", FI_PARAM_INT, "6", "0 to 7",
     "How often a try without acknowledgement is repeated. Some devices repeat for ever with 7, "
     "and never notice that a peer has died.",
     [](Text text, Options& o) { return number(text, 0, 7, o.protocol.retries); }},
    {"keepalive", FI_PARAM_INT, "20", "0 to 86400 s",
     "Peers that have sent nothing for so long are probed with an empty RDMA write, so that "
     "receives from a process that has died end with ECONNRESET. 0: never.",
     [](Text text, Options& o) { return number(text, 0, 86'400, o.protocol.keepalive_s); }},
    {"close_timeout", FI_PARAM_INT, "300", "0 to 86400 s",
     "How long closing an endpoint waits for peers that have yet to fetch messages whose sends the "
     "program was told are complete. Then these messages are lost, which is reported.",
     [](Text text, Options& o) { return number(text, 0, 86'400, o.protocol.close_timeout_s); }},
    {"stats", FI_PARAM_STRING, "off", "off, stderr, or the path of a file",
     "What the process's endpoints took of the device and did, when its last domain is closed and "
     "whenever it gets SIGUSR2: a table on stderr of what is not zero, or a line of JSON appended "
     "to the file. SIGUSR2 always gives the table, too.",
     [](Text text, Options& o) {
         o.stats_file.clear();
         if (equal(text, "off"))
             o.stats = Stats::kOff;
         else if (equal(text, "stderr"))
             o.stats = Stats::kStderr;
         else if (text.find('/') == Text::npos && text.find('.') == Text::npos)
             return false;  // "on", "json", "stdout": not what a file is called
         else {
             o.stats = Stats::kFile;
             o.stats_file = text;
         }
         return true;
     }},
};

}  // namespace

std::span<const OptionDeclaration> option_declarations() noexcept { return kTable; }

std::string variable_of(const OptionDeclaration& declaration) {
    std::string variable = "FI_HEDDLE_";
    for (const char* c = declaration.name; *c != '\0'; ++c)
        variable += *c >= 'a' && *c <= 'z' ? static_cast<char>(*c - 32) : *c;
    return variable;
}

bool apply_option(const OptionDeclaration& declaration, std::string_view value, Options& options,
                  std::string& message) {
    HEDDLE_ASSERT(declaration.apply != nullptr);
    Options changed = options;
    if (declaration.apply(value, changed)) {
        options = std::move(changed);
        return true;
    }
    message = variable_of(declaration) + "='" + std::string(value) +
              "' is not possible: it must be " + declaration.possible;
    return false;
}

}  // namespace heddle::provider
