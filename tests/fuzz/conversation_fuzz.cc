// SPDX-License-Identifier: BSD-2-Clause
// Whole conversations of an endpoint with peers that say what the input says: messages of all
// kinds, with identifiers that may be right, among honest ones; writes into rings, SENDs to tuple
// queues. All endpoints are in this process, on the software HCA, which the target preloads.
//
// Nothing crashes, no operation ends twice, and a peer that is honest is served to the end.
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "conversation_bodies.h"
#include "input.h"
#include "protocol/endpoint_impl.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol {
namespace {

using softhca::fuzz::fail;
using softhca::fuzz::Input;
using test::End;

constexpr Rendezvous kWays[] = {Rendezvous::kGet, Rendezvous::kPut, Rendezvous::kTuple};
constexpr std::size_t kHostile = 2, kMostSteps = 60;

Options options_for(Rendezvous way) {
    Options options;
    options.timeouts.ack = 8;  // peers that have given each other up do not acknowledge
    options.timeouts.retries = 1;
    options.endpoints = Category::kMpiEverywhere;  // what breaks is its owner's alone
    options.post = PostPath::kVerbs;
    options.rendezvous = way;
    options.eager_bytes = 256;
    options.rendezvous_above = 2048;
    options.inline_bytes = 64;
    options.receive_buffers = 32;
    options.send_depth = 32;
    options.rings.peers = 2;
    options.tuples.queues = 4;
    options.unexpected_bytes = 4096;
    options.reuse.after = 0;
    options.complain = [](const char*) {};
    return options;
}

// An operation of the victim's application, with memory that it may use until its end.
struct Operation {
    bool started = false, ended = false;
    std::vector<char> memory;
};

class Conversation {
public:
    Conversation(Input& input, const Options& options)
        : input_(input), options_(options), victim_(options) {
        for (std::size_t i = 0; i < kHostile; ++i) {
            hostile_.push_back(std::make_unique<End>(options));
            to_hostile_.push_back(victim_.addresses.insert(hostile_[i]->endpoint->name()));
            to_victim_.push_back(hostile_[i]->addresses.insert(victim_.endpoint->name()));
        }
    }
    // No destructor of an endpoint is to wait for answers that never come.
    ~Conversation() {
        for (const auto& each : hostile_)
            give_up(*each);
        give_up(victim_);
        look(3);
    }

    void run() {
        meet();
        for (std::size_t i = 0; i < kMostSteps && !input_.empty(); ++i) {
            step();
            look(input_.below(4));
        }
        look(4);
    }

private:
    static void give_up(End& end) {
        for (const auto& peer : end.impl().peers)
            if (peer->failed == 0) end.impl().fail_peer(*peer, EPROTO);
    }
    End& hostile() { return *hostile_[at_]; }
    Peer& victim_peer() { return *hostile().impl().peers.at(to_victim_[at_]); }

    // Both ways are there before the first step, so that the input decides what happens, not time.
    void meet() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(8);
        for (at_ = 0; at_ < kHostile; ++at_) {
            victim_.impl().connect(*victim_.impl().peers.at(to_hostile_[at_]));
            hostile().impl().connect(victim_peer());
        }
        for (bool all = false; !all;) {
            if (std::chrono::steady_clock::now() > end) fail("no connection");
            look(1);
            all = true;
            for (at_ = 0; at_ < kHostile; ++at_)
                all = all && EndpointImpl::can_send(victim_peer()) &&
                      EndpointImpl::can_send(*victim_.impl().peers.at(to_hostile_[at_]));
        }
        at_ = 0;
    }

