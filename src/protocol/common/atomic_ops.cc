// SPDX-License-Identifier: BSD-2-Clause
// fi_atomic(3) by software. One function computes an element of any type; around it stands a loop
// of compare-and-swaps, or the lock.
#include "protocol/common/atomic_ops.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <atomic>
#include <bit>
#include <complex>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "heddle/detail/assert.h"

namespace heddle::protocol {
namespace {

// Younger than some installed headers.
constexpr std::uint8_t kInt128 = 14, kUint128 = 15;
constexpr std::uint8_t kDiff = 19;

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;
template <class T>
inline constexpr bool kIsInteger =
    std::is_integral_v<T> || std::is_same_v<T, Int128> || std::is_same_v<T, Uint128>;

// Calls `use` with the type of these elements; false if there is none.
template <class Use>
bool with_type(std::uint8_t datatype, Use use) {
    const auto is = [&]<class T>(std::type_identity<T> type) {
        use(type);
        return true;
    };
    switch (datatype) {
        case FI_INT8:
            return is(std::type_identity<std::int8_t>{});
        case FI_UINT8:
            return is(std::type_identity<std::uint8_t>{});
        case FI_INT16:
            return is(std::type_identity<std::int16_t>{});
        case FI_UINT16:
            return is(std::type_identity<std::uint16_t>{});
        case FI_INT32:
            return is(std::type_identity<std::int32_t>{});
        case FI_UINT32:
            return is(std::type_identity<std::uint32_t>{});
        case FI_INT64:
            return is(std::type_identity<std::int64_t>{});
        case FI_UINT64:
            return is(std::type_identity<std::uint64_t>{});
        case FI_FLOAT:
            return is(std::type_identity<float>{});
        case FI_DOUBLE:
            return is(std::type_identity<double>{});
        case FI_FLOAT_COMPLEX:
            return is(std::type_identity<std::complex<float>>{});
        case FI_DOUBLE_COMPLEX:
            return is(std::type_identity<std::complex<double>>{});
        case FI_LONG_DOUBLE:
            return is(std::type_identity<long double>{});
        case FI_LONG_DOUBLE_COMPLEX:
            return is(std::type_identity<std::complex<long double>>{});
        case kInt128:
            return is(std::type_identity<Int128>{});
        case kUint128:
            return is(std::type_identity<Uint128>{});
        default:
            return false;
    }
}

// Sums, differences and products of integers wrap around. That is computed in unsigned numbers, and
// no narrower than int, to which C++ would promote them.
template <class T, class Compute>
T arithmetic(T a, T b, Compute compute) {
    if constexpr (std::is_same_v<T, Int128> || std::is_same_v<T, Uint128>) {
        return static_cast<T>(compute(static_cast<Uint128>(a), static_cast<Uint128>(b)));
    } else if constexpr (kIsInteger<T>) {
        using Wide = std::make_unsigned_t<decltype(a + b)>;
        return static_cast<T>(compute(static_cast<Wide>(a), static_cast<Wide>(b)));
    } else {
        return compute(a, b);
    }
}

// What the operation makes of a value; false if it stays as it is.
template <class T>
bool compute(std::uint8_t op, const T& value, const T& operand, const T& compare, T& out) {
    const auto write_if = [&](bool condition) {
        out = operand;
        return condition;
    };
    const auto truth = [&](bool condition) {
        out = static_cast<T>(condition ? 1 : 0);
        return true;
    };
    const bool is = value != T{}, other = operand != T{};
    switch (op) {
        case FI_SUM:
            out = arithmetic(value, operand, [](auto a, auto b) { return a + b; });
            return true;
        case kDiff:
            out = arithmetic(value, operand, [](auto a, auto b) { return a - b; });
            return true;
        case FI_PROD:
            out = arithmetic(value, operand, [](auto a, auto b) { return a * b; });
            return true;
        case FI_LOR:
            return truth(is || other);
        case FI_LAND:
            return truth(is && other);
        case FI_LXOR:
            return truth(is != other);
        case FI_ATOMIC_WRITE:
            return write_if(true);
        case FI_CSWAP:
            return write_if(compare == value);
        case FI_CSWAP_NE:
            return write_if(compare != value);
        default:
            break;
    }
    if constexpr (!kIsComplex<T>) {
        switch (op) {
            case FI_MIN:
                return write_if(operand < value);
            case FI_MAX:
                return write_if(operand > value);
            case FI_CSWAP_LE:
                return write_if(compare <= value);
            case FI_CSWAP_LT:
                return write_if(compare < value);
            case FI_CSWAP_GE:
                return write_if(compare >= value);
            case FI_CSWAP_GT:
                return write_if(compare > value);
            default:
                break;
        }
    }
    if constexpr (kIsInteger<T>) {
        switch (op) {
            case FI_BOR:
                out = static_cast<T>(value | operand);
                return true;
            case FI_BAND:
                out = static_cast<T>(value & operand);
                return true;
            case FI_BXOR:
                out = static_cast<T>(value ^ operand);
                return true;
            case FI_MSWAP:
                out = static_cast<T>((operand & compare) | (value & ~compare));
                return true;
            default:
                break;
        }
    }
    return false;  // FI_ATOMIC_READ
}

// The element at `index` of an array at any alignment, or nothing.
template <class T>
T element(const void* array, std::size_t index) noexcept {
    T value{};
    if (array)
        std::memcpy(&value, static_cast<const std::byte*>(array) + index * sizeof(T), sizeof(T));
    return value;
}

struct Call {
    std::uint8_t op;
    void* target;
    const void* operand;
    const void* compare;
    void* result;
    std::size_t count;
};

template <std::size_t kBytes>
using Word = std::conditional_t<
    kBytes == 1, std::uint8_t,
    std::conditional_t<kBytes == 2, std::uint16_t,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
void apply_by_processor(const Call& call) noexcept {
    using Bits = Word<sizeof(T)>;
    static_assert(sizeof(Bits) == sizeof(T) && std::atomic_ref<Bits>::is_always_lock_free);
    auto* target = static_cast<Bits*>(call.target);
    for (std::size_t i = 0; i < call.count; ++i) {
        const T operand = element<T>(call.operand, i), compare = element<T>(call.compare, i);
        const std::atomic_ref<Bits> place(target[i]);
        Bits before = place.load(std::memory_order_acquire);
        T after;
        while (compute(call.op, std::bit_cast<T>(before), operand, compare, after) &&
               !place.compare_exchange_weak(before, std::bit_cast<Bits>(after))) {
        }
        if (call.result)
            std::memcpy(static_cast<std::byte*>(call.result) + i * sizeof(T), &before, sizeof(T));
    }
}

// One for all types: what one call sees as int128_t, another may see as something else.
constinit std::mutex wide_elements;

template <class T>
void apply_under_lock(const Call& call) noexcept {
    const std::lock_guard guard(wide_elements);
    auto* target = static_cast<std::byte*>(call.target);
    for (std::size_t i = 0; i < call.count; ++i, target += sizeof(T)) {
        const T operand = element<T>(call.operand, i), compare = element<T>(call.compare, i);
        T value, after;
        std::memcpy(&value, target, sizeof(T));
        // By bytes: a long double has some that a copy of its value would not take along.
        if (call.result)
            std::memcpy(static_cast<std::byte*>(call.result) + i * sizeof(T), target, sizeof(T));
        if (compute(call.op, value, operand, compare, after))
            std::memcpy(target, &after, sizeof(T));
    }
}

}  // namespace

std::size_t atomic_size(std::uint8_t datatype) noexcept {
    std::size_t size = 0;
    with_type(datatype, [&]<class T>(std::type_identity<T>) { size = sizeof(T); });
    return size;
}

bool atomic_valid(AtomicCall call, std::uint8_t datatype, std::uint8_t op) noexcept {
    bool integer = false, ordered = false;
    if (!with_type(datatype, [&]<class T>(std::type_identity<T>) {
            integer = kIsInteger<T>;
            ordered = !kIsComplex<T>;
        }))
        return false;
    const bool compares = call == AtomicCall::kCompare;
    switch (op) {
        case FI_SUM:
        case kDiff:
        case FI_PROD:
        case FI_LOR:
        case FI_LAND:
        case FI_LXOR:
        case FI_ATOMIC_WRITE:
            return !compares;
        case FI_MIN:
        case FI_MAX:
            return !compares && ordered;
        case FI_BOR:
        case FI_BAND:
        case FI_BXOR:
            return !compares && integer;
        case FI_ATOMIC_READ:
            return call == AtomicCall::kFetch;
        case FI_CSWAP:
        case FI_CSWAP_NE:
            return compares;
        case FI_CSWAP_LE:
        case FI_CSWAP_LT:
        case FI_CSWAP_GE:
        case FI_CSWAP_GT:
            return compares && ordered;
        case FI_MSWAP:
            return compares && integer;
        default:
            return false;
    }
}

unsigned atomic_operands(std::uint8_t op) noexcept {
    if (op == FI_ATOMIC_READ) return 0;
    return op >= FI_CSWAP && op <= FI_MSWAP ? 2 : 1;
}

void atomic_apply(std::uint8_t datatype, std::uint8_t op, void* target, const void* operand,
                  const void* compare, void* result, std::size_t count) noexcept {
    HEDDLE_ASSERT(target != nullptr && count != 0);
    HEDDLE_ASSERT(operand != nullptr || atomic_operands(op) == 0, "the operation has operands");
    HEDDLE_ASSERT(compare != nullptr || atomic_operands(op) < 2, "the operation compares");
    const Call call{op, target, operand, compare, result, count};
    [[maybe_unused]] const bool known = with_type(datatype, [&]<class T>(std::type_identity<T>) {
        if constexpr (sizeof(T) <= 8 && !kIsComplex<T>) {
            if (std::bit_cast<std::uintptr_t>(target) % sizeof(T) == 0)
                return apply_by_processor<T>(call);
        }
        apply_under_lock<T>(call);
    });
    HEDDLE_ASSERT(known);
}

}  // namespace heddle::protocol
