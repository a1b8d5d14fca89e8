// SPDX-License-Identifier: BSD-2-Clause
// The memory keys of wqe_world.h: regions, windows and indirect keys.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <array>

#include "wqe_world.h"

namespace softhca::fuzz {

void World::add_region(const MemoryPart& part, std::uint32_t access, std::uint32_t domain) {
    ib_uverbs_reg_mr request{};
    request.start = request.hca_va = part.address;
    request.length = part.length;
    request.pd_handle = domain;
    request.access_flags = access;
    ib_uverbs_reg_mr_resp answer{};
    command(IB_USER_VERBS_CMD_REG_MR, request, None{}, &answer);
    regions.push_back({part.address, part.length, answer.lkey});
}

void World::add_window(std::uint8_t type) {
    ib_uverbs_alloc_mw request{};
    request.pd_handle = pd;
    request.mw_type = type;
    ib_uverbs_alloc_mw_resp answer{};
    command(IB_USER_VERBS_CMD_ALLOC_MW, request, None{}, &answer);
    windows.push_back(answer.mw_handle);
}

// Its parts and the addresses follow from the first region. Changes may replace them.
void World::add_mkey(std::uint32_t parts) {
    std::array<std::uint32_t, (0x110 + 2 * 16) / 4> in{}, out{};
    const auto put = [&](std::size_t at, std::uint32_t value) { in[at / 4] = htobe32(value); };
    put(0x0, 0x200 << 16);                        // CREATE_MKEY
    put(0x10, 1u << 15 | 0x1fu << 10 | 2u << 8);  // umr_en, all rights, KLM
    put(0x14, 0xffffffu << 8);
    put(0x1c, pd | 1u << 24);  // en_rinval
    put(0x2c, 200);            // length
    put(0x44, parts);
    put(0x60, 2);
    for (std::size_t i = 0; i < 2; ++i) {
        const std::uint64_t address = regions[0].address + i * 512;
        put(0x110 + 16 * i, 100);
        put(0x114 + 16 * i, regions[0].key);
        put(0x118 + 16 * i, static_cast<std::uint32_t>(address >> 32));
        put(0x11c + 16 * i, static_cast<std::uint32_t>(address));
    }
    Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    call.add(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0, 0);
    call.in(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in.data(), sizeof in);
    call.out(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out.data(), sizeof out);
    if (const int error = call.run(fd_)) fail("no key: errno %d", error);
    mkeys.push_back((be32toh(out[2]) & 0xffffff) - device::kMaxMrs - device::kMaxMws);
}

}  // namespace softhca::fuzz
