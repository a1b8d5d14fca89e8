// SPDX-License-Identifier: BSD-2-Clause
// Objects that come and go: their numbers, and when their memory is returned.
#include "protocol/common/slot_pool.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::protocol {
namespace {

struct Slotted : PoolSlot<Slotted> {
    static inline int count = 0;
    Slotted() { ++count; }
    ~Slotted() { --count; }
};

class TrimmedPool : public testing::Test {
protected:
    // Takes so many at once, and gives them back. Returns their numbers.
    std::vector<std::uint64_t> use(std::size_t count) {
        std::vector<Slotted*> taken;
        std::vector<std::uint64_t> ids;
        for (std::size_t i = 0; i < count; ++i) {
            taken.push_back(&pool_.take());
            ids.push_back(SlotPool<Slotted>::id(*taken.back()));
        }
        for (Slotted* const each : taken)
            pool_.give_back(*each);
        return ids;
    }
    SlotPool<Slotted> pool_;
};

TEST_F(TrimmedPool, KeepsSoManyObjects) {
    use(10);
    pool_.trim(16);
    EXPECT_EQ(Slotted::count, 10);
    pool_.trim(4);
    EXPECT_EQ(Slotted::count, 4);
    EXPECT_EQ(pool_.size(), 4u);
    EXPECT_EQ(use(4).size(), 4u);
    EXPECT_EQ(Slotted::count, 4) << "those that stayed are used again";
    use(6);
    EXPECT_EQ(Slotted::count, 6);
    pool_.trim(0);
    EXPECT_EQ(Slotted::count, 0);
    use(1);
}

TEST_F(TrimmedPool, NoNumberComesAgain) {
    std::vector<std::uint64_t> seen;
    for (const std::size_t count : {8, 3, 8, 5, 20}) {
        const auto ids = use(count);
        seen.insert(seen.end(), ids.begin(), ids.end());
        pool_.trim(2);
        for (const std::uint64_t id : seen)
            EXPECT_EQ(pool_.find(id), nullptr) << "it has ended";
    }
    std::vector<Slotted*> taken;
    for (int i = 0; i < 20; ++i)
        taken.push_back(&pool_.take());
    for (const std::uint64_t id : seen)
        EXPECT_EQ(pool_.find(id), nullptr) << "a late reply would meet another object";
    for (Slotted* const each : taken) {
        EXPECT_EQ(pool_.find(SlotPool<Slotted>::id(*each)), each);
        pool_.give_back(*each);
    }
}

}  // namespace
}  // namespace heddle::protocol
