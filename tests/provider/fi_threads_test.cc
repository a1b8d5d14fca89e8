// SPDX-License-Identifier: BSD-2-Clause
// Threads with a domain each, as MPI libraries make one for each VCI: nothing is locked by the
// program, and everything that domains of one process share beneath - contexts, registers, the
// connector - must hold. Each thread sends to the next one, in a ring, by all ways; contents are
// checked. ThreadSanitizer runs this.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

constexpr std::size_t kThreadSizes[] = {0, 8, 100, 129, 4000, 8192, 8193, 30'000, 70'000};
constexpr std::size_t kMost = 70'000;
constexpr unsigned kWindow = 8;

std::byte content(unsigned sender, unsigned message, std::size_t at) {
    return static_cast<std::byte>(sender * 31 + message * 7 + at);
}

struct Case {
    const char* category;
    unsigned threads;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.category << " with " << c.threads; }

class Threads : public testing::TestWithParam<Case> {
protected:
    static constexpr unsigned kMessages = 400;
    static std::size_t size_of(unsigned message) {
        return kThreadSizes[message % std::size(kThreadSizes)];
    }

    struct Buffers {
        std::array<std::vector<std::byte>, kWindow> each;
        Buffers() {
            for (auto& buffer : each)
                buffer.resize(kMost);
        }
        std::vector<std::byte>& of(unsigned message) { return each[message % kWindow]; }
    };
    // What one thread does.
    struct Member {
        explicit Member(World& world) : station(world) { station.enable(); }
        Station station;
        fi_addr_t next = FI_ADDR_NOTAVAIL;
        Buffers out, in;
        // Operations end in any order: a buffer is free when its own one has.
        std::array<bool, kWindow> sending{}, receiving{};
        unsigned sent = 0, sends_done = 0, posted = 0, received = 0, wrong = 0, errors = 0;
        unsigned number = 0, previous = 0;

        bool finished() const { return sends_done == kMessages && received == kMessages; }
        void start() {
            while (posted < kMessages && !receiving[posted % kWindow] &&
                   fi_trecv(station.ep.get(), in.of(posted).data(), kMost, nullptr, FI_ADDR_UNSPEC,
                            posted, 0, &receiving[posted % kWindow]) == 0)
                receiving[posted++ % kWindow] = true;
            while (sent < kMessages && !sending[sent % kWindow]) {
                auto& buffer = out.of(sent);
                const std::size_t bytes = size_of(sent);
                for (std::size_t at = 0; at < bytes; ++at)
                    buffer[at] = content(number, sent, at);
                if (fi_tsend(station.ep.get(), buffer.data(), bytes, nullptr, next, sent,
                             &sending[sent % kWindow]) != 0)
                    break;
                sending[sent++ % kWindow] = true;
            }
        }
        bool look() {
            fi_cq_tagged_entry entry;
            const ssize_t in_queue = fi_cq_read(station.receive.get(), &entry, 1);
            if (in_queue == 1) {
                const auto message = static_cast<unsigned>(entry.tag);
                const auto& buffer = in.of(message);
                bool right = entry.len == size_of(message);
                for (std::size_t at = 0; right && at < entry.len; ++at)
                    right = buffer[at] == content(previous, message, at);
                wrong += !right;
                ++received;
                *static_cast<bool*>(entry.op_context) = false;
            }
            const ssize_t out_queue = fi_cq_read(station.transmit.get(), &entry, 1);
            if (out_queue == 1) {
                ++sends_done;
                *static_cast<bool*>(entry.op_context) = false;
            }
            for (const ssize_t result : {in_queue, out_queue})
                errors += result < 0 && result != -FI_EAGAIN;
            return in_queue == 1 || out_queue == 1;
        }
    };
};

TEST_P(Threads, InARing) {
    const auto [category, threads] = GetParam();
    setenv("FI_HEDDLE_ENDPOINTS", category, 1);
    std::vector<std::unique_ptr<World>> worlds(threads);
    std::vector<std::unique_ptr<Member>> members(threads);
    std::atomic<unsigned> finished{0};
    std::barrier all(threads);
    const auto run = [&](unsigned i) {
        worlds[i] = std::make_unique<World>();
        members[i] = std::make_unique<Member>(*worlds[i]);
        Member& self = *members[i];
        self.number = i;
        self.previous = (i + threads - 1) % threads;
        all.arrive_and_wait();
        self.next = self.station.add(members[(i + 1) % threads]->station);
        all.arrive_and_wait();
        bool counted = false;
        const auto end = std::chrono::steady_clock::now() + 3 * kPatience;
        // A thread that has finished still makes progress for the others.
        while (finished.load() < threads && std::chrono::steady_clock::now() < end &&
               self.errors == 0) {
            self.start();
            if (!self.look()) sched_yield();
            if (self.finished() && !counted) {
                counted = true;
                ++finished;
            }
        }
        all.arrive_and_wait();
    };
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i)
        running.emplace_back(run, i);
    for (auto& thread : running)
        thread.join();
    for (const auto& member : members) {
        EXPECT_EQ(member->sends_done, kMessages) << "of thread " << member->number;
        EXPECT_EQ(member->received, kMessages) << "of thread " << member->number;
        EXPECT_EQ(member->wrong, 0u) << "of thread " << member->number;
        EXPECT_EQ(member->errors, 0u) << "of thread " << member->number;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Categories, Threads,
    testing::Values(Case{"mpi-everywhere", 4}, Case{"2xdynamic", 1}, Case{"2xdynamic", 2},
                    Case{"2xdynamic", 16}, Case{"dynamic", 4}, Case{"dynamic", 16},
                    Case{"shared-dynamic", 4}, Case{"static", 4}, Case{"mpi+threads", 4}),
    [](const auto& info) {
        std::string name =
            info.param.category + std::string("_") + std::to_string(info.param.threads);
        std::replace_if(
            name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
        return name;
    });

}  // namespace
}  // namespace heddle::test