    void look(std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            victim_.endpoint->progress();
            for (const auto& each : hostile_) {
                each->endpoint->progress();
                while (!each->transmit.empty())
                    each->transmit.pop();
                while (!each->receive.empty())
                    each->receive.pop();
            }
            read(victim_.transmit);
            read(victim_.receive);
        }
    }
    void read(Completions& completions) {
        for (; !completions.empty(); completions.pop()) {
            const CompletionEntry& entry = completions.front();
            auto* const operation = static_cast<Operation*>(entry.context);
            if (operation == nullptr) continue;  // of remote CQ data
            if (operation->ended) fail("an operation ends twice");
            if (entry.error == 0 && entry.bytes > operation->memory.size())
                fail("%zu bytes in %zu", entry.bytes, operation->memory.size());
            operation->ended = true;
        }
    }
    Operation& operation(std::size_t bytes) {
        operations_.emplace_back();
        operations_.back().memory.assign(bytes, 'v');
        return operations_.back();
    }

    std::uint64_t tag() {
        return input_.one_in(8) ? input_.value<std::uint64_t>() : input_.below(3);
    }

    void step() {
        at_ = input_.below(kHostile);
        switch (input_.below(12)) {
            case 0:
            case 1:
            case 2:
                return say();
            case 3:
                return write_into_ring();
            case 4:
                return send_to_queue();
            case 5: {
                honest_.emplace_back(input_.pick(kSizes), 'h');
                return send(hostile(), to_victim_[at_], honest_.back(), nullptr);
            }
            case 6: {
                Operation& sent = operation(input_.pick(kSizes));
                return send(victim_, to_hostile_[at_], sent.memory, &sent);
            }
            case 7:
                return receive();
            case 8: {
                if (operations_.empty()) return;
                victim_.endpoint->cancel(&operations_[input_.below(256) % operations_.size()]);
                return;
            }
            case 9: {
                ReceiveArguments probe;
                probe.from = FI_ADDR_UNSPEC;
                probe.ignore = ~std::uint64_t{0};
                probe.flags = FI_PEEK | FI_TAGGED;
                victim_.endpoint->receive(probe);
                while (!victim_.receive.empty() && victim_.receive.front().context == nullptr)
                    victim_.receive.pop();
                return;
            }
            case 10:
                return atomic();
            default:
                victim_.impl().look_who_talks(true);
                return;
        }
    }

    void send(End& from, std::uint64_t to, std::vector<char>& bytes, void* context) {
        const iovec piece{bytes.data(), bytes.size()};
        SendArguments a;
        a.iov = &piece;
        a.iov_count = 1;
        a.to = to;
        a.tag = input_.below(3);
        a.flags = FI_COMPLETION | (input_.one_in(8) ? 0 : FI_TAGGED);
        if (input_.one_in(4)) {
            a.flags |= FI_REMOTE_CQ_DATA;
            a.data = input_.value<std::uint64_t>();
        }
        a.context = context;
        from.endpoint->send(a);
    }
    void receive() {
        Operation& posted = operation(input_.pick(kSizes));
        const iovec piece{posted.memory.data(), posted.memory.size()};
        ReceiveArguments a;
        a.iov = &piece;
        a.iov_count = 1;
        a.from = input_.one_in(4) ? FI_ADDR_UNSPEC : to_hostile_[at_];
        a.tag = input_.below(3);
        a.ignore = input_.one_in(4) ? 3 : 0;
        a.flags = FI_COMPLETION | (input_.one_in(8) ? 0 : FI_TAGGED);
        a.context = &posted;
        victim_.endpoint->receive(a);
    }
    void atomic() {
        Operation& done = operation(8);
        victim_.fetch_add(to_hostile_[at_], 1, done.memory.data(), 0, 0, &done);
    }

    // A message of any kind, whose body is of that kind more often than not.
    void say() {
        EndpointImpl& body = hostile().impl();
        Peer& peer = victim_peer();
        Header header;
        header.kind = static_cast<Kind>(1 + input_.below(static_cast<std::uint32_t>(Kind::kLast)));
        header.flags = input_.one_in(4) ? input_.byte() & 15 : 0;
        header.source = input_.one_in(16) ? input_.byte() : body.name.endpoint;
        header.destination = peer.name.endpoint;
        header.sequence = peer.outgoing.send_sequence();
        if (input_.one_in(16)) header.sequence = input_.value<std::uint16_t>();
        header.tag = tag();
        std::vector<std::byte> bytes(sizeof header);
        std::memcpy(bytes.data(), &header, sizeof header);
        const auto add = [&](const auto& value) {
            const auto* const at = reinterpret_cast<const std::byte*>(&value);
            bytes.insert(bytes.end(), at, at + sizeof value);
        };
        if (header.flags & Header::kWideData) add(input_.value<std::uint64_t>());
        bodies_.add_body(header, add);
        if (input_.one_in(8)) bytes.resize(bytes.size() + input_.below(64));
        if (input_.one_in(8))
            bytes.resize(bytes.size() - input_.below(static_cast<std::uint32_t>(
                                            bytes.size() - sizeof header + 1)));
        bytes.resize(std::min<std::size_t>(bytes.size(), body.channel->send_buffers().bytes()));
        if (!EndpointImpl::can_send(peer) || !body.send_control(peer, bytes)) return;
        // Most fragments are not the last: those have one number.
        if (is_sequenced(header.kind) && (header.kind != Kind::kFragment || input_.one_in(3)))
            peer.outgoing.count_sequenced();
    }
    // Whatever the ring's owner takes for a message.
    void write_into_ring() {
        EndpointImpl& body = hostile().impl();
        Peer& peer = victim_peer();
        SendRing* const ring = hostile().impl().rings.ring_at(peer);
        if (ring == nullptr || !EndpointImpl::can_send(peer)) return;
        std::byte bytes[48] = {};
        const Header header{static_cast<Kind>(input_.one_in(4) ? input_.byte() : 1),
                            static_cast<std::uint8_t>(input_.below(4)),
                            body.name.endpoint,
                            peer.name.endpoint,
                            peer.outgoing.send_sequence(),
                            tag()};
        std::memcpy(bytes + 8, &header, sizeof header);
        RingTail tail = ring->tail(24);
        if (input_.one_in(2)) tail.bytes = bodies_.count();
        if (input_.one_in(4)) tail.round = bodies_.count();
        tail.flags = input_.below(4);
        std::memcpy(bytes + sizeof bytes - sizeof tail, &tail, sizeof tail);
        write(peer, bytes, ring->address(sizeof bytes - sizeof tail), ring->key());
        if (input_.one_in(4)) return;
        ring->count_sent();
        peer.outgoing.count_sequenced();
    }
    void write(Peer& peer, std::span<std::byte> bytes, std::uint64_t to, std::uint32_t key) {
        EndpointImpl& body = hostile().impl();
        const ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes.data()),
                            static_cast<std::uint32_t>(bytes.size()), 0};
        post::WorkRequest work;
        work.opcode = post::Opcode::kWrite;
        work.flags = post::kInline;
        work.sges = {&piece, 1};
        work.remote_address = to;
        work.remote_key = key;
        work.remote_srq = peer.name.srqn;
        body.channel->post(*peer.connection, work, {});
    }

    // To a queue that was opened for it, or for the other one.
    void send_to_queue() {
        EndpointImpl& body = hostile().impl();
        Peer& peer = victim_peer();
        if (body.tuples == nullptr || !EndpointImpl::can_send(peer)) return;
        End& of = *hostile_[input_.below(kHostile)];
        Peer& of_peer = *of.impl().peers[0];
        const TupleOut* const queue = of.impl().tuples->sender.find(of_peer, input_.below(3));
        if (queue == nullptr || queue->srqn == 0) return;
        const std::uint32_t number = input_.one_in(4) ? bodies_.count() : queue->sent;
        // With credit only: without, the connection of all messages would wait for a receive.
        const auto* const credit = queue->credits + queue->sent % kTupleDepth * sizeof(TupleCredit);
        TupleCredit there;
        std::memcpy(&there, credit, sizeof there);
        if (there.number != queue->sent + 1) return;
        std::byte bytes[8] = {};
        const ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes), input_.below(9), 0};
        post::WorkRequest work;
        work.opcode = input_.one_in(8) ? post::Opcode::kSend : post::Opcode::kSendImm;
        work.flags = post::kInline;
        if (piece.length != 0) work.sges = {&piece, 1};
        work.immediate = std::uint32_t{input_.byte()} << 24 | (number & 0xff'ffff);
        work.remote_srq = queue->srqn;
        body.channel->post(*peer.connection, work, {});
    }

    Input& input_;
    Bodies bodies_{input_};
    const Options options_;
    std::deque<Operation> operations_;  // before the endpoints, which use their memory
    std::deque<std::vector<char>> honest_;
    End victim_;
    std::vector<std::unique_ptr<End>> hostile_;
    std::vector<std::uint64_t> to_hostile_, to_victim_;
    std::size_t at_ = 0;
};

}  // namespace
}  // namespace heddle::protocol

