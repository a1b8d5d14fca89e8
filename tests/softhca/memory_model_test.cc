// SPDX-License-Identifier: BSD-2-Clause
// Blocks of memory in random sequences of what programs do with them: map, store, discard, grow,
// shrink, move, unmap, fork, register and deregister, and a peer that writes and reads. A model
// says what each page holds, and after each step every page must hold that.
//
// In the model a page has an identity: it is the page that a registration was made with, wherever
// the program moves it. A registration keeps its pages when the program unmaps them.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "chosen_trait.h"
#include "plot.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

constexpr std::size_t kSlots = 12, kSlotPages = 256;  // 1 MiB each, more than a stack's guard
constexpr std::size_t kSlotBytes = kSlotPages * kPage;
constexpr std::size_t kMostPages = 24, kMostRegions = 10;

using Page = std::shared_ptr<std::uint8_t>;  // the value of all its bytes

Page new_page(std::uint8_t value = 0) { return std::make_shared<std::uint8_t>(value); }
std::vector<Page> new_pages(std::size_t count) {
    std::vector<Page> pages(count);
    std::generate(pages.begin(), pages.end(), [] { return new_page(); });
    return pages;
}

bool holds(const std::uint8_t* at, std::uint8_t value) {
    return at[0] == value && std::memcmp(at, at + 1, kPage - 1) == 0;
}

