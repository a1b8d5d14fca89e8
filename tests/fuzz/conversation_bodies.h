// SPDX-License-Identifier: BSD-2-Clause
// Bodies of the protocol's messages, which are of their kind, with identifiers and sizes that may
// be right (conversation_fuzz.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "input.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

// What messages and buffers have.
inline constexpr std::size_t kSizes[] = {0, 8, 200, 300, 5000};

class Bodies {
public:
    explicit Bodies(softhca::fuzz::Input& input) noexcept : input_(input) {}  // kept

    std::uint64_t identifier() {
        if (input_.one_in(8)) return input_.value<std::uint64_t>();
        return input_.below(4) | std::uint64_t{input_.below(4)} << 32;
    }
    std::uint32_t count() {
        static constexpr std::uint32_t kCounts[] = {0, 1, 2, 8, 9, 31, 32, 33, 64, 1u << 31, ~0u};
        return input_.one_in(16) ? input_.word() : input_.pick(kCounts);
    }
    // add: takes each field.
    template <class Add>
    void add_body(const Header& header, const Add& add) {
        const auto add_segments = [&](std::uint32_t segments, std::uint64_t bytes,
                                      bool has_rail_keys = false) {
            for (std::uint32_t i = 0; i < segments && i < kMaxSegments; ++i) {
                const bool is_last = i + 1 == segments;
                const std::uint64_t share = bytes / segments;
                add(SegmentBody{input_.value<std::uint64_t>() >> 1,
                                is_last ? bytes - i * share : share, input_.word(), 0});
                if (has_rail_keys) add(RailKeys{{input_.word(), input_.word(), 0}, 0});
            }
        };
        switch (header.kind) {
            case Kind::kRts: {
                if (header.flags & Header::kLater) add(PlaceBody{count(), count(), 0});
                RtsBody rts{identifier(), input_.pick(kSizes), 0,
                            input_.one_in(8)   ? RtsBody::kByProcess
                            : input_.one_in(3) ? RtsBody::kRailKeys
                                               : 0u};
                if (!(header.flags & Header::kPut)) rts.segments = 1 + input_.below(kMaxSegments);
                add(rts);
                return add_segments(rts.segments, rts.bytes, rts.flags == RtsBody::kRailKeys);
            }
            case Kind::kFragment: {
                const std::size_t bytes = input_.pick(kSizes), offset = input_.below(3) * 100;
                add(FragmentBody{input_.one_in(8) ? input_.value<std::uint64_t>() : bytes, offset});
                for (std::size_t i = 0; i < 100 && (i == 0 || i + offset < bytes); ++i)
                    add(std::byte{'f'});
                return;
            }
            case Kind::kCts: {
                const CtsBody cts{identifier(), identifier(), input_.pick(kSizes),
                                  1 + input_.below(kMaxSegments), 0};
                add(cts);
                return add_segments(cts.segments, cts.bytes);
            }
            case Kind::kFin:
                return add(FinBody{identifier(), count(), input_.below(2)});
            case Kind::kCredit:
            case Kind::kData:
                return add(CreditBody{count()});
            case Kind::kAtomic: {
                AtomicBody ask;
                ask.operation = identifier();
                ask.address = input_.value<std::uint64_t>();
                ask.key = input_.word();
                ask.count = input_.below(9);
                ask.datatype = input_.byte() % 16;
                ask.op = input_.byte() % 32;
                ask.flags = input_.byte() % 4;
                add(ask);
                for (std::uint32_t i = 0; i < ask.count * input_.below(3); ++i)
                    add(input_.value<std::uint64_t>());
                return;
            }
            case Kind::kAtomicReply:
                add(AtomicReplyBody{identifier(), count(), 8});
                return add(std::uint64_t{5});
            case Kind::kRing:
                return add(RingBody{input_.value<std::uint64_t>() >> 1, input_.word(),
                                    1u << input_.below(20), 64u << input_.below(16), 0});
            case Kind::kRingTaken:
                return add(RingTakenBody{count(), 0});
            case Kind::kTupleOpen: {
                TupleOpenBody open;
                open.sender = identifier();
                open.mask = input_.one_in(3) ? input_.value<std::uint64_t>() : 0;
                open.credits = input_.value<std::uint64_t>() & ~std::uint64_t{7} >> 1;
                open.credits_key = input_.word();
                open.flags = input_.below(2);
                return add(open);
            }
            case Kind::kTupleAnswer: {
                TupleAnswerBody answer;
                answer.tuple = identifier();
                answer.receiver = identifier();
                answer.mask = input_.one_in(3) ? input_.value<std::uint64_t>() : 0;
                answer.srqn = input_.word() & 0xff'ffff;
                answer.declined = input_.below(20);
                return add(answer);
            }
            case Kind::kTupleBegin:
            case Kind::kTupleEnd:
                return add(TupleBeginBody{identifier()});
            case Kind::kTupleRevoke:
                return add(TupleRevokeBody{identifier(), count(), 0});
            case Kind::kTupleDrained:
                return add(TupleDrainedBody{identifier(), count(), input_.word() & 0xff'ffff});
            case Kind::kTupleClosed:
                return add(TupleClosedBody{identifier(), count(), 0});
            case Kind::kRails: {
                add(count());  // the speed
                const std::uint32_t rails = input_.below(kOtherRails + 1);
                add(rails);
                for (std::uint32_t i = 0; i < rails; ++i) {
                    RailBody rail;
                    rail.name.process.nonce = identifier();
                    rail.name.process.ud_qpn = input_.word() & 0xff'ffff;
                    rail.name.flags = input_.byte();
                    rail.speed = count();
                    add(rail);
                }
                return;
            }
            default:
                for (std::uint32_t i = 0; i < input_.below(64); ++i)
                    add(input_.byte());
                return;
        }
    }

private:
    softhca::fuzz::Input& input_;
};

}  // namespace heddle::protocol
