// SPDX-License-Identifier: BSD-2-Clause
// A ring in shared memory whose other process writes what the input says, anywhere and at any time:
// to the side that reads it, to the side that writes it, and to an endpoint's part that takes
// messages from it.
//
// No side touches memory outside of the ring, what is found is no longer than it may be, and a peer
// that has failed is not read.
#include <rdma/fabric.h>

#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <vector>

#include "input.h"
#include "protocol/core/core_services.h"
#include "protocol/local/local_peers.h"
#include "protocol/shm/host.h"

namespace heddle::protocol {
namespace {

using softhca::fuzz::fail;
using softhca::fuzz::Input;

constexpr ShmShape kShape{kLeastShmSlots, kLeastShmArea};

// An endpoint without a device.
struct Parts {
    Options options;
    AddressVector addresses;
};
class Core final : public Parts, public CoreServices {
public:
    Core() : CoreServices(Parts::options, Parts::addresses, {}) {
        Parts::options.complain = [](const char*) {};
        name.endpoint = 1;
    }
    Peer& add_peer() {
        EndpointAddress its;
        its.endpoint = static_cast<std::uint16_t>(peers.size() + 1);
        its.process.nonce = 1000 + peers.size();
        return *peers.at(addresses.insert(its));
    }
    void control_message(Peer&, std::vector<std::byte>&&) override {}
    void control_message_first(Peer&, std::vector<std::byte>&&) override {}
    void wake(Peer&) override {}
    void wait(Peer&, PendingPtr) override {}
    bool send_control(Peer&, std::span<const std::byte>) override { return true; }
    post::Posted post(Peer&, post::WorkRequest&, WrContext&) noexcept override {
        return post::Posted::kFull;
    }
    bool use_memory(LocalBuffers&, const iovec*, std::size_t, void* const*, std::size_t,
                    int) noexcept override {
        return false;
    }
    void begin_bulk(Bulk&, Peer&, post::Opcode, const Bulk::Range&, Bulk::Done,
                    void*) noexcept override {}
    void look_if_open(Peer&) const noexcept override {}
    void refuse(Peer& peer, int error) override { peer.failed = error; }
    void complain_of(const Peer&, const std::string&) const override {}
};

// Takes messages as an endpoint does.
struct Endpoint {
    Core& core;
    LocalPeers* local = nullptr;

    void touch(const Peer& peer, std::span<const std::byte> bytes) {
        if (peer.failed != 0) fail("a peer that has failed is read");
        if (bytes.size() < sizeof(Header) || bytes.size() > kShape.most_message())
            fail("a message of %zu bytes", bytes.size());
        unsigned sum = 0;
        for (const std::byte byte : bytes)
            sum += static_cast<unsigned>(byte);
        static_cast<void>(*const_cast<volatile unsigned*>(&sum));
    }
    void take_next(Peer& peer, bool, const ShmReceiver::Found& found) {
        touch(peer, found.bytes);
        peer.incoming.count_received();
    }
    void take_other(Peer& peer, const Header& header, const ShmReceiver::Found& found) {
        touch(peer, found.bytes);
        Message message;
        if (!parse(found.bytes, found.has_immediate, found.immediate, message) ||
            message.header.kind != header.kind) {
            core.protocol_error(peer);
            local->on_peer_failed(peer);
        } else if (is_sequenced(header.kind)) {
            peer.incoming.count_received();
        }
    }
    bool has_enough() const { return false; }
};

// What the other process may do to the memory.
class Scribbler {
public:
    Scribbler(Input& input, std::byte* memory) : input_(input), memory_(memory) {}