class World {
public:
    explicit World(std::uint32_t seed) : random_(seed), blocks_(kSlots) {
        whole_ = static_cast<std::uint8_t*>(
            mmap(nullptr, kSlots * kSlotBytes, PROT_NONE, kPrivate | MAP_NORESERVE, -1, 0));
        if (whole_ == MAP_FAILED) fail("mmap");
    }
    ~World() {
        regions_.clear();
        munmap(whole_, kSlots * kSlotBytes);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    void step() {
        const std::size_t slot = up_to(kSlots);
        std::vector<Page>& block = blocks_[slot];
        if (block.empty()) return map(slot);
        switch (up_to(12)) {
            case 0:
                return unmap(slot);
            case 1:
            case 2:
                return store(slot);
            case 3:
            case 4:
                return register_some(slot);
            case 5:
                return end_registration();
            case 6:
                return discard(slot);
            case 7:
                return by_device();
            case 8:
                return grow(slot, up_to(2) == 0);
            case 9:
                return shrink(slot);
            case 10:
                return move(slot);
            default:
                // On a device where fork does not copy, the parent would lose its queues.
                if (up_to(4) == 0 && copies_on_fork_) fork_a_child();
        }
    }

    void check() const {
        for (std::size_t slot = 0; slot < kSlots; ++slot)
            for (std::size_t i = 0; i < blocks_[slot].size(); ++i)
                ASSERT_TRUE(holds(at(slot, i), *blocks_[slot][i]))
                    << done_ << ": page " << i << " of block " << slot << " is "
                    << unsigned{at(slot, i)[0]} << " and not " << unsigned{*blocks_[slot][i]};
    }

private:
    struct Span {
        std::size_t first, count;
    };
    struct Region {
        std::uint64_t address;
        std::vector<Page> pages;
        Owned<ibv_mr> mr;
    };

    std::size_t up_to(std::size_t end) { return random_() % end; }
    std::uint8_t value() { return static_cast<std::uint8_t>(1 + up_to(255)); }
    std::uint8_t* at(std::size_t slot, std::size_t page = 0) const {
        return whole_ + slot * kSlotBytes + page * kPage;
    }
    Span span_of(const std::vector<Page>& block) {
        if (up_to(3) == 0) return {0, block.size()};
        const std::size_t first = up_to(block.size());
        return {first, 1 + up_to(block.size() - first)};
    }
    void did(const char* what, std::size_t slot) {
        done_ += " " + std::string(what) + " " + std::to_string(slot);
        if (done_.size() > 400) done_.erase(0, done_.find(' ', 40));
    }
    // Nobody else gets the address space of a slot.
    void reserve(std::uint8_t* from, std::size_t bytes) {
        ASSERT_EQ(
            mmap(from, bytes, PROT_NONE, kPrivate | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0),
            from);
    }

    void map(std::size_t slot) {
        did("map", slot);
        blocks_[slot] = new_pages(1 + up_to(kMostPages));
        ASSERT_EQ(
            mmap(at(slot), blocks_[slot].size() * kPage, kReadWrite, kPrivate | MAP_FIXED, -1, 0),
            at(slot));
    }
    void unmap(std::size_t slot) {
        did("unmap", slot);
        const std::size_t bytes = blocks_[slot].size() * kPage;
        ASSERT_EQ(munmap(at(slot), bytes), 0);
        reserve(at(slot), bytes);
        blocks_[slot].clear();
    }
    void store(std::size_t slot) {
        did("store", slot);
        const Span span = span_of(blocks_[slot]);
        for (std::size_t i = span.first; i < span.first + span.count; ++i)
            store_page(slot, i);
    }
    void store_page(std::size_t slot, std::size_t page) {
        *blocks_[slot][page] = value();
        memset(at(slot, page), *blocks_[slot][page], kPage);
    }
    void register_some(std::size_t slot) {
        if (regions_.size() == kMostRegions) return;
        did("register", slot);
        const auto& block = blocks_[slot];
        const Span span = span_of(block);
        const auto first = block.begin() + static_cast<std::ptrdiff_t>(span.first);
        Region region{reinterpret_cast<std::uint64_t>(at(slot, span.first)),
                      {first, first + static_cast<std::ptrdiff_t>(span.count)},
                      Owned<ibv_mr>(ibv_reg_mr(pair_.a.pd.get(), at(slot, span.first),
                                               span.count * kPage, kAllAccess))};
        ASSERT_TRUE(region.mr);
        regions_.push_back(std::move(region));
    }
    void end_registration() {
        if (regions_.empty()) return;
        did("deregister", regions_.size());
        std::swap(regions_[up_to(regions_.size())], regions_.back());
        regions_.pop_back();
    }
    void discard(std::size_t slot) {
        const bool lazily = up_to(3) == 0;
        did(lazily ? "free" : "discard", slot);
        const Span span = span_of(blocks_[slot]);
        ASSERT_EQ(
            madvise(at(slot, span.first), span.count * kPage, lazily ? MADV_FREE : MADV_DONTNEED),
            0);
        errno = 0;
        EXPECT_EQ(madvise(at(slot, span.first), span.count * kPage, MADV_REMOVE), -1);
        EXPECT_EQ(errno, EINVAL);
        for (std::size_t i = span.first; i < span.first + span.count; ++i) {
            Page& page = blocks_[slot][i];
            if (replaces_discarded_) page = new_page();
            *page = 0;
            // Until the next store the kernel may still show the old content.
            if (lazily) store_page(slot, i);
        }
    }
    void by_device() {
        if (regions_.empty() || !shares_) return;
        const Region& region = regions_[up_to(regions_.size())];
        const std::size_t i = up_to(region.pages.size());
        const bool writes = up_to(2) == 0;
        did(writes ? "write" : "read", i);
        Endpoint& peer = pair_.b;
        Work work;
        work.opcode = writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        work.sges = {peer.memory->sge(0, kPage)};
        work.remote = region.address + i * kPage;
        work.rkey = region.mr->rkey;
        if (writes) *region.pages[i] = value();
        memset(peer.memory->data(), writes ? *region.pages[i] : 0xee, kPage);
        ASSERT_TRUE(peer.run(work));
        ASSERT_TRUE(holds(peer.memory->data(), *region.pages[i]))
            << done_ << ": the device reads " << unsigned{peer.memory->data()[0]} << " and not "
            << unsigned{*region.pages[i]};
    }
    void grow(std::size_t slot, bool room) {
        did(room ? "grow" : "grow-elsewhere", slot);
        auto& block = blocks_[slot];
        const std::size_t before = block.size(), after = before + 1 + up_to(8);
        if (room) munmap(at(slot, before), (after - before) * kPage);
        auto* const there = static_cast<std::uint8_t*>(
            mremap(at(slot), before * kPage, after * kPage, MREMAP_MAYMOVE));
        ASSERT_NE(there, MAP_FAILED) << done_ << ": " << std::strerror(errno);
        const auto more = new_pages(after - before);
        block.insert(block.end(), more.begin(), more.end());
        if (there == at(slot)) {
            ASSERT_TRUE(room);
        } else {
            reserve(at(slot), (room ? after : before) * kPage);
            for (std::size_t i = 0; i < after; ++i)
                ASSERT_TRUE(holds(there + i * kPage, *block[i])) << done_ << ", page " << i;
            // And back, to where the slot is.
            ASSERT_EQ(mremap(there, after * kPage, after * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                             at(slot)),
                      at(slot))
                << done_ << ": " << std::strerror(errno);
        }
        if (after > kMostPages) cut(slot, kMostPages);
    }
    void shrink(std::size_t slot) {
        if (blocks_[slot].size() < 2) return;
        did("shrink", slot);
        cut(slot, 1 + up_to(blocks_[slot].size() - 1));
    }
    void cut(std::size_t slot, std::size_t pages) {
        auto& block = blocks_[slot];
        ASSERT_EQ(mremap(at(slot), block.size() * kPage, pages * kPage, 0), at(slot));
        reserve(at(slot, pages), (block.size() - pages) * kPage);
        block.resize(pages);
    }
    // To another slot, with another size or leaving memory of zeros behind.
    void move(std::size_t slot) {
        const std::size_t to = up_to(kSlots);
        auto& block = blocks_[slot];
        if (to == slot) return;
        const bool leaves = up_to(3) == 0;
        const std::size_t before = block.size(),
                          after = leaves || up_to(2) == 0 ? before : 1 + up_to(kMostPages);
        did(leaves ? "move-and-leave" : "move", slot);
        did("to", to);
        ASSERT_EQ(mremap(at(slot), before * kPage, after * kPage,
                         MREMAP_MAYMOVE | MREMAP_FIXED | (leaves ? MREMAP_DONTUNMAP : 0), at(to)),
                  at(to))
            << done_ << ": " << std::strerror(errno);
        if (blocks_[to].size() > after) {  // what stays of the block that was there
            munmap(at(to, after), (blocks_[to].size() - after) * kPage);
            reserve(at(to, after), (blocks_[to].size() - after) * kPage);
        }
        blocks_[to] = std::move(block);
        blocks_[to].resize(std::min(before, after));
        const auto more = new_pages(after - blocks_[to].size());
        blocks_[to].insert(blocks_[to].end(), more.begin(), more.end());
        block.clear();
        if (leaves)
            block = new_pages(before);
        else
            reserve(at(slot), before * kPage);
    }
    void fork_a_child() {
        did("fork", 0);
        std::fflush(nullptr);
        const pid_t child = fork();
        if (child == 0) {
            check();
            for (std::size_t slot = 0; slot < kSlots; ++slot) {
                if (blocks_[slot].empty()) continue;
                store(slot);
                grow(slot, false);
            }
            check();
            std::fflush(nullptr);
            _exit(testing::Test::HasFailure() ? 1 : 0);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << done_;
    }

    // Otherwise the device finds memory by its address, and loses pages that move.
    const bool shares_ = !memory_stays_private();
    const bool copies_on_fork_ = !chosen(DeviceTrait::kNoCopyOnFork);
    const bool replaces_discarded_ = chosen(DeviceTrait::kPinned) && shares_;
    std::mt19937 random_;
    Pair pair_;
    std::uint8_t* whole_;
    std::vector<std::vector<Page>> blocks_;  // by slot; empty: none
    std::vector<Region> regions_;
    std::string done_;  // the last steps
};

class MemoryModelOfSeed : public testing::TestWithParam<std::uint32_t> {};

void run(std::uint32_t seed) {
    World world(seed);
    for (int step = 0; step < 600 && !testing::Test::HasFailure(); ++step) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", step " << step);
        world.step();
        world.check();
    }
}

TEST_P(MemoryModelOfSeed, HoldsAfterEachStep) { run(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Each, MemoryModelOfSeed, testing::Range(1U, 7U));

TEST(MemoryModel, LongRunOfManySeeds) {
    for (std::uint32_t seed = 1000; seed < 1300 && !HasFailure(); ++seed)
        run(seed);
}

}  // namespace
}  // namespace softhca::test
