// SPDX-License-Identifier: BSD-2-Clause
// Streams of a DCI: which requests an error ends, when it ends the queue pair, and the reset
// (mlx5dv_dci_stream_id_reset(3)).
#include <cerrno>

#include "dc_fixture.h"

namespace softhca::test {
namespace {

constexpr std::size_t kMessage = 64;

// Eight streams; the fourth that fails ends the QP.
class DcStreams : public testing::Test {
protected:
    DcStreams() : initiator_({.log_num_concurent = 3, .log_num_errored = 2}) {
        for (unsigned i = 0; i < 64; ++i)
            target_.post_receive(i, 0, kMessage);
    }
    ibv_wc good(std::uint16_t stream) {
        initiator_.send_on(stream, target_.name(), 0, kMessage);
        return initiator_.wait();
    }
    // Its data lie beyond the end of the region.
    ibv_wc bad(std::uint16_t stream) {
        initiator_.send_on(stream, target_.name(), initiator_.memory.size(), kMessage);
        return initiator_.wait();
    }
    void expect_failed(const ibv_wc& completion) {
        EXPECT_TRUE(has_status(completion, IBV_WC_LOC_PROT_ERR, kVendorLocalProtection));
    }
    void expect_flushed(const ibv_wc& completion) {
        EXPECT_TRUE(has_status(completion, IBV_WC_WR_FLUSH_ERR, kVendorFlush));
    }

    Target target_;
    Initiator initiator_;
};

TEST_F(DcStreams, ErrorEndsItsStreamAlone) {
    expect_failed(bad(2));
    const ibv_wc flushed = good(2);
    expect_flushed(flushed);
    EXPECT_EQ(flushed.wr_id, 2u);
    EXPECT_TRUE(succeeded(good(1)));
    EXPECT_TRUE(succeeded(good(60'000)));
    EXPECT_EQ(state_of(initiator_.qp.get()), IBV_QPS_RTS);
}

// As are errors of the target.
TEST_F(DcStreams, SoDoesARefusalByTheTarget) {
    const Dct nobody{target_.name().number, 0x99};
    initiator_.send_on(5, nobody, 0, kMessage);
    EXPECT_TRUE(has_status(initiator_.wait(), IBV_WC_REM_ACCESS_ERR, kVendorRemoteAccess));
    EXPECT_TRUE(succeeded(good(4)));
    expect_flushed(good(5));
}

TEST_F(DcStreams, ResetStreamGoesOn) {
    expect_failed(bad(7));
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(initiator_.qp.get(), 7), 0);
    EXPECT_TRUE(succeeded(good(7)));
    expect_failed(bad(7));
    expect_flushed(good(7));
}

TEST_F(DcStreams, OnlyAFailedStreamCanBeReset) {
    expect_failed(bad(7));
    EXPECT_NE(mlx5dv_dci_stream_id_reset(initiator_.qp.get(), 8), 0);
    Initiator without;
    EXPECT_NE(mlx5dv_dci_stream_id_reset(without.qp.get(), 0), 0);
}

TEST_F(DcStreams, AsManyAsAgreedEndTheQp) {
    for (std::uint16_t stream = 0; stream < 3; ++stream)
        expect_failed(bad(stream));
    EXPECT_TRUE(succeeded(good(9)));
    expect_flushed(bad(1));  // the same one does not count twice
    EXPECT_EQ(state_of(initiator_.qp.get()), IBV_QPS_RTS);
    expect_failed(bad(3));
    expect_flushed(good(9));
    EXPECT_EQ(state_of(initiator_.qp.get()), IBV_QPS_ERR);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(initiator_.qp.get(), &attributes, IBV_QP_STATE), 0);
    initiator_.to_ready();
    for (std::uint16_t stream = 0; stream < 4; ++stream)
        EXPECT_TRUE(succeeded(good(stream)));
}

TEST_F(DcStreams, DciWithoutStreamsEndsAtOnce) {
    Initiator without;
    without.send(target_.name(), without.memory.size(), kMessage);
    expect_failed(without.wait());
    EXPECT_EQ(state_of(without.qp.get()), IBV_QPS_ERR);
}

TEST_F(DcStreams, DeviceSaysHowManyItHas) {
    mlx5dv_context attributes{};
    attributes.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    ASSERT_EQ(mlx5dv_query_device(initiator_.context.get(), &attributes), 0);
    const mlx5dv_dci_streams_caps most = attributes.dci_streams_caps;
    EXPECT_GE(most.max_log_num_concurent, 3);
    EXPECT_THROW(initiator_.make(MLX5DV_DCTYPE_DCI, 0,
                                 {static_cast<std::uint8_t>(most.max_log_num_concurent + 1), 1}),
                 VerbsFailure);
    const Owned<ibv_qp> largest = initiator_.make(
        MLX5DV_DCTYPE_DCI, 0, {most.max_log_num_concurent, most.max_log_num_errored});
    EXPECT_NE(largest, nullptr);
}

}  // namespace
}  // namespace softhca::test
