// SPDX-License-Identifier: BSD-2-Clause
// Which registrations let the adapter's writes pass each other (IBV_ACCESS_RELAXED_ORDERING): those
// of memory that is read after a completion only. Eager rings and the credits of tuple queues are
// polled in memory, as the program may poll what it lets peers write to.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/memory/registrations.h"
#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {
namespace {

using heddle::test::clear_registrations;
using heddle::test::Registration;
using heddle::test::registrations;

bool is_relaxed(const Registration& each) {
    return (each.access & IBV_ACCESS_RELAXED_ORDERING) != 0;
}
bool holds(const Registration& each, const void* at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    return each.begin <= address && address < each.end;
}

class RelaxedOrdering : public testing::TestWithParam<Rendezvous> {
protected:
    static constexpr std::size_t kEager = 300, kLarge = 40'000;
    RelaxedOrdering() {
        options.rendezvous = GetParam();
        options.endpoints = Category::kMpiEverywhere;
        options.rings.peers = 1;
        options.reuse.after = 4;
        options.tuples.open_after = 1;
        clear_registrations();
    }
    bool by_tuples() const { return GetParam() == Rendezvous::kTuple; }

    // Messages of both sizes, until all kinds of memory have been registered.
    void talk(End& writer, End& reader) {
        const auto to_reader = writer.addresses.insert(reader.endpoint->name());
        const auto to_writer = reader.addresses.insert(writer.endpoint->name());
        const auto is_enough = [&](unsigned number) {
            if (number < 16) return false;
            return by_tuples() ? reader.impl().tuple_counts().posted != 0
                               : reader.endpoint->counts().from_rings != 0;
        };
        const auto end = std::chrono::steady_clock::now() + kPatience;
        for (unsigned number = 0; !is_enough(number); ++number) {
            ASSERT_LT(std::chrono::steady_clock::now(), end);
            out.assign(number % 2 == 0 ? kLarge : kEager, static_cast<char>(number));
            reader.post(to_writer, in, &in);
            writer.send(to_reader, out);
            ASSERT_TRUE(until([&] { return !reader.receive.empty() && !writer.transmit.empty(); },
                              {&writer, &reader}));
            EXPECT_EQ(reader.receive.front().error, 0);
            EXPECT_EQ(in[out.size() - 1], static_cast<char>(number));
            reader.receive.pop();
            writer.transmit.pop();
        }
    }
    bool is_of_the_program(const Registration& each) const {
        return holds(each, out.data()) || holds(each, in.data());
    }

    Options options;
    std::vector<char> out = std::vector<char>(kLarge), in = std::vector<char>(kLarge);
};

TEST_P(RelaxedOrdering, IsAskedForWhereACompletionTells) {
    End writer(options), reader(options);
    ASSERT_NO_FATAL_FAILURE(talk(writer, reader));
    unsigned of_the_program = 0, buffers = 0, polled = 0;
    for (const Registration& each : registrations()) {
        SCOPED_TRACE(testing::Message()
                     << each.end - each.begin << " bytes, access " << each.access);
        if (is_of_the_program(each)) {
            ++of_the_program;
            EXPECT_TRUE(is_relaxed(each));
        } else if (is_relaxed(each)) {
            ++buffers;
            EXPECT_EQ(each.access,
                      unsigned{IBV_ACCESS_LOCAL_WRITE} | unsigned{IBV_ACCESS_RELAXED_ORDERING})
                << "memory of ours that a peer writes to is polled";
        } else if (each.access & IBV_ACCESS_REMOTE_WRITE) {
            ++polled;
        }
    }
    EXPECT_GE(of_the_program, 2U);
    EXPECT_EQ(buffers, 2U) << "receive buffers of two endpoints";
    EXPECT_GE(polled, 1U) << (by_tuples() ? "credits" : "a ring");
}

TEST_P(RelaxedOrdering, IsNotAskedForWhereTheProgramMayPoll) {
    options.mr_cache_bytes = 0;  // else the same memory has more than one, from the second time on
    End end(options);
    const auto access_of = [&](std::uint64_t access) {
        clear_registrations();
        end.domain->register_memory(in.data(), in.size(), access);
        const std::vector<Registration> made = registrations();
        EXPECT_EQ(made.size(), 1U);
        return made.empty() ? Registration{} : made.back();
    };
    for (const std::uint64_t access : {std::uint64_t{FI_REMOTE_WRITE},
                                       std::uint64_t{FI_REMOTE_WRITE | FI_REMOTE_READ | FI_SEND}})
        EXPECT_FALSE(is_relaxed(access_of(access)));
    for (const std::uint64_t access :
         {std::uint64_t{0}, std::uint64_t{FI_SEND | FI_RECV}, std::uint64_t{FI_REMOTE_READ}})
        EXPECT_TRUE(is_relaxed(access_of(access)));
}

TEST_P(RelaxedOrdering, IsAnOption) {
    options.registration.relaxed_ordering = false;
    End writer(options), reader(options);
    ASSERT_NO_FATAL_FAILURE(talk(writer, reader));
    writer.domain->register_memory(in.data(), in.size(), FI_SEND);
    const std::vector<Registration> all = registrations();
    EXPECT_FALSE(all.empty());
    EXPECT_TRUE(std::none_of(all.begin(), all.end(), is_relaxed));
}

INSTANTIATE_TEST_SUITE_P(By, RelaxedOrdering,
                         testing::Values(Rendezvous::kGet, Rendezvous::kPut, Rendezvous::kTuple),
                         [](const auto& info) {
                             return std::string(info.param == Rendezvous::kGet   ? "rget"
                                                : info.param == Rendezvous::kPut ? "rput"
                                                                                 : "tupleq");
                         });

}  // namespace
}  // namespace heddle::protocol::test
