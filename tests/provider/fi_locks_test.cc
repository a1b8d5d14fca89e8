// SPDX-License-Identifier: BSD-2-Clause
// The locks that messages take in each category, as FI_HEDDLE_STATS counts them: none where a
// thread has a queue and a register of its own, one for each doorbell where the register is the
// driver's, and one for each call where all threads share a queue or the program asked for it.
#include <cctype>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/provider/fi_statistics.h"
#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::uint64_t kMessages = 100;

struct Locking {
    const char* category;
    bool of_registers, of_domains;
    bool threads = false;  // the program asks for FI_THREAD_SAFE
};
void PrintTo(const Locking& c, std::ostream* out) { *out << c.category; }

class Locks : public testing::TestWithParam<Locking> {};

TEST_P(Locks, OfMessages) {
    const Locking& wanted = GetParam();
    setenv("FI_HEDDLE_ENDPOINTS", wanted.category, 1);
    setenv("FI_HEDDLE_POST", "direct", 1);
    const Statistics statistics;
    Info hints = usual_hints();
    if (wanted.threads) hints->domain_attr->threading = FI_THREAD_SAFE;
    {
        World world(std::move(hints));
        Pair pair(world);
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            std::uint64_t received = ~i;
            transfer(pair, &i, &received, sizeof i, sizeof received, i);
            if (HasFatalFailure()) return;
        }
    }
    const nlohmann::json counts = statistics.read();
    EXPECT_EQ(counts["inlined"], kMessages);
    const auto of_registers = counts["register_locks"].get<std::uint64_t>();
    const auto of_domains = counts["domain_locks"].get<std::uint64_t>();
    if (wanted.of_registers) {
        EXPECT_GE(of_registers, kMessages) << "each message has a doorbell";
        EXPECT_LE(of_registers, kMessages + 16) << "and little else does";
    } else {
        EXPECT_EQ(of_registers, 0u);
    }
    if (wanted.of_domains)
        EXPECT_GE(of_domains, 4 * kMessages) << "a send, a receive, and a read of each CQ";
    else
        EXPECT_EQ(of_domains, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Categories, Locks,
    testing::Values(Locking{"mpi-everywhere", true, false}, Locking{"2xdynamic", false, false},
                    Locking{"dynamic", false, false}, Locking{"dynamic", false, true, true},
                    Locking{"shared-dynamic", false, false}, Locking{"static", true, false},
                    Locking{"mpi+threads", true, true}),
    [](const auto& info) {
        std::string name = info.param.category;
        for (char& c : name)
            if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
        return name + (info.param.threads ? "_thread_safe" : "");
    });

}  // namespace
}  // namespace heddle::test
