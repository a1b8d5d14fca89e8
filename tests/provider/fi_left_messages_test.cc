// SPDX-License-Identifier: BSD-2-Clause
// A receiver with one receive at a time, and a sender that does not wait for it, as the root of
// MPI_Bcast: the messages wait in the completion queue for their receives, and none is kept and
// found again.
#include <cstdlib>
#include <string>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::uint64_t kBefore = 20, kRounds = 10;

class LeftMessages : public testing::TestWithParam<const char*> {};

TEST_P(LeftMessages, WaitForTheirReceives) {
    const std::string way = GetParam();
    setenv("FI_HEDDLE_POST", "direct", 1);
    if (way == "rc") setenv("FI_HEDDLE_TRANSPORT", "rc", 1);
    if (way == "shm") setenv("FI_HEDDLE_SHM", "on", 1);
    const Statistics statistics;
    {
        World world;
        Station sender(world);
        World other;
        Station receiver(other);
        sender.enable();
        receiver.enable();
        const fi_addr_t to = sender.add(receiver);
        receiver.add(sender);
        fid_cq* const read = receiver.receive.get();
        std::uint64_t number = 0;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            for (std::uint64_t i = 0; i < kBefore; ++i) {
                const std::uint64_t value = round * kBefore + i;
                const auto send = [&] {
                    return fi_tinject(sender.ep.get(), &value, sizeof value, to, 1);
                };
                ASSERT_EQ(insist(sender.transmit.get(), send), 0);
            }
            for (std::uint64_t i = 0; i < kBefore; ++i, ++number) {
                std::uint64_t got = ~number;
                ASSERT_EQ(fi_trecv(receiver.ep.get(), &got, sizeof got, nullptr, FI_ADDR_UNSPEC, 1,
                                   0, nullptr),
                          0);
                fi_cq_tagged_entry entries[8];
                ssize_t entry_count = -FI_EAGAIN;
                const auto end = std::chrono::steady_clock::now() + kPatience;
                while (entry_count == -FI_EAGAIN && std::chrono::steady_clock::now() < end) {
                    entry_count = fi_cq_read(read, entries, std::size(entries));
                    if (entry_count == -FI_EAGAIN) fi_cq_read(sender.transmit.get(), nullptr, 0);
                }
                ASSERT_EQ(entry_count, 1);
                ASSERT_EQ(got, number);
            }
        }
    }
    const nlohmann::json counts = statistics.read();
    // Some come with other progress, once in 32 calls.
    EXPECT_LE(counts["unexpected"], 2 * kRounds);
}
INSTANTIATE_TEST_SUITE_P(By, LeftMessages, testing::Values("xrc", "rc", "shm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test