    void scribble(const Header& likely, std::uint32_t taken) {
        switch (input_.below(4)) {
            case 0: {  // anything, anywhere
                const auto word = input_.value<std::uint64_t>();
                const std::size_t at = input_.word() % (kShape.bytes() - sizeof word);
                return std::memcpy(memory_ + at, &word, 1 + input_.below(8)), void();
            }
            case 1: {  // a mark where the reader looks next
                static constexpr std::uint32_t kLengths[] = {0,   15,   16,   24,  112,
                                                             113, 1000, 1024, 1025};
                std::uint32_t length = input_.pick(kLengths);
                if (input_.one_in(8)) length = input_.word();
                const std::uint64_t round =
                    input_.one_in(8) ? input_.word() : taken / kShape.slots + 1;
                slots_of(memory_)[taken % kShape.slots].mark = round << 32 | length;
                return;
            }
            case 2: {  // a header there
                Header header = likely;
                if (input_.one_in(4)) header.kind = static_cast<Kind>(input_.byte());
                if (input_.one_in(4)) header.flags = input_.byte();
                if (input_.one_in(8)) header.source = input_.byte();
                if (input_.one_in(4))
                    header.sequence = static_cast<std::uint16_t>(header.sequence + input_.below(3));
                std::byte* const to = input_.one_in(2)
                                          ? slots_of(memory_)[taken % kShape.slots].inside
                                          : area_of(memory_, kShape) + input_.below(64) * 64;
                return std::memcpy(to, &header, sizeof header), void();
            }
            default:
                control_of(memory_).progress.taken =
                    input_.one_in(4) ? input_.word() : taken + input_.below(20);
                control_of(memory_).state.armed = input_.below(2);
                return;
        }
    }

private:
    Input& input_;
    std::byte* const memory_;
};

struct Free {
    void operator()(std::byte* at) const { ::operator delete[](at, std::align_val_t{128}); }
};

// Both sides, on memory beyond whose ends a sanitizer watches.
void fuzz_ring(Input& input) {
    const std::unique_ptr<std::byte[], Free> memory(new (std::align_val_t{128})
                                                        std::byte[kShape.bytes()]{});
    new (memory.get()) ShmControl;
    ShmSender sender(memory.get(), kShape, input.one_in(2));
    ShmReceiver receiver(memory.get(), kShape);
    Scribbler scribbler(input, memory.get());
    std::uint32_t taken = 0;
    while (!input.empty()) {
        switch (input.below(3)) {
            case 0:
                scribbler.scribble({}, taken);
                break;
            case 1: {
                const std::size_t bytes = 16 + input.below(1009);
                std::byte* const to = sender.reserve(bytes);
                if (to == nullptr) break;
                std::memset(to, 7, bytes);
                sender.publish(bytes, input.one_in(2), 5);
                break;
            }
            default: {
                ShmReceiver::Found found;
                if (receiver.next(found) != ShmReceiver::Next::kMessage) {
                    receiver.settle();
                    break;
                }
                if (found.bytes.size() > kShape.most_message()) fail("a message that is too long");
                const std::vector<std::byte> copy(found.bytes.begin(), found.bytes.end());
                receiver.pop();
                ++taken;
                break;
            }
        }
    }
}

// An endpoint that reads two peers.
void fuzz_endpoint(Input& input) {
    Core core;
    Endpoint endpoint{core};
    LocalPeers local(core, true);
    endpoint.local = &local;
    struct Other {
        explicit Other(Peer& its_peer) : peer(its_peer), segment(kShape) {}
        Peer& peer;
        ShmSegment segment;
        std::optional<ShmSender> sender;
    };
    std::vector<std::unique_ptr<Other>> others;
    for (int i = 0; i < 2; ++i) {
        Other& other = *others.emplace_back(std::make_unique<Other>(core.add_peer()));
        local.on_open(other.peer, other.segment.body(), false);
        local.on_begin(other.peer);
        if (other.segment.answer() != ShmControl::kAccepted) fail("an honest ring is not accepted");
        other.sender.emplace(other.segment.memory(), kShape, false);
    }
    while (!input.empty()) {
        Other& other = *others[input.below(2)];
        Header header{Kind::kEager,
                      0,
                      other.peer.name.endpoint,
                      core.name.endpoint,
                      other.peer.incoming.expected_sequence(),
                      5};
        switch (input.below(6)) {
            case 0:
                Scribbler(input, other.segment.memory())
                    .scribble(header, control_of(other.segment.memory()).progress.taken % 65536);
                break;
            case 1:
            case 2: {  // an honest sender's, in its form
                if (input.one_in(3)) header.kind = static_cast<Kind>(1 + input.below(24));
                if (input.one_in(4)) header.flags = Header::kTagged;
                const std::size_t bytes = sizeof header + input.below(300);
                std::byte* const to = other.sender->reserve(bytes);
                if (to == nullptr) break;
                std::memset(to, 0, bytes);
                std::memcpy(to, &header, sizeof header);
                for (std::size_t i = sizeof header; i < bytes && i < 64; ++i)
                    to[i] = std::byte{input.byte()};
                other.sender->publish(bytes, input.one_in(4), 5);
                break;
            }
            case 3:
                local.take_from_all(1 + input.below(20), endpoint);
                break;
            case 4:
                local.take_next([&](Peer& peer, const ShmReceiver::Found& found) {
                    endpoint.touch(peer, found.bytes);
                    if (input.one_in(4)) return false;
                    peer.incoming.count_received();
                    return true;
                });
                break;
            default:
                local.arm();
                local.look();
                break;
        }
    }
}

}  // namespace
}  // namespace heddle::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    softhca::fuzz::Input input(data, size);
    if (input.one_in(2))
        heddle::protocol::fuzz_ring(input);
    else
        heddle::protocol::fuzz_endpoint(input);
    return 0;
}
