// SPDX-License-Identifier: BSD-2-Clause
// A peer that cannot be connected to: each operation to it ends with an error entry, the injected
// ones, too, and the user reads which peer it is.
#include <gmock/gmock.h>

#include <cstdlib>

#include "protocol/common/endpoint_address.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using protocol::EndpointAddress;
using testing::HasSubstr;

class Unreachable : public testing::Test {
protected:
    Unreachable() {
        setenv("FI_HEDDLE_CONNECT_TIMEOUT", "500", 1);
        world_ = std::make_unique<World>();
        station_ = std::make_unique<Station>(*world_);
    }
    // A peer with the name of our own endpoint, after `change` has changed it.
    template <class Change>
    fi_addr_t peer(Change&& change) {
        EndpointAddress name;
        std::memcpy(&name, station_->name, sizeof name);
        change(name.process);
        fi_addr_t address = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(station_->av.get(), &name, 1, &address, 0, nullptr), 1);
        return address;
    }
    // Nobody listens at its UD QP.
    fi_addr_t silent_peer() {
        return peer([](protocol::ProcessName& process) {
            process.ud_qpn = 0xff'fff0;
            ++process.nonce;
        });
    }
    // The error that the next operation ends with.
    fi_cq_err_entry next_error() {
        fi_cq_err_entry error{};
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (std::chrono::steady_clock::now() < end) {
            fi_cq_tagged_entry entry;
            const ssize_t got = fi_cq_read(station_->transmit.get(), &entry, 1);
            if (got == -FI_EAGAIN) continue;
            EXPECT_EQ(got, -FI_EAVAIL);
            EXPECT_EQ(fi_cq_readerr(station_->transmit.get(), &error, 0), 1);
            return error;
        }
        ADD_FAILURE() << "no entry";
        return error;
    }
    fid_ep* ep() const { return station_->ep.get(); }

    std::unique_ptr<World> world_;
    Opened<fid_cntr> failed_;
    std::unique_ptr<Station> station_;
    const std::uint64_t value_ = 7;
};

TEST_F(Unreachable, InjectedOperationsEndWithAnEntryEach) {
    failed_ = open_counter(world_->domain.get());
    ASSERT_EQ(fi_ep_bind(ep(), failed_.handle(), FI_SEND | FI_WRITE), 0);
    station_->enable();
    const fi_addr_t to = silent_peer();
    ASSERT_EQ(fi_inject(ep(), &value_, sizeof value_, to), 0);
    ASSERT_EQ(fi_tinject(ep(), &value_, sizeof value_, to, 1), 0);
    ASSERT_EQ(fi_tinjectdata(ep(), &value_, sizeof value_, 5, to, 1), 0);
    ASSERT_EQ(fi_inject_write(ep(), &value_, sizeof value_, to, 0, 0), 0);
    ASSERT_EQ(fi_inject_atomic(ep(), &value_, 1, to, 0, 0, FI_UINT64, FI_SUM), 0);
    const std::uint64_t expected[] = {FI_SEND | FI_MSG, FI_SEND | FI_TAGGED, FI_SEND | FI_TAGGED,
                                      FI_RMA | FI_WRITE, FI_ATOMIC | FI_WRITE};
    for (const std::uint64_t flags : expected) {
        const fi_cq_err_entry error = next_error();
        EXPECT_EQ(error.err, FI_ETIMEDOUT) << fi_strerror(error.err);
        EXPECT_EQ(error.flags, flags);
        EXPECT_EQ(error.op_context, nullptr);
    }
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_read(station_->transmit.get(), &entry, 1), -FI_EAGAIN) << "one each";
    EXPECT_EQ(fi_cntr_readerr(failed_.get()), std::size(expected));
    EXPECT_EQ(fi_cntr_read(failed_.get()), 0u);
    // From now on the call itself fails.
    EXPECT_EQ(fi_tinject(ep(), &value_, sizeof value_, to, 1), -FI_ETIMEDOUT);
}

TEST_F(Unreachable, IsNamedOnceOnStderr) {
    station_->enable();
    const fi_addr_t to = silent_peer();
    testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i) {
        fi_tsend(ep(), &value_, sizeof value_, nullptr, to, 1, nullptr);
        EXPECT_EQ(next_error().err, FI_ETIMEDOUT);
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("LID 1, GID fe80::250:4f"));
    EXPECT_THAT(said, HasSubstr("UD QP 16777200 did not answer in "));
    EXPECT_THAT(said, HasSubstr("asked by mlx5_0"));
    EXPECT_EQ(said.find("did not answer"), said.rfind("did not answer")) << said;
}

// What is sent to the LID of the own port comes back to it: nobody need wait for that.
TEST_F(Unreachable, OnAnotherFabricIsNoPeerHere) {
    station_->enable();
    const fi_addr_t to = peer([](protocol::ProcessName& process) {
        process.gid[15] ^= 1;
        process.nonce ^= 0x1'0000'0001;
    });
    testing::internal::CaptureStderr();
    ASSERT_EQ(fi_tinject(ep(), &value_, sizeof value_, to, 1), 0);
    EXPECT_EQ(next_error().err, FI_EHOSTUNREACH);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it is on another fabric"));
}

}  // namespace
}  // namespace heddle::test
