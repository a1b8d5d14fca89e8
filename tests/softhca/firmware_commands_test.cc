// SPDX-License-Identifier: BSD-2-Clause
// Firmware commands (mlx5dv_devx_general_cmd(3), mlx5dv_devx_obj_create(3)): keys made by them,
// capabilities, and what refusals say.
#include <endian.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "mkey_fixture.h"

namespace softhca::test {
namespace {

// Firmware commands, as a program writes them.
class FirmwareCommands : public Mkeys {
protected:
    static void put(std::vector<std::uint32_t>& words, std::size_t at, std::uint32_t value) {
        words[at / 4] = htobe32(value);
    }
    std::uint32_t domain() const {
        mlx5dv_pd out{};
        out.comp_mask = 0;
        mlx5dv_obj object{};
        object.pd = {pair_.b.pd.get(), &out};
        require(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD), "the number of a PD");
        return out.pdn;
    }
    // CREATE_MKEY of the kind KSM: equal parts of 64 bytes.
    std::vector<std::uint32_t> equal_parts(const std::vector<std::size_t>& offsets) const {
        std::vector<std::uint32_t> in((0x110 + 16 * offsets.size()) / 4);
        const auto count = static_cast<std::uint32_t>(offsets.size());
        put(in, 0x0, 0x200 << 16);
        put(in, 0x10, 0x1fu << 10 | 3u << 8);  // all rights; access_mode_1_0: KSM
        put(in, 0x14, 0xffffffu << 8 | 0x5a);
        put(in, 0x1c, domain());
        put(in, 0x24, 0x1000);  // it begins at this address
        put(in, 0x2c, 64 * count);
        put(in, 0x44, count);
        put(in, 0x48, 6);  // log_entity_size
        put(in, 0x60, count);
        for (std::size_t i = 0; i < offsets.size(); ++i) {
            put(in, 0x110 + 16 * i + 4, memory_.mr()->lkey);
            put(in, 0x110 + 16 * i + 8,
                static_cast<std::uint32_t>(memory_.address(offsets[i]) >> 32));
            put(in, 0x110 + 16 * i + 12, static_cast<std::uint32_t>(memory_.address(offsets[i])));
        }
        return in;
    }
    mlx5dv_devx_obj* create(const std::vector<std::uint32_t>& in) {
        std::memset(out_, 0, sizeof out_);
        return mlx5dv_devx_obj_create(pair_.b.context.get(), in.data(), 4 * in.size(), out_,
                                      sizeof out_);
    }
    int send(const std::vector<std::uint32_t>& in, std::vector<std::uint32_t>& out) const {
        return mlx5dv_devx_general_cmd(pair_.b.context.get(), in.data(), 4 * in.size(), out.data(),
                                       4 * out.size());
    }
    std::uint32_t status() const { return be32toh(out_[0]) >> 24; }

