// SPDX-License-Identifier: BSD-2-Clause
// Each type and operation against fi_atomic(3), implemented a second time for each family of types;
// and several threads on one value.
#include "protocol/common/atomic_ops.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::protocol {
namespace {

constexpr std::uint8_t kInt128 = 14, kUint128 = 15, kDiff = 19;

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

template <std::uint8_t kDatatype, class T>
struct Type {
    using Element = T;
    static constexpr std::uint8_t kNumber = kDatatype;
};

template <class T>
constexpr bool kComplex = false;
template <class T>
constexpr bool kComplex<std::complex<T>> = true;
template <class T>
constexpr bool kFloating = std::is_floating_point_v<T>;
template <class T>
constexpr bool kInteger = !kComplex<T> && !kFloating<T>;

using Types = testing::Types<
    Type<FI_INT8, std::int8_t>, Type<FI_UINT8, std::uint8_t>, Type<FI_INT16, std::int16_t>,
    Type<FI_UINT16, std::uint16_t>, Type<FI_INT32, std::int32_t>, Type<FI_UINT32, std::uint32_t>,
    Type<FI_INT64, std::int64_t>, Type<FI_UINT64, std::uint64_t>, Type<FI_FLOAT, float>,
    Type<FI_DOUBLE, double>, Type<FI_FLOAT_COMPLEX, std::complex<float>>,
    Type<FI_DOUBLE_COMPLEX, std::complex<double>>, Type<FI_LONG_DOUBLE, long double>,
    Type<FI_LONG_DOUBLE_COMPLEX, std::complex<long double>>, Type<kInt128, Int128>,
    Type<kUint128, Uint128>>;

template <class T>
class AtomicOps : public testing::Test {};
TYPED_TEST_SUITE(AtomicOps, Types);

template <class T>
T random_value(std::mt19937_64& random) {
    if constexpr (kComplex<T>) {
        using Part = typename T::value_type;
        return T(random_value<Part>(random), random_value<Part>(random));
    } else if constexpr (kFloating<T>) {
        return static_cast<T>(static_cast<int>(random() % 9) - 4) / 2;
    } else {
        if (random() % 2 == 0) return static_cast<T>(random() % 4);
        return static_cast<T>(Uint128{random()} << 64 | random());
    }
}

// Integers in 128 unsigned bits, truncated to their size: the definition of wrapping.
template <class T>
T expected(std::uint8_t op, T target, T operand, T compare) {
    const T one = static_cast<T>(1), none = static_cast<T>(0);
    const bool a = target != none, b = operand != none;
    switch (op) {
        case FI_LOR:
            return a || b ? one : none;
        case FI_LAND:
            return a && b ? one : none;
        case FI_LXOR:
            return (a && !b) || (!a && b) ? one : none;
        case FI_ATOMIC_READ:
            return target;
        case FI_ATOMIC_WRITE:
            return operand;
        case FI_CSWAP:
            return compare == target ? operand : target;
        case FI_CSWAP_NE:
            return compare != target ? operand : target;
        default:
            break;
    }
    if constexpr (kInteger<T>) {
        const Uint128 x = static_cast<Uint128>(target), y = static_cast<Uint128>(operand);
        const Uint128 z = static_cast<Uint128>(compare);
        switch (op) {
            case FI_SUM:
                return static_cast<T>(x + y);
            case kDiff:
                return static_cast<T>(x - y);
            case FI_PROD:
                return static_cast<T>(x * y);
            case FI_BOR:
                return static_cast<T>(x | y);
            case FI_BAND:
                return static_cast<T>(x & y);
            case FI_BXOR:
                return static_cast<T>(x ^ y);
            case FI_MSWAP:
                return static_cast<T>((y & z) | (x & ~z));
            default:
                break;
        }
    } else {
        switch (op) {
            case FI_SUM:
                return target + operand;
            case kDiff:
                return target - operand;
            case FI_PROD:
                return target * operand;
            default:
                break;
        }
    }
    if constexpr (!kComplex<T>) {
        switch (op) {
            case FI_MIN:
                return operand < target ? operand : target;
            case FI_MAX:
                return operand > target ? operand : target;
            case FI_CSWAP_LE:
                return compare <= target ? operand : target;
            case FI_CSWAP_LT:
                return compare < target ? operand : target;
            case FI_CSWAP_GE:
                return compare >= target ? operand : target;
            case FI_CSWAP_GT:
                return compare > target ? operand : target;
            default:
                break;
        }
    }
    ADD_FAILURE() << "operation " << int{op} << " has no meaning here";
    return target;
}

// The table of fi_atomic(3): the operations of each call, without those that a type does not have.
template <class T>
bool should_be_valid(AtomicCall call, std::uint8_t op) {
    const bool swap = op >= FI_CSWAP && op <= FI_MSWAP;
    if (op > kDiff || swap != (call == AtomicCall::kCompare)) return false;
    if (op == FI_ATOMIC_READ && call != AtomicCall::kFetch) return false;
    if (op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP) return kInteger<T>;
    if (op == FI_MIN || op == FI_MAX || (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT))
        return !kComplex<T>;
    return true;
}

constexpr AtomicCall kCalls[] = {AtomicCall::kWrite, AtomicCall::kFetch, AtomicCall::kCompare};

TYPED_TEST(AtomicOps, Valid) {
    using T = typename TypeParam::Element;
    EXPECT_EQ(atomic_size(TypeParam::kNumber), sizeof(T));
    for (const AtomicCall call : kCalls)
        for (int op = 0; op < 256; ++op)
            EXPECT_EQ(atomic_valid(call, TypeParam::kNumber, static_cast<std::uint8_t>(op)),
                      should_be_valid<T>(call, static_cast<std::uint8_t>(op)))
                << "call " << static_cast<int>(call) << ", operation " << op;
}

TEST(AtomicOpsTable, NoOtherTypes) {
    for (int datatype = 16; datatype < 256; ++datatype) {
        const auto number = static_cast<std::uint8_t>(datatype);
        EXPECT_EQ(atomic_size(number), 0u);
        for (const AtomicCall call : kCalls)
            EXPECT_FALSE(atomic_valid(call, number, FI_SUM));
    }
}

TEST(AtomicOpsTable, Operands) {
    for (int op = 0; op <= kDiff; ++op)
        EXPECT_EQ(atomic_operands(static_cast<std::uint8_t>(op)), op == FI_ATOMIC_READ ? 0u
                                                                  : op >= FI_CSWAP && op <= FI_MSWAP
                                                                      ? 2u
                                                                      : 1u);
}

template <class T>
void compute_all(std::uint8_t datatype, std::size_t misalign, bool with_result) {
    constexpr std::size_t kCount = 9;
    std::mt19937_64 random(datatype);
    for (int op = 0; op <= kDiff; ++op) {
        const auto number = static_cast<std::uint8_t>(op);
        bool valid = false;
        for (const AtomicCall call : kCalls)
            valid |= atomic_valid(call, datatype, number);
        if (!valid) continue;
        for (int round = 0; round < 60; ++round) {
            SCOPED_TRACE(testing::Message() << "operation " << op << ", round " << round);
            alignas(16) std::byte target[(kCount + 2) * sizeof(T)];
            // Misaligned by one byte, as the operands of a message may be.
            std::byte operand[kCount * sizeof(T) + 1], compare[kCount * sizeof(T) + 1],
                result[kCount * sizeof(T) + 1];
            std::memset(target, 0x5a, sizeof target);
            T before[kCount], given[kCount], compared[kCount];
            for (std::size_t i = 0; i < kCount; ++i) {
                before[i] = random_value<T>(random);
                given[i] = random_value<T>(random);
                compared[i] = round % 2 != 0 ? before[i] : random_value<T>(random);
            }
            std::byte* const at = target + misalign;
            std::memcpy(at, before, sizeof before);
            std::memcpy(operand + 1, given, sizeof given);
            std::memcpy(compare + 1, compared, sizeof compared);
            const unsigned operands = atomic_operands(number);
            atomic_apply(datatype, number, at, operands > 0 ? operand + 1 : nullptr,
                         operands > 1 ? compare + 1 : nullptr, with_result ? result + 1 : nullptr,
                         kCount);
            for (std::size_t i = 0; i < kCount; ++i) {
                T after, fetched;
                std::memcpy(&after, at + i * sizeof(T), sizeof after);
                std::memcpy(&fetched, result + 1 + i * sizeof(T), sizeof fetched);
                EXPECT_TRUE(after == expected(number, before[i], given[i], compared[i]));
                EXPECT_TRUE(!with_result || fetched == before[i]);
            }
            bool beside_kept = true;
            for (std::size_t i = 0; i < sizeof target; ++i)
                if (i < misalign || i >= misalign + sizeof before)
                    beside_kept &= target[i] == std::byte{0x5a};
            EXPECT_TRUE(beside_kept);
        }
    }
}

TYPED_TEST(AtomicOps, Compute) {
    compute_all<typename TypeParam::Element>(TypeParam::kNumber, 0, true);
    compute_all<typename TypeParam::Element>(TypeParam::kNumber, 0, false);
}

TYPED_TEST(AtomicOps, ComputeAtOddAddresses) {
    compute_all<typename TypeParam::Element>(TypeParam::kNumber, 1, true);
}

TYPED_TEST(AtomicOps, ThreadsLoseNothing) {
    using T = typename TypeParam::Element;
    constexpr unsigned kThreads = 4;
    constexpr unsigned kTimes = sizeof(T) == 1 ? 25 : 5000;  // 8 bits hold no more
    alignas(16) std::byte memory[2 * sizeof(T)] = {};
    for (const std::size_t misalign : {0u, 1u}) {
        std::byte* const at = memory + misalign;
        const T zero{}, one = static_cast<T>(1);
        std::memcpy(at, &zero, sizeof zero);
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < kThreads; ++i)
            threads.emplace_back([&] {
                for (unsigned n = 0; n < kTimes; ++n)
                    atomic_apply(TypeParam::kNumber, FI_SUM, at, &one, nullptr, nullptr, 1);
            });
        for (std::thread& thread : threads)
            thread.join();
        T sum;
        std::memcpy(&sum, at, sizeof sum);
        EXPECT_TRUE(sum == static_cast<T>(kThreads * kTimes));
    }
}

