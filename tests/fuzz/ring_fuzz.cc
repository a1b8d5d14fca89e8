// SPDX-License-Identifier: BSD-2-Clause
// A ring of eager messages, whose writer writes what the input says, anywhere and at any time. What
// is found lies inside the buffer whose turn it is, before its tail.
#include <infiniband/verbs.h>

#include "input.h"
#include "protocol/ring/eager_ring.h"

// Registering needs no device here.
#undef ibv_reg_mr
extern "C" {
static ibv_mr region;
ibv_mr* ibv_reg_mr(ibv_pd*, void*, size_t, int) { return &region; }
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void*, size_t, uint64_t, unsigned) { return &region; }
int ibv_dereg_mr(ibv_mr*) { return 0; }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace heddle::protocol;
    using softhca::fuzz::fail;
    softhca::fuzz::Input input(data, size);
    const std::uint32_t slots = 1u << input.below(4);
    ReceiveRing ring(nullptr, slots, 16 + input.below(200));
    const RingBody offer = ring.offer();
    SendRing honest(offer);
    auto* const memory = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(offer.address));
    const std::size_t bytes = std::size_t{offer.slots} * offer.slot_bytes;
    std::uint32_t popped = 0;
    const auto write = [&](std::size_t at, const void* from, std::size_t length) {
        if (at < bytes) std::memcpy(memory + at, from, std::min(length, bytes - at));
    };
    while (!input.empty()) {
        switch (input.below(4)) {
            case 0: {  // anything, anywhere
                const std::uint64_t word = input.value<std::uint64_t>();
                write(input.value<std::uint16_t>() % bytes, &word, 1 + input.below(8));
                break;
            }
            case 1: {  // a tail where the reader expects one
                RingTail tail{input.word(), input.below(4), input.word() >> input.below(32),
                              popped / slots + 1};
                if (input.one_in(8)) tail.round = input.word();
                write((popped % slots + 1) * std::size_t{offer.slot_bytes} - sizeof tail, &tail,
                      sizeof tail);
                break;
            }
            case 2: {  // a message as an honest one writes it
                const std::size_t length = 16 + input.below(64);
                if (!honest.takes(length)) break;
                const RingTail tail = honest.tail(length);
                const std::uint64_t at = honest.address(length) - offer.address;
                if (at + length + sizeof tail > bytes) fail("an honest one writes past the end");
                write(at + length, &tail, sizeof tail);
                honest.count_sent();
                break;
            }
            default: {
                ReceiveRing::Found found;
                if (ring.next(found) != ReceiveRing::Next::kMessage) break;
                const std::byte* const slot = memory + popped % slots * offer.slot_bytes;
                if (found.bytes.size() < sizeof(Header) || found.bytes.data() < slot ||
                    found.bytes.data() + found.bytes.size() !=
                        slot + offer.slot_bytes - sizeof(RingTail))
                    fail("a message outside of its buffer");
                ring.pop();
                ++popped;
                if (ring.has_news()) honest.took(ring.news().taken);
                break;
            }
        }
    }
    return 0;
}
