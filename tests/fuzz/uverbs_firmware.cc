// SPDX-License-Identifier: BSD-2-Clause
#include "uverbs_firmware.h"

#include <endian.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <array>

namespace softhca::fuzz {
namespace {

// RTS2RTS, which resets a stream of a DCI.
void change_qp(Session& s) {
    std::array<std::uint32_t, 0x1d0 / 4> in{};
    std::array<std::uint32_t, 4> out{};
    in[0] = htobe32((s.input.one_in(8) ? s.input.word() : 0x505u) << 16);
    in[2] = htobe32(1u << 31 | (s.qp_number() & 0xffffff));
    in[0x10c / 4] = htobe32(s.input.one_in(8) ? s.input.word() : 1);
    in[0x110 / 4] = htobe32(s.input.byte());
    Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY);
    call.add(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, s.handle(Kind::kQp), 0);
    call.in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in.data(),
            s.input.one_in(4) ? s.input.below(sizeof in) : sizeof in);
    call.out(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, out.data(), sizeof out);
    call.run(s.device());
}

}  // namespace

// CREATE_MKEY with some parts, and other firmware commands.
void devx_method(Session& s) {
    if (s.input.one_in(4)) {
        Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY);
        call.add(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, s.handle(Kind::kMkey), 0);
        call.run(s.device());
        return;
    }
    std::array<std::uint32_t, (0x110 + 8 * 16) / 4> in{};
    std::array<std::uint32_t, 300> out{};
    const auto put = [&](std::size_t at, std::uint32_t value) { in[at / 4] = htobe32(value); };
    const bool creates = s.input.one_in(2);
    const bool general = creates && s.input.one_in(3);
    put(0x0, (general             ? 0xa00u
              : creates           ? 0x200u
              : s.input.one_in(4) ? s.input.word()
                                  : 0x100u)
                 << 16);
    put(0x4, general ? s.input.pick({0x2cu, 0x3au, 0x2bu}) : s.input.byte());
    if (s.input.one_in(4)) return change_qp(s);
    if (creates && !general) {
        put(0x10, s.input.one_in(4) ? s.input.word() : 1u << 15 | 0x1fu << 10 | 2u << 8);
        put(0x14, 0xffffff00u | s.input.byte());
        put(0x1c, s.handle(Kind::kPd) & 0xffffff);
        put(0x2c, s.input.word());
        put(0x44, s.input.one_in(8) ? s.input.word() : s.input.below(16));
        put(0x48, s.input.one_in(4) ? s.input.below(64) : 0);
        put(0x60, s.input.one_in(8) ? s.input.word() : s.input.below(9));
        for (unsigned n = s.input.below(8); n; --n)
            put(0x110 + s.input.below(8 * 4) * 4, s.input.word());
    }
    std::size_t given = s.input.one_in(4) ? s.input.below(sizeof in) : sizeof in;
    std::size_t room = s.input.one_in(4) ? s.input.below(sizeof out) : sizeof out;
    if (!creates && !s.input.one_in(8)) {
        Call call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
        call.in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in.data(), given);
        call.out(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out.data(), room);
        if (s.input.one_in(16)) call.last()->data = s.address();
        call.run(s.device());
        return;
    }
    Call call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    call.add(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0, 0);
    call.in(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in.data(), given);
    if (s.input.one_in(16)) call.last()->data = s.address();
    call.out(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out.data(), room);
    if (s.input.one_in(16)) call.last()->data = s.address();
    if (call.run(s.device()) == 0)
        s.add(Kind::kMkey,
              static_cast<std::uint32_t>(call.data_of(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)));
}

}  // namespace softhca::fuzz
