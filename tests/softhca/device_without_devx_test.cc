// SPDX-License-Identifier: BSD-2-Clause
// A device that takes no firmware commands (trait `no-devx`), and one that does.
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "chosen_trait.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// libmlx5 asks for firmware commands at each open, and opens without them if it must.
TEST(DeviceWithoutDevx, MakesNoKeysOfKeys) {
    const Owned<ibv_context> context = open_device();
    const Owned<ibv_pd> pd(check(ibv_alloc_pd(context.get()), "a PD"));
    mlx5dv_mkey_init_attr wanted = {};
    wanted.pd = pd.get();
    wanted.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
    wanted.max_entries = 4;
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&wanted);
    EXPECT_EQ(mkey == nullptr ? errno : 0, chosen(DeviceTrait::kNoDevx) ? EINVAL : 0);
    if (mkey != nullptr) {
        EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
    }
    mlx5dv_context_attr attributes = {};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    const Owned<ibv_context> asked(mlx5dv_open_device(context->device, &attributes));
    EXPECT_EQ(asked != nullptr, !chosen(DeviceTrait::kNoDevx));
}

}  // namespace
}  // namespace softhca::test
