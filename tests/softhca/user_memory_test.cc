// SPDX-License-Identifier: BSD-2-Clause
// Commands whose request lies at an address that cannot be read. As the kernel's copy_from_user(),
// softhca answers EFAULT, and does nothing: it must not take the zeros of an unread request for
// one.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <sys/mman.h>

#include <cerrno>

#include "ioctl_request.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr std::uint64_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr std::uint16_t kRequestBytes = 256;  // more than any command's

class UserMemory : public testing::TestWithParam<std::uint64_t> {
protected:
    ~UserMemory() override { munmap(unreadable_, 4096); }
    std::uint64_t unreadable() const { return reinterpret_cast<std::uint64_t>(unreadable_); }

    Pair pair_;  // objects with the numbers that zeros might name

private:
    void* unreadable_ = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

TEST_P(UserMemory, AnUnreadableRequestIsRefused) {
    IoctlRequest request(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    request.add(UVERBS_ATTR_CORE_IN, unreadable(), kRequestBytes);
    request.add(UVERBS_ATTR_WRITE_CMD, GetParam(), 8);
    errno = 0;
    EXPECT_EQ(request.run(pair_.a.context->cmd_fd), -1);
    EXPECT_EQ(errno, EFAULT) << std::strerror(errno);
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {pair_.a.memory->sge(0, 16)};
    EXPECT_TRUE(pair_.a.run(work)) << "all objects are still there";
}

INSTANTIATE_TEST_SUITE_P(
    Each, UserMemory,
    testing::Values(
        IB_USER_VERBS_CMD_DEALLOC_PD, IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_REREG_MR,
        IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_CREATE_CQ, IB_USER_VERBS_CMD_RESIZE_CQ,
        IB_USER_VERBS_CMD_DESTROY_CQ, IB_USER_VERBS_CMD_CREATE_QP, IB_USER_VERBS_CMD_OPEN_QP,
        IB_USER_VERBS_CMD_MODIFY_QP, IB_USER_VERBS_CMD_QUERY_QP, IB_USER_VERBS_CMD_DESTROY_QP,
        IB_USER_VERBS_CMD_CREATE_SRQ, IB_USER_VERBS_CMD_CREATE_XSRQ, IB_USER_VERBS_CMD_MODIFY_SRQ,
        IB_USER_VERBS_CMD_QUERY_SRQ, IB_USER_VERBS_CMD_DESTROY_SRQ, IB_USER_VERBS_CMD_OPEN_XRCD,
        IB_USER_VERBS_CMD_CLOSE_XRCD, IB_USER_VERBS_CMD_CREATE_AH, IB_USER_VERBS_CMD_DESTROY_AH,
        IB_USER_VERBS_CMD_QUERY_PORT, kExtended | IB_USER_VERBS_EX_CMD_CREATE_CQ,
        kExtended | IB_USER_VERBS_EX_CMD_CREATE_QP, kExtended | IB_USER_VERBS_EX_CMD_MODIFY_QP));

}  // namespace
}  // namespace softhca::test