    std::uint32_t out_[4] = {};
};

TEST_F(FirmwareCommands, MakeAKeyWithItsParts) {
    mlx5dv_devx_obj* const object = create(equal_parts({640, 0, 1280}));
    ASSERT_NE(object, nullptr) << std::strerror(errno) << ", status " << status();
    const std::uint32_t key = (be32toh(out_[2]) & 0xffffff) << 8 | 0x5a;
    ASSERT_TRUE(succeeded(write(key, 0x1000 + 32, 64)));
    const std::uint8_t* const sent = pair_.a.memory->data();
    EXPECT_EQ(std::memcmp(memory_.data() + 672, sent, 32), 0);
    EXPECT_EQ(std::memcmp(memory_.data(), sent + 32, 32), 0);
    ASSERT_EQ(mlx5dv_devx_obj_destroy(object), 0);
    std::memset(memory_.data(), 0xee, 1024);
    expect_no_access(key, 0x1000, 8);
}

// umr_en is not set in equal_parts().
TEST_F(FirmwareCommands, KeyThatMayNotChange) {
    mlx5dv_devx_obj* const object = create(equal_parts({0}));
    ASSERT_NE(object, nullptr);
    mlx5dv_mkey mkey{};
    mkey.lkey = mkey.rkey = (be32toh(out_[2]) & 0xffffff) << 8 | 0x5a;
    EXPECT_EQ(by_.invalidate(mkey.rkey).status, IBV_WC_MW_BIND_ERR);
    EXPECT_TRUE(succeeded(write(mkey.rkey, 0x1000, 64)));
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(FirmwareCommands, RefusedOnesSayWhy) {
    auto in = equal_parts({0, 64});
    put(in, 0x1c, 0xfffff);
    EXPECT_EQ(create(in), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(status(), 5u);  // BAD_RESOURCE: no such domain
    in = equal_parts({0, 64});
    put(in, 0x10, 1u << 8);  // access mode MTT: physical addresses
    EXPECT_EQ(create(in), nullptr);
    EXPECT_EQ(status(), 3u);  // BAD_PARAM
    in = equal_parts({0, 64});
    put(in, 0x60, 3);  // more parts than the command has
    EXPECT_EQ(create(in), nullptr);
    EXPECT_EQ(status(), 3u);
    in = equal_parts({0});
    put(in, 0x0, 0x500u << 16);  // CREATE_QP
    EXPECT_EQ(create(in), nullptr);
    EXPECT_EQ(status(), 2u);  // BAD_OP
    std::vector<std::uint32_t> general(4), answer(4);
    put(general, 0, 0x842u << 16);
    EXPECT_EQ(send(general, answer), EREMOTEIO);
    EXPECT_EQ(be32toh(answer[0]) >> 24, 2u);
}

TEST_F(FirmwareCommands, CapabilitiesAgreeWithTheDevices) {
    const ibv_device_attr device = device_attributes(pair_.b.context.get());
    std::vector<std::uint32_t> in(4), out(4 + 1024);
    put(in, 0, 0x100u << 16);
    put(in, 4, 1);  // general, in force
    ASSERT_EQ(send(in, out), 0);
    const auto word = [&](std::size_t at) { return be32toh(out[4 + at / 4]); };
    EXPECT_GE(device.max_qp, (1 << (word(0x10) & 0x1f)) / 2);
    EXPECT_LE(device.max_qp, 1 << (word(0x10) & 0x1f));
    EXPECT_EQ(device.max_qp_wr, 1 << (word(0x10) >> 16 & 0xff));
    EXPECT_LE(device.max_cq, 1 << (word(0x18) & 0x1f));
    EXPECT_EQ((word(0x34) & 0xff), device.phys_port_cnt);
    EXPECT_EQ((word(0x34) >> 8 & 3) == 1, is_ethernet(pair_.b.context.get()));
    EXPECT_EQ(word(0x38) >> 24 & 0x1f, 30u);
    EXPECT_EQ((word(0x44) >> 3 & 1) != 0, (device.device_cap_flags & IBV_DEVICE_XRC) != 0);
}

// As many as there are queue pairs can be reserved, and none of them is a queue pair's.
TEST_F(FirmwareCommands, ReservedNumbersAreNoQueuePairs) {
    ibv_context* const context = pair_.b.context.get();
    std::set<std::uint32_t> numbers;
    for (int i = 0; i < 100; ++i) {
        std::uint32_t number = 0;
        ASSERT_EQ(mlx5dv_reserved_qpn_alloc(context, &number), 0);
        EXPECT_TRUE(numbers.insert(number).second);
    }
    for (int i = 0; i < 100; ++i) {
        const Endpoint other;
        EXPECT_FALSE(numbers.contains(other.qp->qp_num));
    }
    for (const std::uint32_t number : numbers)
        EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(context, number), 0);
    EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(context, *numbers.begin()), EINVAL);
}

TEST_F(FirmwareCommands, AddressHandleCanBeMapped) {
    ibv_ah_attr path{};
    path.port_num = 1;
    path.is_global = 1;
    path.dlid = port_attributes(pair_.b.context.get()).lid;
    path.grh.sgid_index = is_ethernet(pair_.b.context.get()) ? 3 : 0;
    require(ibv_query_gid(pair_.b.context.get(), 1, path.grh.sgid_index, &path.grh.dgid), "a GID");
    const Owned<ibv_ah> ah(check(ibv_create_ah(pair_.b.pd.get(), &path), "an address handle"));
    EXPECT_EQ(mlx5dv_map_ah_to_qp(ah.get(), pair_.a.qp->qp_num), 0);
}

// mlx5dv_wr_memcpy(): within one domain, without a peer.
class LocalCopies : public Mkeys {
protected:
    ibv_wc copy(const Memory& to, std::size_t to_offset, const Memory& from, std::size_t offset,
                std::size_t bytes) {
        return by_.copy(to.sge(to_offset, bytes), from.sge(offset, bytes));
    }
};

TEST_F(LocalCopies, CopyWhatTheyName) {
    const Memory from(pair_.b.pd.get(), 1 << 20, 0);
    from.fill(0, from.size(), 5);
    const ibv_wc done = copy(memory_, 100, from, 0, 70'000);
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(done.opcode, static_cast<ibv_wc_opcode>(MLX5DV_WC_MEMCPY));
    EXPECT_EQ(std::memcmp(memory_.data() + 100, from.data(), 70'000), 0);
    EXPECT_TRUE(memory_.untouched(0, 100, 0xee));
    EXPECT_TRUE(memory_.untouched(70'100, 1000, 0xee));
}

TEST_F(LocalCopies, NeedTheRightToWrite) {
    const Memory constant(pair_.b.pd.get(), 4096, 0);
    EXPECT_TRUE(
        has_status(copy(constant, 0, memory_, 0, 64), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
}

TEST_F(LocalCopies, StayInTheirDomain) {
    const Owned<ibv_pd> other(check(ibv_alloc_pd(pair_.b.context.get()), "a PD"));
    const Memory foreign(other.get(), 4096);
    EXPECT_TRUE(
        has_status(copy(foreign, 0, memory_, 0, 64), IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
}

}  // namespace
}  // namespace softhca::test