// The device is preloaded, so the target starts itself once more.
extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
    if (std::getenv("SOFTHCA_FUZZ_STARTED") != nullptr) return 0;
    const std::string fabric = "fuzz-conversation-" + std::to_string(::getpid());
    setenv("SOFTHCA_FUZZ_STARTED", "1", 1);
    setenv("SOFTHCA_FABRIC", fabric.c_str(), 1);
    setenv("SOFTHCA_LOG", "error", 0);
    setenv("LD_PRELOAD", SOFTHCA_LIBRARY, 1);
    // A symbolizer is preloaded, too, and ends at once. Writing to it must not end the target.
    std::signal(SIGPIPE, SIG_IGN);  // execv() keeps it
    ::execv("/proc/self/exe", *arguments);
    softhca::fuzz::fail("cannot start itself with " SOFTHCA_LIBRARY);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace heddle::protocol;
    // A process has one set of options while it has a domain.
    static std::shared_ptr<Domain> domain;
    static Rendezvous way{};
    Input input(data, size);
    const Rendezvous wanted = input.pick(kWays);
    if (!domain || wanted != way) {
        domain.reset();
        domain = std::make_shared<Domain>(options_for(wanted));
        way = wanted;
    }
    Conversation(input, options_for(wanted)).run();
    return 0;
}
