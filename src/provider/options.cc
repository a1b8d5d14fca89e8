// SPDX-License-Identifier: BSD-2-Clause
// The table of options, and how a text becomes a value.
#include "provider/options.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "protocol/wire/wire.h"
#include "verbs/device_name.h"

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

// "0x8001" or "8001": a number to the base 16.
bool hexadecimal(std::string_view text, unsigned most, std::uint16_t& out) {
    if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
    unsigned value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value, 16);
    if (error != std::errc{} || rest != end || value > most) return false;
    out = static_cast<std::uint16_t>(value);
    return true;
}

// What a word means.
template <class Value>
bool one_of(std::string_view text,
            std::initializer_list<std::pair<std::string_view, std::type_identity_t<Value>>> words,
            Value& out) {
    for (const auto& [word, value] : words)
        if (equal(text, word)) {
            out = value;
            return true;
        }
    return false;
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
    {"device", FI_PARAM_STRING, "",
     "names and patterns, such as mlx5_0, mlx5_1:2, mlx5_[01]:1,rxe*",
     "The devices to use, with a port or without; several with commas between them. They may "
     "differ from host to host. If it is empty, the provider offers the active ports of one "
     "network: of those with addresses, the one with the fastest port.",
     [](Text text, Options& o) {
         try {
             verbs::DeviceChoice(std::string(text));
         } catch (const VerbsError&) {
             return false;
         }
         o.protocol.device = text;
         return true;
     }},
    {"rails", FI_PARAM_SIZE_T, "1", "1 to 4",
     "Ports over which a receiver reads a long message, in proportion to their speed. They are "
     "the endpoint's own and the next nearest of its link layer, from those that "
     "FI_HEDDLE_DEVICE allows. A peer needs several, too. FI_HEDDLE_RNDV=rput and tuple queues "
     "use one.",
     [](Text text, Options& o) { return number(text, 1, protocol::kMostRails, o.rails); }},
    {"rail_size", FI_PARAM_SIZE_T, "131072", "65536 to 1073741824 bytes (K, M and G)",
     "Messages of at least this size are read over all rails (FI_HEDDLE_RAILS).",
     [](Text text, Options& o) { return number(text, 64 << 10, 1 << 30, o.protocol.rails.bytes); }},
    {"endpoints", FI_PARAM_STRING, "auto",
     "auto, mpi-everywhere, 2xdynamic, dynamic, shared-dynamic, static, mpi+threads",
     "How much of the device the endpoints of a process share (docs/concepts/endpoints.md). auto: "
     "2xdynamic for as many domains as there are cores, dynamic beyond; static if the "
     "device has no thread domains.",
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
     "How work requests reach the device: through libibverbs, or directly into the queues "
     "and registers of an mlx5 device. auto: directly if the device is an mlx5, unless "
     "heddle calibrate has found that slower.",
     [](Text text, Options& o) {
         using enum protocol::PostPath;
         return one_of(text, {{"auto", kAuto}, {"verbs", kVerbs}, {"direct", kDirect}},
                       o.protocol.post);
     }},
    {"transport", FI_PARAM_STRING, "auto", "auto, xrc, rc, dc",
     "The transport of queue pairs, the same in all processes. xrc: one for each thread and "
     "process. rc: one for each thread and endpoint. dc: some for each thread, whatever the "
     "number of peers; by libmlx5, and without tuple queues. auto: xrc if the device has it, "
     "otherwise rc.",
     [](Text text, Options& o) {
         using enum protocol::Transport;
         return one_of(text, {{"auto", kAuto}, {"xrc", kXrc}, {"rc", kRc}, {"dc", kDc}},
                       o.protocol.transport);
     }},
    {"rndv", FI_PARAM_STRING, "rget", "auto, tupleq, rget, rput",
     "How messages above FI_HEDDLE_RNDV_SIZE travel. rget: the receiver reads them. rput: the "
     "sender writes them. tupleq: for tags that repeat, the device matches and places "
     "messages of all sizes, by queues for tuples of sender and tag. auto: tupleq for "
     "tuples whose large messages repeat and mostly find a posted receive. Messages without "
     "a queue go by rget.",
     [](Text text, Options& o) {
         using enum protocol::Rendezvous;
         return one_of(text, {{"auto", kAuto}, {"tupleq", kTuple}, {"rget", kGet}, {"rput", kPut}},
                       o.protocol.rendezvous);
     }},
    {"tuples", FI_PARAM_SIZE_T, "256", "0 to 4096",
     "Tuple queues of an endpoint: shared receive queues of the device, of 32 receives "
     "each. If another is needed, the least recently used one is closed. 0: none.",
     [](Text text, Options& o) { return number(text, 0, 4096, o.protocol.tuples.queues); }},
    {"process_tuples", FI_PARAM_SIZE_T, "1024", "0 to 65536",
     "Tuple queues of all endpoints of a process together.",
     [](Text text, Options& o) {
         return number(text, 0, 65536, o.protocol.tuples.process_queues);
     }},
    {"tuple_qps", FI_PARAM_SIZE_T, "2", "1 to 64",
     "Queue pairs to a process on which messages of tuples wait, at the device, for "
     "receives. Messages of further tuples wait in the sender.",
     [](Text text, Options& o) { return number(text, 1, 64, o.protocol.tuples.queue_pairs); }},
    {"tuple_after", FI_PARAM_SIZE_T, "128", "1 to 65536",
     "Messages of a tuple before auto requests a queue: about as many as cost what opening "
     "a queue costs.",
     [](Text text, Options& o) { return number(text, 1, 65536, o.protocol.tuples.open_after); }},
    {"tuple_copy", FI_PARAM_SIZE_T, "8192", "0 to 1048576 bytes (K and M)",
     "Messages of tuples below this size are copied if they have no receive yet, and their "
     "sends complete. Larger ones complete when they have been received; with 0 all "
     "messages do.",
     [](Text text, Options& o) { return number(text, 0, 1 << 20, o.protocol.tuples.copy_below); }},
    {"no_wildcards", FI_PARAM_BOOL, "no", "yes, no",
     "A promise that the program uses no MPI_ANY_SOURCE, no MPI_ANY_TAG and no probes where "
     "tuple queues are used.",
     [](Text text, Options& o) { return truth(text, o.protocol.tuples.no_wildcards); }},
    {"eager_size", FI_PARAM_SIZE_T, "8192", "256 to 1048576 bytes (K and M are understood)",
     "Messages up to this size are sent at once, to one buffer of the receiver. Larger ones take "
     "several (FI_HEDDLE_RNDV_SIZE).",
     [](Text text, Options& o) { return number(text, 256, 1 << 20, o.protocol.eager_bytes); }},
    {"rndv_size", FI_PARAM_SIZE_T, "12288", "0 to 67108864 bytes (K and M)",
     "Messages above this size go by rendezvous (FI_HEDDLE_RNDV). From the eager size up to it "
     "they "
     "are sent at once, in fragments of the eager size. 0: all above the eager size go by "
     "rendezvous.",
     [](Text text, Options& o) { return number(text, 0, 64 << 20, o.protocol.rendezvous_above); }},
    {"inline_size", FI_PARAM_SIZE_T, "128", "0 to 1024 bytes",
     "Messages up to this size are copied into the work queue entry.",
     [](Text text, Options& o) {
         return number(text, 0, protocol::kMostInline, o.protocol.inline_bytes);
     }},
    {"inject_size", FI_PARAM_SIZE_T, "", "0 to 8192 bytes (K is understood)",
     "The largest size of fi_inject. What MPIs send by it is copied, and their send ends at once. "
     "It is no more than FI_HEDDLE_EAGER_SIZE. Not set: 1024, or FI_HEDDLE_INLINE_SIZE where "
     "FI_HEDDLE_REUSE is a number, as what is injected is never sent from where it stands.",
     [](Text text, Options& o) {
         std::size_t bytes = 0;
         if (!number(text, 0, 8192, bytes)) return false;
         o.inject_size = bytes;
         return true;
     }},
    {"unexpected_size", FI_PARAM_SIZE_T, "4194304", "0 to 1073741824 bytes (K and M)",
     "Eager payload that a peer may send before its receives are posted. Further messages "
     "go by rendezvous, so the memory for unexpected messages is bounded.",
     [](Text text, Options& o) {
         return number(text, 0, 1ULL << 30, o.protocol.unexpected_bytes);
     }},
    {"unexpected_limit", FI_PARAM_SIZE_T, "1G", "65536 to 1T bytes (K, M and G)",
     "Memory that the messages of one peer may use here before their receives are posted, "
     "with small messages and the requests of large ones. A peer that exceeds it fails.",
     [](Text text, Options& o) {
         return number(text, 65'536, 1ULL << 40, o.protocol.unexpected_limit);
     }},
    {"receive_buffers", FI_PARAM_SIZE_T, "256", "16 to 16384",
     "Buffers of an endpoint for incoming messages, each of the eager size and a header.",
     [](Text text, Options& o) { return number(text, 16, 16384, o.protocol.receive_buffers); }},
    {"receive_memory", FI_PARAM_SIZE_T, "8M", "0 to 1G bytes (K, M and G)",
     "When a burst of messages has taken half of these buffers, the endpoint has twice as many "
     "from "
     "then on, up to so many bytes in all. 0: they never become more.",
     [](Text text, Options& o) { return number(text, 0, 1ULL << 30, o.protocol.receive_bytes); }},
    {"send_depth", FI_PARAM_SIZE_T, "128", "16 to 8192",
     "Entries of a connection's work queue. It begins with 32, and has all of them soon after "
     "these were full.",
     [](Text text, Options& o) { return number(text, 16, 8192, o.protocol.send_depth); }},
    {"rings", FI_PARAM_SIZE_T, "0", "0 to 1024",
     "Peers of an endpoint whose eager messages are written by RDMA into a ring of 128 "
     "buffers each, instead of sent to the receive buffers of all. The peers that send most "
     "get a ring. 0: none, as on processors other than x86-64.",
     [](Text text, Options& o) { return number(text, 0, 1024, o.protocol.rings.peers); }},
    {"ring_size", FI_PARAM_SIZE_T, "1024", "64 to 1048576 bytes (K and M)",
     "The largest message that is written into a ring. Larger eager messages, and those of "
     "more than one packet (the path MTU), are sent to the receive buffers.",
     [](Text text, Options& o) {
         return number(text, 64, 1 << 20, o.protocol.rings.message_bytes);
     }},
    {"shm", FI_PARAM_BOOL, "off", "on, off",
     "Send messages to processes on the same host through shared memory, if these have it on, too. "
     "The receiver's processor reads those above FI_HEDDLE_EAGER_SIZE from the sender's process, "
     "if the kernel lets it. RMA goes by the device. With tuple queues (FI_HEDDLE_RNDV), and "
     "where the processes cannot share memory, messages go by the device as well.",
     [](Text text, Options& o) { return truth(text, o.protocol.shm.on); }},
    {"shm_size", FI_PARAM_SIZE_T, "128K", "16384 to 16777216 bytes (K and M)",
     "Shared memory for the messages of each endpoint on the same host that sends to an endpoint, "
     "rounded up to a power of two. A message takes at most a quarter of it; fragments of longer "
     "ones go by the device.",
     [](Text text, Options& o) { return number(text, 16 << 10, 16 << 20, o.protocol.shm.bytes); }},
    {"reuse", FI_PARAM_STRING, "auto", "auto, off, or 4 to 65535 uses",
     "Small messages and RMA from frequently used buffers move without a copy, from memory "
     "that stays registered. auto: after as many uses as pay on this host (`heddle "
     "calibrate`). A number: after so many uses.",
     [](Text text, Options& o) {
         if (equal(text, "auto")) {
             o.protocol.reuse.after.reset();
             return true;
         }
         std::uint32_t uses = 0;
         if (!equal(text, "off") && !number(text, 4, 65535, uses)) return false;
         o.protocol.reuse.after = uses;
         return true;
     }},
    {"speculation", FI_PARAM_INT, "25", "1 to 100 percent",
     "The percentage of the uses that pay for a registration after which a buffer is "
     "registered. A buffer that was used that often is likely used again.",
     [](Text text, Options& o) { return number(text, 1, 100, o.protocol.reuse.speculation); }},
    {"mr_cache", FI_PARAM_SIZE_T, "1G", "0 to 1T bytes (K, M and G)",
     "Program memory that stays registered after its use for messages by rendezvous or for RMA, "
     "or after it was registered twice in the same way by fi_mr_reg. Where most is used only once, "
     "it stays from its second use on. If the kernel enforces `ulimit -l`, at most half of that "
     "limit is used. 0: memory is registered for each operation.",
     [](Text text, Options& o) { return number(text, 0, 1ULL << 40, o.protocol.mr_cache_bytes); }},
    {"relaxed_ordering", FI_PARAM_BOOL, "yes", "yes, no",
     "Let the adapter's writes to memory pass each other on their way through PCIe, in receive "
     "buffers and in memory of the program whose operations end with a completion. Memory that the "
     "program registers (fi_mr_reg) and that peers write to is never relaxed, as it may be polled. "
     "Kernels and adapters without it ignore this.",
     [](Text text, Options& o) { return truth(text, o.protocol.registration.relaxed_ordering); }},
    {"odp", FI_PARAM_BOOL, "no", "yes, no",
     "Register memory of the program without pinning it (on-demand paging): `ulimit -l` does not "
     "apply to it, and the device waits for pages that it finds missing. A device that cannot do "
     "so pins as ever, and the provider says so. The provider's own buffers stay pinned.",
     [](Text text, Options& o) { return truth(text, o.protocol.registration.on_demand_paging); }},
    {"gid_index", FI_PARAM_STRING, "auto", "auto, or 0 to 255",
     "Which entry of the port's GID table is used on Ethernet (`ibv_devinfo -v` shows the "
     "table). auto: RoCE v2 before v1, then IPv4, then a routable IPv6 address, then a "
     "link-local one.",
     [](Text text, Options& o) {
         unsigned index = 0;
         if (text == "auto") {
             o.path.gid_index.reset();
             return true;
         }
         if (!number(text, 0, 255, index)) return false;
         o.path.gid_index = static_cast<std::uint8_t>(index);
         return true;
     }},
    {"pkey", FI_PARAM_STRING, "auto", "auto, or 0x0001 to 0xffff",
     "The partition of all queue pairs, by its P_Key; the highest bit, which says whether the port "
     "is a full member, is not compared. auto: the port's first one. All processes of a job need "
     "the same.",
     [](Text text, Options& o) {
         if (text == "auto") {
             o.path.pkey = 0;
             return true;
         }
         return hexadecimal(text, 0xffff, o.path.pkey) && (o.path.pkey & 0x7fff) != 0;
     }},
    {"service_level", FI_PARAM_INT, "0", "0 to 15",
     "The service level of all paths, which selects virtual links (VL) by the tables of the subnet "
     "manager. On Ethernet, the "
     "priority (0 to 7) of packets with a VLAN tag.",
     [](Text text, Options& o) { return number(text, 0, 15, o.path.service_level); }},
    {"traffic_class", FI_PARAM_INT, "0", "0 to 255",
     "The traffic class of paths with a GRH. RoCE v2 has it in the IP header: 4 * DSCP + ECN, so "
     "104 is DSCP 26. Networks with priority flow control tell their lossless class by it.",
     [](Text text, Options& o) { return number(text, 0, 255, o.path.traffic_class); }},
    {"flow_label", FI_PARAM_INT, "0", "0 to 1048575",
     "The flow label of paths with a GRH, from which drivers compute RoCE v2's UDP source port. "
     "0: they compute it from the numbers of both queue pairs, so that connections spread over "
     "the routes of a network (ECMP).",
     [](Text text, Options& o) { return number(text, 0, 1048575, o.path.flow_label); }},
    {"connect_timeout", FI_PARAM_INT, "30000", "100 to 600000 ms",
     "How long the provider requests a connection from a peer that does not answer, before "
     "operations to it fail.",
     [](Text text, Options& o) {
         return number(text, 100, 600'000, o.protocol.timeouts.connect_ms);
     }},
    {"timeout", FI_PARAM_INT, "18", "8 to 31",
     "How long a try waits for the peer's acknowledgement: 4.096 us * 2^N, so 14 is 67 ms, "
     "18 is 1.07 s and 20 is 4.3 s. If a link is down for all tries, the connection ends.",
     [](Text text, Options& o) { return number(text, 8, 31, o.protocol.timeouts.ack); }},
    {"retry", FI_PARAM_INT, "6", "0 to 7",
     "How often a try without acknowledgement is repeated. Some devices repeat without "
     "limit with 7, and never notice that a peer has died.",
     [](Text text, Options& o) { return number(text, 0, 7, o.protocol.timeouts.retries); }},
    {"rnr", FI_PARAM_INT, "10", "1 to 31",
     "How long a sender waits before it repeats a message for which its receiver had no buffer. It "
     "is the code of IBTA's RNR NAK timer: 1 is 0.01 ms, 10 is 0.32 ms, 14 is 1.28 ms, and 31 is "
     "491.52 ms. The sender repeats without limit.",
     [](Text text, Options& o) { return number(text, 1, 31, o.protocol.timeouts.rnr); }},
    {"keepalive", FI_PARAM_INT, "20", "0 to 86400 s",
     "The provider probes peers that have sent nothing for so long with an empty RDMA "
     "write. Receives from a process that has died then end with ECONNRESET. 0: never.",
     [](Text text, Options& o) {
         return number(text, 0, 86'400, o.protocol.timeouts.keepalive_s);
     }},
    {"close_timeout", FI_PARAM_INT, "300", "0 to 86400 s",
     "How long closing an endpoint waits for peers that have yet to fetch messages whose "
     "sends have completed. After that these messages are lost, and the provider reports it.",
     [](Text text, Options& o) { return number(text, 0, 86'400, o.protocol.timeouts.close_s); }},
    {"stats", FI_PARAM_STRING, "off", "off, stderr, or the path of a file",
     "Reports what the endpoints of the process used of the device and did. off: only on "
     "SIGUSR2. stderr: a table of the counts that are not zero. A path: a line of JSON, "
     "appended to that file. The report comes when the last domain is closed and on "
     "SIGUSR2, which always prints the table, too.",
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

void settle(Options& options) noexcept {
    protocol::Options& o = options.protocol;
    const bool is_reuse_wanted = o.reuse.after.value_or(0) != 0;
    const std::size_t unless_set =
        is_reuse_wanted ? o.inline_bytes : protocol::Options{}.inject_bytes;
    o.inject_bytes = std::min(options.inject_size.value_or(unless_set), o.eager_bytes);
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
