// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/engine/mkeys.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <string.h>

#include <algorithm>

#include "softhca/base/assert.h"
#include "softhca/engine/key_change.h"

namespace softhca::engine {

using device::Mkey;
using device::MkeyPart;
using device::QueuePair;
using device::Segment;

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// The key of a part that is none, but says that the next ones repeat (repeat_block.op).
constexpr std::uint32_t kRepeats = 0x400;
// How deep keys of keys may lie (cmd_hca_cap.max_indirection).
constexpr unsigned kMaxDepth = 4;

template <class T>
T read_as(const std::byte* from) noexcept {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

Mkey* find_mkey(Segment& segment, std::uint32_t key) noexcept {
    if (!is_mkey(key)) return nullptr;
    Mkey& mkey = segment.mkeys[(key >> 8) - device::kMaxMrs - device::kMaxMws];
    return mkey.head.live() && mkey.key.load(kRelaxed) == key ? &mkey : nullptr;
}

void set_part(MkeyPart& part, std::uint64_t address, std::uint64_t bytes, std::uint32_t key,
              std::uint32_t stride) noexcept {
    part.address.store(address, kRelaxed);
    part.bytes.store(bytes, kRelaxed);
    part.key.store(key, kRelaxed);
    part.stride.store(stride, kRelaxed);
}

// The pattern of mlx5dv_wr_mr_interleaved: its head, then a description of each part.
bool set_pattern(Mkey& mkey, const std::byte* layout, std::uint32_t units) noexcept {
    const auto head = read_as<mlx5_wqe_umr_repeat_block_seg>(layout);
    const std::uint32_t parts = be16toh(head.num_ent), repeats = be32toh(head.repeat_count);
    if (parts + 1 > units || parts + 1 > mkey.room || repeats == 0) return false;
    static_assert(sizeof(mlx5_wqe_umr_repeat_block_seg) == kMkeyPartBytes &&
                  sizeof(mlx5_wqe_umr_repeat_ent_seg) == kMkeyPartBytes);
    for (std::uint32_t i = 0; i < parts; ++i) {
        const auto part =
            read_as<mlx5_wqe_umr_repeat_ent_seg>(layout + std::size_t{i + 1} * kMkeyPartBytes);
        set_part(mkey.part[i], be64toh(part.va), be16toh(part.byte_count), be32toh(part.memkey),
                 be16toh(part.stride));
    }
    mkey.parts.store(parts, kRelaxed);
    mkey.repeats.store(repeats, kRelaxed);
    return true;
}

Access resolve_at(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                  std::uint64_t address, std::uint64_t length, std::uint32_t rights, SpanList& list,
                  unsigned depth) noexcept;

// As resolve_at(), at a time at which the key does not change.
Access walk(device::Fabric& fabric, const Mkey& mkey, std::uint32_t pd, std::uint64_t address,
            std::uint64_t length, std::uint32_t rights, SpanList& list, unsigned depth) noexcept {
    if (mkey.pd != pd) return Access::kBadDomain;
    const std::uint64_t start = mkey.start.load(kRelaxed), all = mkey.length.load(kRelaxed);
    std::uint64_t into = address - start;
    if (address < start || into > all || length > all - into) return Access::kBadBounds;
    if ((mkey.access.load(kRelaxed) & rights) != rights) return Access::kBadRights;
    const std::uint32_t parts = std::min(mkey.parts.load(kRelaxed), device::kMaxMkeyParts);
    std::uint64_t cycle = 0;
    for (std::uint32_t i = 0; i < parts; ++i)
        if (__builtin_add_overflow(cycle, mkey.part[i].bytes.load(kRelaxed), &cycle))
            return Access::kBadBounds;
    if (length == 0) return Access::kOk;
    if (cycle == 0) return Access::kBadBounds;
    const bool writes =
        rights & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    const std::uint32_t repeats = mkey.repeats.load(kRelaxed);
    std::uint64_t turn = into / cycle;
    into %= cycle;
    for (; length != 0; ++turn) {
        if (turn >= repeats) return Access::kBadBounds;
        for (std::uint32_t i = 0; i < parts && length != 0; ++i) {
            const MkeyPart& part = mkey.part[i];
            const std::uint64_t bytes = part.bytes.load(kRelaxed);
            if (into >= bytes) {
                into -= bytes;
                continue;
            }
            const std::uint64_t taken = std::min(length, bytes - into);
            const std::uint64_t from =
                part.address.load(kRelaxed) + turn * part.stride.load(kRelaxed) + into;
            const Access access = resolve_at(fabric, part.key.load(kRelaxed), pd, from, taken,
                                             writes ? IBV_ACCESS_LOCAL_WRITE : 0, list, depth + 1);
            if (access != Access::kOk) return access;
            length -= taken;
            into = 0;
        }
    }
    return Access::kOk;
}

Access resolve_at(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                  std::uint64_t address, std::uint64_t length, std::uint32_t rights, SpanList& list,
                  unsigned depth) noexcept {
    if (!is_mkey(key)) {
        // A window's key gives remote rights alone, so it can be no part.
        if (key >> 8 >= device::kMaxMrs) return Access::kBadKey;
        return resolve(fabric, key, pd, address, length, rights, list);
    }
    if (depth >= kMaxDepth) return Access::kBadKey;
    const Mkey* const mkey = find_mkey(fabric.segment(), key);
    if (mkey == nullptr) return Access::kBadKey;
    const unsigned count = list.count;
    const std::size_t bytes = list.bytes;
    Access access = Access::kBadKey;
    const bool looked = look_at_one_time(mkey->changes, [&] {
        list.cut(count, bytes);
        const bool serves = mkey->key.load(kRelaxed) == key && !mkey->is_free.load(kRelaxed);
        access = serves ? walk(fabric, *mkey, pd, address, length, rights, list, depth)
                        : Access::kBadKey;
    });
    if (!looked || access != Access::kOk) list.cut(count, bytes);
    return looked ? access : Access::kBadKey;
}

}  // namespace

bool set_parts(Mkey& mkey, const std::byte* layout, std::uint32_t units,
               std::uint64_t entity_bytes) noexcept {
    static_assert(sizeof(mlx5_wqe_umr_klm_seg) == kMkeyPartBytes);
    SOFTHCA_ASSERT(mkey.room <= device::kMaxMkeyParts, "creating the key checked its size");
    if (units == 0) return true;
    if (be32toh(read_as<mlx5_wqe_umr_klm_seg>(layout).mkey) == kRepeats)
        return set_pattern(mkey, layout, units);
    if (units > mkey.room) return false;
    for (std::uint32_t i = 0; i < units; ++i) {
        const auto part = read_as<mlx5_wqe_umr_klm_seg>(layout + std::size_t{i} * kMkeyPartBytes);
        set_part(mkey.part[i], be64toh(part.address),
                 entity_bytes != 0 ? entity_bytes : be32toh(part.byte_count), be32toh(part.mkey),
                 0);
    }
    mkey.parts.store(units, kRelaxed);
    mkey.repeats.store(1, kRelaxed);
    return true;
}

std::uint8_t change_mkey(device::Fabric& fabric, const QueuePair& qp,
                         const MkeyChange& change) noexcept {
    Mkey* const mkey = find_mkey(fabric.segment(), change.key);
    if (mkey == nullptr || mkey->head.owner() != fabric.slot() || mkey->pd != qp.pd ||
        !mkey->may_change)
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    const KeyChange right(mkey->changes);
    if (!right) return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    const std::uint32_t user = mkey->qp.load(kRelaxed);
    if ((change.must_be_free && !mkey->is_free.load(kRelaxed)) ||
        (change.must_be_own && user != device::kAnyQp && user != qp.number))
        return MLX5_CQE_SYNDROME_MW_BIND_ERR;
    if (!set_parts(*mkey, change.layout, change.layout_units, 0))
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    const auto has = [&](std::uint64_t field) { return (change.mask & field) != 0; };
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN)) mkey->length.store(change.length, kRelaxed);
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR)) mkey->start.store(change.start, kRelaxed);
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN)) mkey->qp.store(change.qp, kRelaxed);
    std::uint32_t taken = 0;
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE)) taken |= IBV_ACCESS_LOCAL_WRITE;
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ)) taken |= IBV_ACCESS_REMOTE_READ;
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE)) taken |= IBV_ACCESS_REMOTE_WRITE;
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC)) taken |= IBV_ACCESS_REMOTE_ATOMIC;
    mkey->access.store((mkey->access.load(kRelaxed) & ~taken) | (change.access & taken), kRelaxed);
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY))
        mkey->key.store((change.key & ~0xffu) | change.next_key, kRelaxed);
    if (has(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE)) mkey->is_free.store(change.frees, kRelaxed);
    return 0;
}

bool invalidate_mkey(Segment& segment, const QueuePair& target, std::uint32_t key) noexcept {
    Mkey* const mkey = find_mkey(segment, key);
    if (mkey == nullptr || !mkey->may_be_invalidated || mkey->pd != target.pd) return false;
    const KeyChange right(mkey->changes);
    if (!right || mkey->is_free.load(kRelaxed) || !may_use_mkey(segment, key, target.number))
        return false;
    mkey->is_free.store(1, kRelaxed);
    return true;
}

bool may_use_mkey(Segment& segment, std::uint32_t key, std::uint32_t qp) noexcept {
    const Mkey* const mkey = find_mkey(segment, key);
    const std::uint32_t user = mkey != nullptr ? mkey->qp.load(kRelaxed) : device::kAnyQp;
    return user == device::kAnyQp || user == qp;
}

Access resolve_mkey(device::Fabric& fabric, std::uint32_t key, std::uint32_t pd,
                    std::uint64_t address, std::uint64_t length, std::uint32_t rights,
                    SpanList& list) noexcept {
    return resolve_at(fabric, key, pd, address, length, rights, list, 0);
}

}  // namespace softhca::engine
