// SPDX-License-Identifier: BSD-2-Clause
// What parse accepts for each kind of message. One wrong field is enough to refuse a message.
#include "protocol/wire/wire.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/protocol_wire_bytes.h"

namespace heddle::protocol::test {
namespace {

CtsBody cts(std::uint64_t bytes, std::uint32_t segments) {
    CtsBody body;
    body.operation = 77;
    body.receive = 78;
    body.bytes = bytes;
    body.segments = segments;
    return body;
}
AtomicBody atomic(unsigned datatype, unsigned op, unsigned flags, std::uint32_t count) {
    AtomicBody body;
    body.operation = 9;
    body.address = 0x1000;
    body.key = 6;
    body.count = count;
    body.datatype = static_cast<std::uint8_t>(datatype);
    body.op = static_cast<std::uint8_t>(op);
    body.flags = static_cast<std::uint8_t>(flags);
    return body;
}

TEST(Wire, Eager) {
    Message out;
    for (const std::size_t payload : {0u, 1u, 8u, 8000u}) {
        const Bytes bytes = std::move(Bytes(Kind::kEager, Header::kTagged).fill(payload));
        ASSERT_TRUE(bytes.parses(out));
        EXPECT_EQ(out.header.kind, Kind::kEager);
        EXPECT_EQ(out.header.source, 3);
        EXPECT_EQ(out.header.destination, 4);
        EXPECT_EQ(out.header.sequence, 0xfffe);
        EXPECT_EQ(out.header.tag, 0x0123456789abcdefu);
        EXPECT_FALSE(out.has_data);
        EXPECT_EQ(out.data, 0u);
        ASSERT_EQ(out.payload.size(), payload);
        for (const std::byte byte : out.payload)
            EXPECT_EQ(byte, std::byte{0xab});
    }
    for (std::size_t size = 0; size < sizeof(Header); ++size)
        EXPECT_FALSE(Bytes(Kind::kEager).parses(out, false, size));
}

TEST(Wire, FragmentsLieWithinTheirMessage) {
    const auto parses = [](std::uint64_t bytes, std::uint64_t offset, std::size_t payload) {
        Message out;
        const bool good = std::move(Bytes(Kind::kFragment, Header::kTagged)
                                        .add(FragmentBody{bytes, offset})
                                        .fill(payload))
                              .parses(out);
        if (good) {
            EXPECT_EQ(out.fragment.bytes, bytes);
            EXPECT_EQ(out.fragment.offset, offset);
            EXPECT_EQ(out.payload.size(), payload);
        }
        return good;
    };
    EXPECT_TRUE(parses(1, 0, 1));
    EXPECT_TRUE(parses(100, 0, 60));
    EXPECT_TRUE(parses(100, 60, 40));
    EXPECT_FALSE(parses(100, 60, 41));
    EXPECT_FALSE(parses(100, 100, 1));
    EXPECT_FALSE(parses(100, 50, 0));
    EXPECT_FALSE(parses(0, 0, 0));
    EXPECT_FALSE(parses(100, kMost64 - 10, 20)) << "the end wraps around";
    EXPECT_TRUE(parses(kMost64, kMost64 - 1, 1));
    Message out;
    const Bytes whole = std::move(Bytes(Kind::kFragment).add(FragmentBody{8, 0}));
    for (std::size_t size = 0; size <= sizeof(Header) + sizeof(FragmentBody); ++size)
        EXPECT_FALSE(whole.parses(out, false, size));
}

TEST(Wire, UnknownKinds) {
    for (unsigned kind = 0; kind < 256; ++kind) {
        if (kind >= 1 && kind <= static_cast<unsigned>(Kind::kLast)) continue;
        for (const std::size_t size : {0u, 8u, 16u, 24u, 32u, 64u})
            EXPECT_FALSE(std::move(Bytes(static_cast<Kind>(kind)).fill(size)).parses());
    }
}

TEST(Wire, RemoteData) {
    const std::uint64_t data = 0x1122334455667788;
    Message out;
    const Bytes wide = std::move(Bytes(Kind::kEager, Header::kWideData).add(data).fill(3));
    ASSERT_TRUE(wide.parses(out));
    EXPECT_TRUE(out.has_data);
    EXPECT_EQ(out.data, data);
    EXPECT_EQ(out.payload.size(), 3u);
    EXPECT_FALSE(wide.parses(out, true)) << "data twice";
    for (std::size_t size = 0; size < sizeof(Header) + 8; ++size)
        EXPECT_FALSE(wide.parses(out, false, size));

    ASSERT_TRUE(Bytes(Kind::kEager).parses(out, true));
    EXPECT_TRUE(out.has_data);
    EXPECT_EQ(out.data, 0xfedcba98u);

    ASSERT_TRUE(std::move(Bytes(Kind::kData).add(DataBody{1000})).parses(out, true));
    EXPECT_EQ(out.written.bytes, 1000u);
    EXPECT_FALSE(std::move(Bytes(Kind::kData).add(DataBody{})).parses()) << "its data did not come";
    std::move(Bytes(Kind::kData, Header::kWideData).add(data).add(DataBody{1})).expect_exact();
    EXPECT_FALSE(Bytes(Kind::kData).parses(true)) << "nor its length";

    const Bytes put =
        std::move(Bytes(Kind::kRts, Header::kWideData | Header::kPut).add(data).add(rts(9, 0)));
    ASSERT_TRUE(put.parses(out));
    EXPECT_EQ(out.data, data);
    EXPECT_EQ(out.rts.bytes, 9u);

    // control that nobody sees complete
    EXPECT_FALSE(std::move(Bytes(Kind::kCts).add(cts(0, 0))).parses(true));
    EXPECT_FALSE(std::move(Bytes(Kind::kFin).add(FinBody{})).parses(true));
    EXPECT_FALSE(std::move(Bytes(Kind::kCredit).add(CreditBody{})).parses(true));
    EXPECT_FALSE(std::move(Bytes(Kind::kAtomicReply).add(AtomicReplyBody{})).parses(true));
    EXPECT_FALSE(std::move(Bytes(Kind::kFin, Header::kWideData).add(data).add(FinBody{})).parses());
}

TEST(Wire, FlagsOfAKind) {
    const auto allowed = [](Kind kind, const auto& body, unsigned wanted) {
        for (unsigned flags = 0; flags < 256; ++flags) {
            Bytes bytes(kind, flags);
            if ((flags & Header::kWideData) != 0) bytes.fill(8);
            bytes.add(body);
            EXPECT_EQ(bytes.parses(), (flags & ~wanted) == 0)
                << "kind " << static_cast<int>(kind) << ", flags " << flags;
        }
    };
    allowed(Kind::kEager, std::uint32_t{0}, Header::kTagged | Header::kWideData);
    allowed(Kind::kFragment, std::array{FragmentBody{17, 0}, FragmentBody{}},
            Header::kTagged | Header::kWideData);
    allowed(Kind::kRts, rts(0, 0), Header::kTagged | Header::kWideData | Header::kPut);
    allowed(Kind::kCts, cts(0, 0), 0);
    allowed(Kind::kFin, FinBody{}, 0);
    allowed(Kind::kCredit, CreditBody{}, 0);
    allowed(Kind::kAtomic, atomic(FI_INT8, FI_ATOMIC_READ, AtomicBody::kFetch, 1),
            Header::kWideData);
    allowed(Kind::kAtomicReply, AtomicReplyBody{}, 0);
    allowed(Kind::kTupleOpen, TupleOpenBody{}, 0);
    allowed(Kind::kTupleAnswer, TupleAnswerBody{}, 0);
    allowed(Kind::kTupleBegin, TupleBeginBody{}, 0);
    allowed(Kind::kTupleRevoke, TupleRevokeBody{}, 0);
    allowed(Kind::kTupleDrained, TupleDrainedBody{}, 0);
    allowed(Kind::kTupleClosed, TupleClosedBody{}, 0);
    allowed(Kind::kTupleEnd, TupleBeginBody{}, 0);
}

// RTS of an RGET, and CTS: the same rules for segments.
template <class MakeBytes>
void check_segments(MakeBytes make) {
    using Segments = std::vector<SegmentBody>;
    const auto good = [&](std::uint64_t bytes, const Segments& segments) {
        make(bytes, static_cast<std::uint32_t>(segments.size()), segments).expect_exact();
    };
    const auto bad = [&](std::uint64_t bytes, const Segments& segments) {
        EXPECT_FALSE(make(bytes, static_cast<std::uint32_t>(segments.size()), segments).parses());
    };
    good(0, {});
    good(0, {segment(0x1000, 0)});
    good(100, {segment(0x1000, 100)});
    good(100, {segment(0x1000, 60), segment(0, 0), segment(0x2000, 40)});
    good(36, {segment(0, 1), segment(0, 2), segment(0, 3), segment(0, 4), segment(0, 5),
              segment(0, 6), segment(0, 7), segment(0, 8)});
    good(kMost64, {segment(0, kMost64)});
    bad(1, {});
    bad(9, Segments(9, segment(0, 1)));
    bad(99, {segment(0x1000, 100)});
    bad(101, {segment(0x1000, 100)});
    bad(100, {segment(0x1000, 100), segment(0x2000, 1)});
    bad(0, {segment(0, kMost64), segment(0, 1)});      // the sum wraps around to it
    bad(6, {segment(0, kMost64 - 1), segment(0, 8)});  // likewise
    bad(100, {segment(kMost64 - 98, 100)});            // an address does
    good(100, {segment(kMost64 - 100, 100)});
    // Counts that differ from what follows.
    EXPECT_FALSE(make(100, 0, {segment(0, 100)}).parses());
    EXPECT_FALSE(make(100, 2, {segment(0, 100)}).parses());
    EXPECT_FALSE(make(100, ~0u, {segment(0, 100)}).parses());
    EXPECT_FALSE(make(100, 0x80000001, {segment(0, 100)}).parses());
}

TEST(Wire, SegmentsOfRts) {
    check_segments(
        [](std::uint64_t bytes, std::uint32_t count, const std::vector<SegmentBody>& segments) {
            Bytes it(Kind::kRts, Header::kTagged);
            it.add(rts(bytes, count));
            for (const SegmentBody& one : segments)
                it.add(one);
            return it;
        });
    Message out;
    const Bytes two = std::move(
        Bytes(Kind::kRts).add(rts(30, 2)).add(segment(0x1000, 10)).add(segment(0x2000, 20)));
    ASSERT_TRUE(two.parses(out));
    EXPECT_EQ(out.rts.operation, 77u);
    EXPECT_EQ(out.segments[0].address, 0x1000u);
    EXPECT_EQ(out.segments[1].address, 0x2000u);
    EXPECT_EQ(out.segments[1].bytes, 20u);
    EXPECT_EQ(out.segments[1].key, 5u);
    EXPECT_TRUE(out.payload.empty());
}

TEST(Wire, RtsOfRput) {
    std::move(Bytes(Kind::kRts, Header::kPut).add(rts(kMost64, 0))).expect_exact();
    std::move(Bytes(Kind::kRts, Header::kPut).add(rts(0, 0))).expect_exact();
    EXPECT_FALSE(
        std::move(Bytes(Kind::kRts, Header::kPut).add(rts(8, 1)).add(segment(0, 8))).parses());
}

TEST(Wire, SegmentsOfCts) {
    check_segments(
        [](std::uint64_t bytes, std::uint32_t count, const std::vector<SegmentBody>& segments) {
            Bytes it(Kind::kCts);
            it.add(cts(bytes, count));
            for (const SegmentBody& one : segments)
                it.add(one);
            return it;
        });
    Message out;
    const Bytes one = std::move(Bytes(Kind::kCts).add(cts(30, 1)).add(segment(0x1000, 30)));
    ASSERT_TRUE(one.parses(out));
    EXPECT_EQ(out.cts.operation, 77u);
    EXPECT_EQ(out.cts.receive, 78u);
    EXPECT_EQ(out.segments[0].bytes, 30u);
}

TEST(Wire, FinAndCredit) {
    FinBody fin;
    fin.operation = 5;
    fin.status = 110;
    for (const std::uint32_t put : {0u, 1u}) {
        fin.put = put;
        std::move(Bytes(Kind::kFin).add(fin)).expect_exact();
    }
    fin.put = 2;
    EXPECT_FALSE(std::move(Bytes(Kind::kFin).add(fin)).parses());

    CreditBody credit;
    credit.bytes = kMost64;
    const Bytes bytes = std::move(Bytes(Kind::kCredit).add(credit));
    bytes.expect_exact();
    Message out;
    ASSERT_TRUE(bytes.parses(out));
    EXPECT_EQ(out.credit.bytes, kMost64);
}

TEST(Wire, Atomic) {
    constexpr unsigned kFetch = AtomicBody::kFetch, kCompare = AtomicBody::kCompare;
    const auto with = [](const AtomicBody& body, std::size_t payload) {
        return std::move(Bytes(Kind::kAtomic).add(body).fill(payload));
    };
    with(atomic(FI_INT64, FI_SUM, 0, 3), 24).expect_exact();
    with(atomic(FI_INT8, FI_SUM, kFetch, 3), 3).expect_exact();
    with(atomic(FI_INT8, FI_ATOMIC_READ, kFetch, 3), 0).expect_exact();
    with(atomic(FI_INT8, FI_ATOMIC_READ, kFetch, ~0u), 0).expect_exact();
    with(atomic(FI_UINT32, FI_CSWAP, kCompare, 2), 16).expect_exact();
    with(atomic(FI_UINT32, FI_MSWAP, kCompare | kFetch, 2), 16).expect_exact();
    with(atomic(15, FI_CSWAP_LE, kCompare, 1), 32).expect_exact();
    with(atomic(FI_DOUBLE, 19, 0, 1), 8).expect_exact();

    EXPECT_FALSE(with(atomic(FI_INT64, FI_SUM, 0, 0), 0).parses()) << "no element";
    EXPECT_FALSE(with(atomic(FI_INT64, FI_SUM, 4, 1), 8).parses()) << "an unknown flag";
    EXPECT_FALSE(with(atomic(16, FI_SUM, 0, 1), 2).parses()) << "an unknown type";
    EXPECT_FALSE(with(atomic(FI_INT64, 20, 0, 1), 8).parses()) << "an unknown operation";
    EXPECT_FALSE(with(atomic(FI_INT64, FI_CSWAP, 0, 1), 16).parses());
    EXPECT_FALSE(with(atomic(FI_INT64, FI_CSWAP, kFetch, 1), 16).parses());
    EXPECT_FALSE(with(atomic(FI_INT64, FI_SUM, kCompare, 1), 16).parses());
    EXPECT_FALSE(with(atomic(FI_INT64, FI_ATOMIC_READ, 0, 1), 0).parses());
    EXPECT_FALSE(with(atomic(FI_FLOAT, FI_BOR, 0, 1), 4).parses());
    // 2^32 + 8 bytes would be 8 in 32 bits
    EXPECT_FALSE(with(atomic(FI_INT64, FI_SUM, 0, 0x20000001), 8).parses());
    AtomicBody body = atomic(FI_INT64, FI_SUM, 0, 2);
    body.address = kMost64 - 15;
    EXPECT_FALSE(with(body, 16).parses()) << "the target wraps around";
    body.address = kMost64 - 16;
    EXPECT_TRUE(with(body, 16).parses());

    Message out;
    const Bytes bytes = with(atomic(FI_UINT32, FI_CSWAP, kCompare, 2), 16);
    ASSERT_TRUE(bytes.parses(out));
    EXPECT_EQ(out.atomic.operation, 9u);
    EXPECT_EQ(out.atomic.address, 0x1000u);
    EXPECT_EQ(out.atomic.key, 6u);
    EXPECT_EQ(out.payload.size(), 16u);
}

TEST(Wire, AtomicReply) {
    AtomicReplyBody body;
    body.operation = 5;
    for (const std::uint32_t bytes : {0u, 8u, 4096u}) {
        body.bytes = bytes;
        std::move(Bytes(Kind::kAtomicReply).add(body).fill(bytes)).expect_exact();
    }
    body.bytes = ~0u;
    EXPECT_FALSE(std::move(Bytes(Kind::kAtomicReply).add(body).fill(8)).parses());
}

TEST(Wire, PlaceOfARts) {
    PlaceBody place;
    place.behind = kMost64;
    place.order = 5;
    std::move(Bytes(Kind::kRts, Header::kLater).add(place).add(rts(0, 0))).expect_exact();
    const std::uint64_t data = 99;
    const unsigned both = Header::kLater | Header::kWideData | Header::kTagged;
    const Bytes bytes = std::move(
        Bytes(Kind::kRts, both).add(data).add(place).add(rts(8, 1)).add(segment(0x1000, 8)));
    bytes.expect_exact();
    Message out;
    ASSERT_TRUE(bytes.parses(out));
    EXPECT_EQ(out.data, 99u);
    EXPECT_EQ(out.place.behind, kMost64);
    EXPECT_EQ(out.place.order, 5u);
    EXPECT_EQ(out.rts.bytes, 8u);
    ASSERT_TRUE(std::move(Bytes(Kind::kRts).add(rts(0, 0))).parses(out));
    EXPECT_EQ(out.place.behind, 0u) << "of the message before";
}

TEST(Wire, TupleOpen) {
    TupleOpenBody open;
    const auto parses = [&] { return std::move(Bytes(Kind::kTupleOpen).add(open)).parses(); };
    open.sender = open.mask = open.data = kMost64;
    open.credits_key = ~0u;
    open.flags = TupleOpenBody::kHasData;
    open.credits = 0x1000;
    std::move(Bytes(Kind::kTupleOpen).add(open)).expect_exact();
    open.flags = 2;
    EXPECT_FALSE(parses()) << "an unknown flag";
    open.flags = 0;
    EXPECT_TRUE(parses());
    open.credits = 0x1004;
    EXPECT_FALSE(parses()) << "half of a credit";
    open.credits = kMost64 - 7;
    EXPECT_FALSE(parses()) << "it wraps around";
    open.credits = 0 - std::uint64_t{kTupleDepth} * 8 - 8;
    EXPECT_TRUE(parses());
}

TEST(Wire, OfTuples) {
    TupleAnswerBody answer;
    answer.tuple = answer.receiver = answer.mask = kMost64;
    answer.srqn = 0xffffff;
    answer.declined = ~0u;
    std::move(Bytes(Kind::kTupleAnswer).add(answer)).expect_exact();
    answer.srqn = 0x1000000;
    EXPECT_FALSE(std::move(Bytes(Kind::kTupleAnswer).add(answer)).parses());
    TupleDrainedBody drained;
    drained.tuple = kMost64;
    drained.delivered = ~0u;
    drained.qpn = 0xffffff;
    std::move(Bytes(Kind::kTupleDrained).add(drained)).expect_exact();
    drained.qpn = 0x1000000;
    EXPECT_FALSE(std::move(Bytes(Kind::kTupleDrained).add(drained)).parses());
    std::move(Bytes(Kind::kTupleBegin).add(TupleBeginBody{kMost64})).expect_exact();
    std::move(Bytes(Kind::kTupleEnd).add(TupleBeginBody{kMost64})).expect_exact();
    std::move(Bytes(Kind::kTupleRevoke).add(TupleRevokeBody{kMost64, ~0u, 0})).expect_exact();
    std::move(Bytes(Kind::kTupleClosed).add(TupleClosedBody{kMost64, ~0u, 0})).expect_exact();
    EXPECT_FALSE(std::move(Bytes(Kind::kTupleBegin).add(TupleBeginBody{})).parses(true))
        << "remote CQ data";
    EXPECT_FALSE(std::move(Bytes(static_cast<Kind>(static_cast<int>(Kind::kLast) + 1))).parses());
}

}  // namespace
}  // namespace heddle::protocol::test
