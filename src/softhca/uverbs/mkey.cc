// SPDX-License-Identifier: BSD-2-Clause
// CREATE_MKEY: memory keys whose memory is that of other keys (PRM: access modes KLM and KSM).
// libmlx5 makes mlx5dv's mkeys by it, without parts; UMR work requests give them theirs.
#include <infiniband/verbs.h>

#include "softhca/base/assert.h"
#include "softhca/device/table.h"
#include "softhca/engine/mkeys.h"
#include "softhca/uverbs/devx.h"
#include "softhca/uverbs/free_key.h"

namespace softhca::uverbs {
namespace {

using device::Mkey;
using prm::Field;
using prm::Status;
using prm::Structure;

// create_mkey_in
constexpr std::size_t kContext = 0x10, kParts = 0x110;
constexpr Field kPartsGiven{0x60, 0, 32};
// mkc, from kContext on
constexpr Field kFree{0, 1, 1}, kModeHigh{0, 3, 3}, kMayChange{0, 16, 1}, kAtomic{0, 17, 1};
constexpr Field kRemoteWrite{0, 18, 1}, kRemoteRead{0, 19, 1}, kLocalWrite{0, 20, 1};
constexpr Field kModeLow{0, 22, 2};
constexpr Field kQp{4, 0, 24}, kLowByte{4, 24, 8};
constexpr Field kWholeSpace{0xc, 0, 1}, kBsf{0xc, 1, 1}, kMayBeInvalidated{0xc, 7, 1};
constexpr Field kDomain{0xc, 8, 24};
constexpr std::size_t kStart = 0x10, kLength = 0x18;
constexpr Field kRoom{0x34, 0, 32}, kLogEntity{0x38, 27, 5};

enum class Mode : std::uint32_t { kParts = 2, kEqualParts = 3 };  // KLM, KSM

std::uint32_t rights_in(const Structure& in) noexcept {
    std::uint32_t access = 0;
    if (in.get(kAtomic, kContext)) access |= IBV_ACCESS_REMOTE_ATOMIC;
    if (in.get(kRemoteWrite, kContext)) access |= IBV_ACCESS_REMOTE_WRITE;
    if (in.get(kRemoteRead, kContext)) access |= IBV_ACCESS_REMOTE_READ;
    if (in.get(kLocalWrite, kContext)) access |= IBV_ACCESS_LOCAL_WRITE;
    return access;
}

bool is_supported(const Structure& in) noexcept {
    const auto mode =
        static_cast<Mode>(in.get(kModeHigh, kContext) << 2 | in.get(kModeLow, kContext));
    const bool entity = in.get(kLogEntity, kContext) != 0;
    return (mode == Mode::kParts || (mode == Mode::kEqualParts && entity)) &&
           in.get(kBsf, kContext) == 0 && in.get(kRoom, kContext) <= device::kMaxMkeyParts &&
           in.get(kPartsGiven) <= in.get(kRoom, kContext) &&
           in.has(kParts + std::size_t{in.get(kPartsGiven)} * engine::kMkeyPartBytes);
}

}  // namespace

Status create_mkey(DeviceContext& context, const Structure& in, Structure& out,
                   FirmwareObject* object) noexcept {
    device::Segment& segment = context.fabric->segment();
    device::ProtectionDomain* const pd =
        device::find_own(segment.pds, *context.fabric, context.record, in.get(kDomain, kContext));
    if (!pd) return Status::kBadResource;
    if (!is_supported(in)) return Status::kBadParameter;
    std::uint32_t index;
    Mkey* const mkey = device::reserve(segment.mkeys, *context.fabric, context.record, 0, &index);
    if (!mkey) return Status::kNoResources;
    mkey->pd = in.get(kDomain, kContext);
    mkey->room = in.get(kRoom, kContext);
    mkey->may_change = in.get(kMayChange, kContext);
    mkey->may_be_invalidated = in.get(kMayBeInvalidated, kContext);
    const auto relaxed = std::memory_order_relaxed;
    const std::uint32_t entity = in.get(kLogEntity, kContext);
    if (!engine::set_parts(*mkey, in.data() + kParts, in.get(kPartsGiven),
                           entity ? std::uint64_t{1} << entity : 0)) {
        device::free_item(segment.mkeys, *mkey);
        return Status::kBadParameter;
    }
    mkey->key.store(engine::key_of_mkey(index, in.get(kLowByte, kContext)), relaxed);
    mkey->is_free.store(in.get(kFree, kContext), relaxed);
    mkey->access.store(rights_in(in), relaxed);
    mkey->qp.store(in.get(kQp, kContext), relaxed);
    mkey->start.store(in.get64(kContext + kStart), relaxed);
    mkey->length.store(in.get(kWholeSpace, kContext) ? ~0ull : in.get64(kContext + kLength),
                       relaxed);
    pd->users.fetch_add(1);
    device::publish(mkey->head);
    *object = {FirmwareObject::Kind::kMkey, index};
    out.set(prm::kObjectNumber, mkey->key.load(relaxed) >> 8);
    return Status::kOk;
}

void free_mkey(DeviceContext& context, std::uint32_t index) noexcept {
    free_key(context, context.fabric->segment().mkeys, index);
}

}  // namespace softhca::uverbs
