// SPDX-License-Identifier: BSD-2-Clause
// Messages of the protocol from bytes that a peer made up: the input is one message behind a byte
// that says whether an immediate came with it. Whatever parse accepts holds together, and an atomic
// operation that it accepts can be carried out on as many elements as it names.
#include <cstdint>
#include <cstring>
#include <vector>

#include "protocol/common/atomic_ops.h"
#include "protocol/wire/shm_layout.h"
#include "protocol/wire/wire.h"
#include "support.h"

namespace heddle::protocol {
namespace {

using softhca::fuzz::fail;

void check_segments(const Message& message, std::uint32_t count, std::uint64_t bytes) {
    if (count > kMaxSegments) fail("%u segments", count);
    unsigned __int128 sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const Segment& segment = message.segments[i];
        sum += segment.bytes;
        if (segment.address + segment.bytes < segment.address) fail("a segment wraps around");
    }
    if (sum != bytes) fail("segments do not add up");
}

void carry_out(const Message& message) {
    const AtomicBody& body = message.atomic;
    const std::size_t size = atomic_size(body.datatype);
    // An operation without operands may name more elements than a test has memory for.
    const std::size_t count = body.count <= 4096 ? body.count : 4096;
    const std::size_t bytes = count * size;
    std::vector<std::byte> target(bytes + body.address % 8, std::byte{1}), result(bytes);
    const unsigned operands = atomic_operands(body.op);
    const std::size_t stride = std::size_t{body.count} * size;
    if (message.payload.size() != operands * stride) fail("operands of another length");
    const std::byte* payload = message.payload.data();
    const bool fetch = (body.flags & (AtomicBody::kFetch | AtomicBody::kCompare)) != 0;
    atomic_apply(body.datatype, body.op, target.data() + body.address % 8,
                 operands > 0 ? payload : nullptr, operands > 1 ? payload + stride : nullptr,
                 fetch ? result.data() : nullptr, count);
    if (fetch && result != std::vector<std::byte>(bytes, std::byte{1}))
        fail("the result is not what was there");
}

void check(const Message& message, std::span<const std::byte> bytes) {
    const std::byte* const end = bytes.data() + bytes.size();
    if (message.payload.data() < bytes.data() + sizeof(Header) ||
        message.payload.data() + message.payload.size() != end)
        fail("the payload is not the message's end");
    if (!message.has_data && message.data != 0) fail("data that did not come");
    switch (message.header.kind) {
        case Kind::kEager:
            return;
        case Kind::kFragment:
            if (message.payload.empty() || message.fragment.offset >= message.fragment.bytes ||
                message.payload.size() > message.fragment.bytes - message.fragment.offset)
                fail("a fragment that is not within its message");
            return;
        case Kind::kRts:
            if ((message.header.flags & Header::kPut) != 0) {
                if (message.rts.segments != 0) fail("segments of an RPUT");
            } else {
                check_segments(message, message.rts.segments, message.rts.bytes);
            }
            break;
        case Kind::kCts:
            check_segments(message, message.cts.segments, message.cts.bytes);
            break;
        case Kind::kFin:
        case Kind::kCredit:
        case Kind::kRingTaken:
        case Kind::kRingStop:
        case Kind::kRingEnd:
        case Kind::kTupleBegin:
        case Kind::kTupleRevoke:
        case Kind::kTupleClosed:
        case Kind::kTupleEnd:
        case Kind::kShmBegin:
        case Kind::kShmWake:
            break;
        case Kind::kTupleOpen:
            if (message.tuple_open.credits % sizeof(std::uint64_t) != 0 ||
                message.tuple_open.credits + kTupleDepth * sizeof(std::uint64_t) <
                    message.tuple_open.credits)
                fail("no place for credits");
            break;
        case Kind::kTupleAnswer:
            if (message.tuple_answer.srqn > 0xffffff) fail("no queue has that number");
            break;
        case Kind::kTupleDrained:
            if (message.tuple_drained.qpn > 0xffffff) fail("no queue pair has that number");
            break;
        case Kind::kRing:
            if (message.ring.slots == 0 || message.ring.slot_bytes < 2 * sizeof(Header))
                fail("a ring without room");
            break;
        case Kind::kData:
            if (!message.has_data) fail("nothing came");
            break;
        case Kind::kAtomic:
            return carry_out(message);
        case Kind::kAtomicReply:
            if (message.atomic_reply.bytes != message.payload.size()) fail("a reply too short");
            return;
        case Kind::kShmOpen:
            if (!ShmShape{message.shm_open.slots, message.shm_open.area_bytes}.is_possible())
                fail("a ring of a shape that there is not");
            break;
        case Kind::kRails:
            if (message.rails.count > kOtherRails || message.rails.speed == 0)
                fail("rails that there cannot be");
            for (std::uint32_t i = 0; i < message.rails.count; ++i)
                if (message.rails.rails[i].speed == 0 || !message.rails.rails[i].name.valid())
                    fail("a rail that nobody can reach");
            break;
        default:
            fail("an unknown kind");
    }
    if (!message.payload.empty()) fail("bytes behind the message");
}

}  // namespace
}  // namespace heddle::protocol

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace heddle::protocol;
    if (size == 0) return 0;
    const std::uint8_t control = data[0];
    const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
    Message message;
    if (parse(bytes, (control & 1) != 0, 0x89abcdefu, message)) check(message, bytes);
    return 0;
}
