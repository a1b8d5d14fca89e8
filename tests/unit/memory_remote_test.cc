// SPDX-License-Identifier: BSD-2-Clause
// Copies between processes: vectors of any shape, unmapped memory, refusal.

#include "softhca/device/memory/remote.h"

#include <cerrno>
#include <random>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/memory_support.h"

namespace softhca::device::memory::test {
namespace {

std::vector<iovec> cut(std::mt19937* random, std::uint8_t* base, std::size_t bytes,
                       std::size_t most) {
    std::vector<iovec> vector;
    for (std::size_t at = 0; at < bytes;) {
        const std::size_t length = std::min<std::size_t>((*random)() % (most + 1), bytes - at);
        vector.push_back({base + at, length});  // empty ones, too
        at += length;
    }
    return vector;
}

class MemoryRemote : public ::testing::TestWithParam<bool> {};

TEST_P(MemoryRemote, CopiesVectorsOfAnyShape) {
    constexpr std::size_t kPages = 50;
    Memory remote(kPages, PROT_READ | PROT_WRITE), local(kPages), back(kPages);
    remote.fill(1);
    Signal go, done;
    register_fork_handlers();
    const pid_t child = fork();
    if (child == 0) {
        go.wait();
        done.send(remote.filled(2) ? 'y' : 'n');
        go.wait();
        _exit(0);
    }
    const pid_t pid = GetParam() ? child : getpid();
    std::mt19937 random(3);
    local.fill(2);
    for (const std::size_t most : {3u, 100u, 5000u, 100000u}) {
        const auto there = cut(&random, remote.data(), remote.bytes(), most);
        const auto here = cut(&random, back.data(), back.bytes(), most * 2);
        memset(back.data(), 0, back.bytes());
        ASSERT_EQ(copy_from(pid, here.data(), static_cast<unsigned>(here.size()), there.data(),
                            static_cast<unsigned>(there.size()), remote.bytes()),
                  0);
        EXPECT_TRUE(back.filled(1)) << most;
    }
    // More ranges than one system call takes, and only a part of their bytes.
    const auto there = cut(&random, remote.data(), remote.bytes(), 40);
    const auto here = cut(&random, local.data(), local.bytes(), 30);
    ASSERT_GT(there.size(), 1024u);
    const std::size_t part = remote.bytes() / 2 + 123;
    ASSERT_EQ(copy_to(pid, here.data(), static_cast<unsigned>(here.size()), there.data(),
                      static_cast<unsigned>(there.size()), part),
              0);
    const iovec all_back{back.data(), back.bytes()}, all_there{remote.data(), remote.bytes()};
    ASSERT_EQ(copy_from(pid, &all_back, 1, &all_there, 1, back.bytes()), 0);
    for (std::size_t i = 0; i < back.bytes(); ++i)
        ASSERT_EQ(back.data()[i], Memory::value(i, i < part ? 2 : 1)) << i;
    const iovec all_here{local.data(), local.bytes()};
    ASSERT_EQ(copy_to(pid, &all_here, 1, &all_there, 1, local.bytes()), 0);
    if (GetParam()) {
        go.send();
        EXPECT_EQ(done.wait(), 'y');
    } else {
        EXPECT_TRUE(remote.filled(2));
        go.send();
        done.wait();
    }
    EXPECT_EQ(copy_to(pid, &all_here, 1, &all_there, 1, local.bytes() + 1), EINVAL);
    EXPECT_EQ(copy_to(pid, nullptr, 0, nullptr, 0, 0), 0);
    go.send();
    waitpid(child, nullptr, 0);
    if (GetParam()) {
        EXPECT_EQ(copy_to(child, &all_here, 1, &all_there, 1, 8), ESRCH);
    }
    EXPECT_FALSE(copy_refused());
}

TEST_P(MemoryRemote, FaultsAreErrors) {
    Memory memory(4), other(4);
    memory.fill(1);
    Signal go;
    ASSERT_EQ(munmap(other.page(2), page_bytes()), 0);
    register_fork_handlers();
    const pid_t child = fork();
    if (child == 0) {
        go.wait();
        _exit(0);
    }
    const pid_t pid = GetParam() ? child : getpid();
    const iovec whole{memory.data(), memory.bytes()}, broken{other.data(), other.bytes()};
    EXPECT_EQ(copy_to(pid, &whole, 1, &broken, 1, whole.iov_len), EFAULT);
    EXPECT_EQ(copy_from(pid, &whole, 1, &broken, 1, whole.iov_len), EFAULT);
    // Up to the hole all is well.
    EXPECT_EQ(copy_to(pid, &whole, 1, &broken, 1, 2 * page_bytes()), 0);
    EXPECT_EQ(copy_to(pid, &whole, 1, &broken, 1, 2 * page_bytes() + 1), EFAULT);
    // The near side, too, and nonsense.
    EXPECT_EQ(copy_to(pid, &broken, 1, &whole, 1, whole.iov_len), EFAULT);
    EXPECT_EQ(copy_from(pid, &broken, 1, &whole, 1, whole.iov_len), EFAULT);
    const iovec nowhere{nullptr, 8}, beyond{reinterpret_cast<void*>(~0ULL - 100), 64};
    const iovec kernel{reinterpret_cast<void*>(0xffff'8000'0000'0000ULL), 64};
    for (const iovec& bad : {nowhere, beyond, kernel}) {
        EXPECT_EQ(copy_to(pid, &whole, 1, &bad, 1, 8), EFAULT);
        EXPECT_EQ(copy_from(pid, &whole, 1, &bad, 1, 8), EFAULT);
    }
    // Without permission to write.
    ASSERT_EQ(mprotect(memory.data(), memory.bytes(), PROT_READ), 0);
    const pid_t self = getpid();
    const iovec good{other.data(), 8};
    EXPECT_EQ(copy_to(self, &good, 1, &whole, 1, 8), EFAULT);
    EXPECT_EQ(copy_from(self, &whole, 1, &good, 1, 8), EFAULT);
    EXPECT_FALSE(copy_refused());
    go.send();
    waitpid(child, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Sides, MemoryRemote, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Other" : "Own"; });

// Runs body(pid of a child whose memory may not be touched) as an ordinary user, with standard
// error in *text.
void with_protected_peer(const std::function<void(pid_t)>& body, std::string* text) {
    Signal ready, go;
    register_fork_handlers();
    const pid_t peer = fork();
    if (peer == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(1);
        prctl(PR_SET_DUMPABLE, 0);
        ready.send();
        go.wait();
        _exit(0);
    }
    ready.wait();
    testing::internal::CaptureStderr();
    EXPECT_TRUE(in_child([&] {
        if (geteuid() == 0) {
            ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
        }
        body(peer);
    }));
    *text = testing::internal::GetCapturedStderr();
    go.send();
    waitpid(peer, nullptr, 0);
}

TEST(MemoryRemoteRefusal, IsExplainedOnce) {
    Memory memory(1);
    std::string text;
    with_protected_peer(
        [&](pid_t peer) {
            const iovec piece{memory.data(), 64};
            EXPECT_FALSE(copy_refused());
            EXPECT_EQ(copy_to(peer, &piece, 1, &piece, 1, 64), EPERM);
            EXPECT_TRUE(copy_refused());
            EXPECT_EQ(copy_from(peer, &piece, 1, &piece, 1, 64), EPERM);
            // The own process is not refused.
            EXPECT_EQ(copy_to(getpid(), &piece, 1, &piece, 1, 64), 0);
        },
        &text);
    EXPECT_THAT(text, ::testing::HasSubstr("refuses copies"));
    EXPECT_THAT(text, ::testing::HasSubstr("SOFTHCA_MEMORY=auto"));
    EXPECT_THAT(text, ::testing::HasSubstr("--cap-add SYS_PTRACE"));
    const std::size_t first = text.find("refuses copies");
    EXPECT_EQ(text.find("refuses copies", first + 1), std::string::npos) << text;
}

bool filter_out_process_vm(int error) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(MemoryRemoteRefusal, AFilterOfTheCallsIsGoneRound) {
    Memory theirs(3), here(3);
    theirs.fill(1);
    Signal go;
    register_fork_handlers();
    const pid_t other = fork();
    if (other == 0) {
        go.wait();
        _exit(theirs.filled(2) ? 0 : 1);
    }
    for (const int error : {EPERM, ENOSYS}) {
        theirs.fill(1);  // the other process's are its own since the fork
        EXPECT_TRUE(in_child([&] {
            ASSERT_TRUE(filter_out_process_vm(error));
            const std::size_t part = page_bytes() + 7;
            const iovec local[] = {{here.data(), 10}, {here.data() + 10, here.bytes() - 10}};
            const iovec remote[] = {{theirs.data(), part},
                                    {theirs.data() + part, theirs.bytes() - part}};
            const iovec bad{nullptr, 8};
            for (const pid_t pid : {getpid(), other}) {
                memset(here.data(), 0, here.bytes());
                EXPECT_EQ(copy_from(pid, local, 2, remote, 2, here.bytes()), 0);
                EXPECT_TRUE(here.filled(pid == other && error == ENOSYS ? 2 : 1));
                EXPECT_EQ(copy_to(pid, local, 1, &bad, 1, 8), EFAULT);
                EXPECT_EQ(copy_from(pid, local, 1, &bad, 1, 8), EFAULT);
                EXPECT_EQ(copy_to(pid, &bad, 1, local, 1, 8), EFAULT);
            }
            here.fill(2);
            EXPECT_EQ(copy_to(other, local, 2, remote, 2, here.bytes()), 0);
            EXPECT_FALSE(copy_refused());
        }));
    }
    go.send();
    int status = 0;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace softhca::device::memory::test