// Each value is fetched exactly once: a result belongs to the change that was made.
TEST(AtomicOpsThreads, FetchedValuesAreUnique) {
    constexpr unsigned kThreads = 4, kTimes = 5000;
    alignas(8) std::uint64_t counter = 0;
    std::vector<std::vector<std::uint64_t>> seen(kThreads, std::vector<std::uint64_t>(kTimes));
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            const std::uint64_t one = 1;
            for (std::uint64_t& value : seen[i])
                atomic_apply(FI_UINT64, FI_SUM, &counter, &one, nullptr, &value, 1);
        });
    for (std::thread& thread : threads)
        thread.join();
    std::vector<bool> fetched(kThreads * kTimes);
    for (const auto& values : seen)
        for (const std::uint64_t value : values) {
            ASSERT_LT(value, fetched.size());
            EXPECT_FALSE(fetched[value]);
            fetched[value] = true;
        }
}

TEST(AtomicOpsEdges, NumbersThatAreNone) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    alignas(8) double target = 1;
    atomic_apply(FI_DOUBLE, FI_MIN, &target, &nan, nullptr, nullptr, 1);
    atomic_apply(FI_DOUBLE, FI_MAX, &target, &nan, nullptr, nullptr, 1);
    EXPECT_EQ(target, 1);
    const double two = 2;
    atomic_apply(FI_DOUBLE, FI_CSWAP, &target, &two, &nan, nullptr, 1);
    EXPECT_EQ(target, 1);
    atomic_apply(FI_DOUBLE, FI_CSWAP_NE, &target, &two, &nan, nullptr, 1);
    EXPECT_EQ(target, 2);
}

TEST(AtomicOpsEdges, IntegersWrapAround) {
    alignas(8) std::int16_t small = std::numeric_limits<std::int16_t>::min();
    atomic_apply(FI_INT16, FI_PROD, &small, &small, nullptr, nullptr, 1);
    EXPECT_EQ(small, 0);
    alignas(8) std::uint16_t odd = 0xffff;
    atomic_apply(FI_UINT16, FI_PROD, &odd, &odd, nullptr, nullptr, 1);
    EXPECT_EQ(odd, 1);
    alignas(8) std::int64_t large = std::numeric_limits<std::int64_t>::max();
    const std::int64_t one = 1;
    atomic_apply(FI_INT64, FI_SUM, &large, &one, nullptr, nullptr, 1);
    EXPECT_EQ(large, std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace heddle::protocol
