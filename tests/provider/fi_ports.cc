// SPDX-License-Identifier: BSD-2-Clause
// Several adapters with several ports each: an offer for each port, the order of the offers, and
// messages between any two ports. `softhca run --devices 2 --ports 2`.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/provider/fi_support.h"

namespace heddle::test {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

std::vector<std::string> names_of(const Info& first) {
    std::vector<std::string> names;
    for (const fi_info* each = first.get(); each != nullptr; each = each->next)
        names.emplace_back(each->domain_attr->name);
    return names;
}

Info hints_of(const std::string& domain) {
    Info hints = usual_hints();
    hints->domain_attr->name = strdup(domain.c_str());
    return hints;
}

// By `softhca port`; of mlx5_0 if nothing else is said.
void change_port(const std::string& action) {
    const std::string command = "env -u LD_PRELOAD " HEDDLE_TEST_SOFTHCA " port " + action;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// The offers to the process of that number on its host.
std::vector<std::string> offers_to(const char* number) {
    setenv("MPI_LOCALRANKID", number, 1);
    const Info info = ask(usual_hints().get());
    unsetenv("MPI_LOCALRANKID");
    return names_of(info);
}

TEST(Ports, HaveADomainEach) {
    const Info info = ask(usual_hints().get());
    ASSERT_THAT(names_of(info), UnorderedElementsAre("mlx5_0", "mlx5_0:2", "mlx5_1", "mlx5_1:2"));
    std::vector<std::string> gids;
    for (const fi_info* each = info.get(); each != nullptr; each = each->next) {
        constexpr std::size_t kGid = 16;  // where it begins, in a name
        gids.emplace_back(static_cast<const char*>(each->src_addr) + kGid, 16);
        ASSERT_NE(each->nic, nullptr);
        EXPECT_EQ(each->nic->fid.fclass, static_cast<std::size_t>(FI_CLASS_NIC));
        const std::string domain = each->domain_attr->name;
        EXPECT_EQ(domain.substr(0, domain.find(':')), each->nic->device_attr->name);
        EXPECT_EQ(each->nic->link_attr->state, FI_LINK_UP);
        EXPECT_EQ(each->nic->link_attr->mtu, 4096u);
        EXPECT_GT(each->nic->link_attr->speed, 1'000'000'000u);
        EXPECT_STREQ(each->nic->link_attr->network_type, "InfiniBand");
    }
    std::sort(gids.begin(), gids.end());
    EXPECT_EQ(std::unique(gids.begin(), gids.end()), gids.end());
}

TEST(Ports, AnAdapterIsCopiedWithItsOffer) {
    const Info info = ask(usual_hints().get());
    ASSERT_NE(info, nullptr);
    const Info copy(fi_dupinfo(info.get()));
    ASSERT_NE(copy, nullptr);
    ASSERT_NE(copy->nic, nullptr);
    EXPECT_NE(copy->nic, info->nic);
    EXPECT_STREQ(copy->nic->device_attr->name, info->nic->device_attr->name);
    EXPECT_NE(copy->nic->device_attr->name, info->nic->device_attr->name);
    const std::string text = fi_tostr(copy.get(), FI_TYPE_INFO);
    EXPECT_THAT(text, testing::HasSubstr("nic: mlx5_"));
}

TEST(Ports, ProcessesOfAHostSpreadOverThem) {
    std::vector<std::string> firsts;
    for (const char* number : {"0", "1", "2", "3"}) {
        const auto offers = offers_to(number);
        ASSERT_EQ(offers.size(), 4u);
        firsts.push_back(offers.front());
    }
    EXPECT_THAT(firsts, UnorderedElementsAre("mlx5_0", "mlx5_0:2", "mlx5_1", "mlx5_1:2"));
    EXPECT_EQ(offers_to("4"), offers_to("0"));
    EXPECT_EQ(offers_to("nonsense"), offers_to("0"));
}

TEST(Ports, ReachEachOther) {
    const auto names = names_of(ask(usual_hints().get()));
    std::vector<std::unique_ptr<World>> worlds;
    std::vector<std::unique_ptr<Station>> stations;
    for (const std::string& name : names) {
        worlds.push_back(std::make_unique<World>(hints_of(name)));
        EXPECT_EQ(worlds.back()->info->domain_attr->name, name);
        stations.push_back(std::make_unique<Station>(*worlds.back()));
        stations.back()->enable();
    }
    for (const auto& from : stations)
        for (const auto& to : stations) {
            if (from == to) continue;
            const fi_addr_t peer = from->add(*to);
            std::vector<char> sent(20'000, 'x'), received(sent.size());
            ASSERT_EQ(fi_trecv(to->ep.get(), received.data(), received.size(), nullptr,
                               FI_ADDR_UNSPEC, 1, 0, nullptr),
                      0);
            ASSERT_EQ(insist(from->transmit.get(),
                             [&] {
                                 return fi_tsend(from->ep.get(), sent.data(), sent.size(), nullptr,
                                                 peer, 1, nullptr);
                             }),
                      0);
            fi_cq_tagged_entry entry;
            ASSERT_EQ(next(to->receive.get(), entry, from->transmit.get()), 0);
            ASSERT_EQ(next(from->transmit.get(), entry, to->receive.get()), 0);
            ASSERT_EQ(sent, received);
        }
    stations.clear();  // before their worlds
}

// Two stations at different adapters, and messages from the one to the other.
class PortEvents : public testing::Test {
protected:
    PortEvents() {
        std::fflush(stderr);
        EXPECT_GE(dup2(fileno(log_), STDERR_FILENO), 0);
    }
    ~PortEvents() override {
        dup2(stderr_, STDERR_FILENO);
        close(stderr_);
        std::fputs(log().c_str(), stderr);
        std::fclose(log_);
    }
    // What has been written to stderr, by any thread.
    std::string log() const {
        std::string text(1 << 16, '\0');
        const ssize_t bytes = pread(fileno(log_), text.data(), text.size(), 0);
        text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
        return text;
    }
    // Makes progress at both until the log says so.
    void wait_for_line(const std::string& line) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (log().find(line) == std::string::npos && std::chrono::steady_clock::now() < end) {
            fi_cq_read(from_.transmit.get(), nullptr, 0);
            fi_cq_read(to_.transmit.get(), nullptr, 0);
        }
        EXPECT_THAT(log(), testing::HasSubstr(line));
    }
    void send_and_receive(std::uint64_t value) {
        ASSERT_NO_FATAL_FAILURE(send(value));
        ASSERT_NO_FATAL_FAILURE(receive(value));
    }
    void send(std::uint64_t value) {
        sent_ = value;
        ASSERT_EQ(fi_trecv(to_.ep.get(), &received_, sizeof received_, nullptr, FI_ADDR_UNSPEC, 1,
                           0, nullptr),
                  0);
        ASSERT_EQ(insist(from_.transmit.get(),
                         [&] {
                             return fi_tsend(from_.ep.get(), &sent_, sizeof sent_, nullptr, peer_,
                                             1, nullptr);
                         }),
                  0);
    }
    void receive(std::uint64_t value) {
        fi_cq_tagged_entry entry;
        ASSERT_EQ(next(to_.receive.get(), entry, from_.transmit.get()), 0);
        ASSERT_EQ(next(from_.transmit.get(), entry, to_.receive.get()), 0);
        EXPECT_EQ(received_, value);
    }
    void SetUp() override {
        from_.enable();
        to_.enable();
        peer_ = from_.add(to_);
    }

    std::FILE* const log_ = std::tmpfile();
    const int stderr_ = dup(STDERR_FILENO);
    World near_{hints_of("mlx5_0")}, far_{hints_of("mlx5_1")};
    Station from_{near_}, to_{far_};
    fi_addr_t peer_ = FI_ADDR_NOTAVAIL;
    std::uint64_t sent_ = 0, received_ = 0;
};

TEST_F(PortEvents, AreLoggedAndMessagesWaitForThePort) {
    ASSERT_NO_FATAL_FAILURE(send_and_receive(1));
    change_port("down --device mlx5_1");
    wait_for_line("mlx5_1 is down: messages wait for it");
    ASSERT_NO_FATAL_FAILURE(send(2));
    fi_cq_tagged_entry entry;
    EXPECT_EQ(fi_cq_read(to_.receive.get(), &entry, 1), -FI_EAGAIN);
    change_port("up --device mlx5_1");
    wait_for_line("mlx5_1 is up");
    ASSERT_NO_FATAL_FAILURE(receive(2));
}

// What was on its way to a peer when it closed is not acknowledged any more, as by devices that
// drop what comes for a queue pair that is gone. It would be repeated for 7.5 s.
TEST_F(PortEvents, WorkToAPeerThatHasLeftKeepsNoEndpoint) {
    ASSERT_NO_FATAL_FAILURE(send_and_receive(1));
    const fi_addr_t back = to_.add(from_);
    std::uint64_t out = 2, in = 0;
    ASSERT_EQ(fi_trecv(from_.ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 2, 0, nullptr), 0);
    ASSERT_EQ(insist(to_.transmit.get(),
                     [&] { return fi_tinject(to_.ep.get(), &out, sizeof out, back, 2); }),
              0);
    fi_cq_tagged_entry entry;
    ASSERT_EQ(next(from_.receive.get(), entry, to_.transmit.get()), 0);
    ASSERT_EQ(to_.ep.close(), 0);
    change_port("down --device mlx5_1");
    ASSERT_EQ(fi_tinject(from_.ep.get(), &out, sizeof out, peer_, 1), 0);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(from_.ep.close(), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

// The table of an Ethernet port, where an address may go and come back at another index.
TEST_F(PortEvents, AGidThatMovesIsFoundForNewConnections) {
    const auto* const gid = static_cast<const unsigned char*>(near_.info->src_addr) + 16;
    const std::string address = std::to_string(gid[12]) + "." + std::to_string(gid[13]) + "." +
                                std::to_string(gid[14]) + "." + std::to_string(gid[15]);
    change_port("gid remove " + address);
    wait_for_line("mlx5_0 has lost its GID ::ffff:" + address);
    change_port("gid add 10.99.99.99");
    change_port("gid add " + address);
    ASSERT_NO_FATAL_FAILURE(send_and_receive(3));
    wait_for_line("mlx5_0 has its GID ::ffff:" + address + " again");
}

// On Ethernet, where mlx5_0 loses the address of port 1.
class Addresses : public testing::Test {
protected:
    void SetUp() override {
        const Info first = ask(hints_of("mlx5_0").get());
        ASSERT_NE(first, nullptr);
        constexpr std::size_t kIpv4 = 28;  // where it begins in a name: its GID is at 16
        const auto* const bytes = static_cast<const std::uint8_t*>(first->src_addr) + kIpv4;
        std::string address = std::to_string(bytes[0]);
        for (int k = 1; k < 4; ++k)
            address += "." + std::to_string(bytes[k]);
        ASSERT_NO_FATAL_FAILURE(change_port("gid remove " + address));
    }
    const World world_{hints_of("mlx5_1")};  // keeps the fabric
};

// MPI libraries take any port that they are offered, by the number of the process.
TEST_F(Addresses, PortsWithoutOneAreNotOffered) {
    for (const char* number : {"0", "1", "2", "3"})
        EXPECT_THAT(offers_to(number), UnorderedElementsAre("mlx5_0:2", "mlx5_1", "mlx5_1:2"))
            << "process " << number;
}

TEST_F(Addresses, PortsWithoutOneCanBeNamed) {
    const Info named = ask(hints_of("mlx5_0").get());
    EXPECT_THAT(names_of(named), ElementsAre("mlx5_0"));
    Info hints = usual_hints();
    hints->fabric_attr->name = strdup(named->fabric_attr->name);
    EXPECT_THAT(names_of(ask(hints.get())), ElementsAre("mlx5_0"));
}

// FI_HEDDLE_DEVICE=mlx5_*
TEST_F(Addresses, PortsWithoutOneComeLastIfAllAreNamed) {
    const auto offers = offers_to("1");
    ASSERT_EQ(offers.size(), 4u);
    EXPECT_EQ(offers.back(), "mlx5_0");
}

// FI_HEDDLE_DEVICE=mlx5_1:2,mlx5_[2-7]
TEST(ChosenPorts, AreTheOnlyOnes) {
    EXPECT_THAT(names_of(ask(usual_hints().get())), ElementsAre("mlx5_1:2"));
}

// FI_HEDDLE_PKEY=0x8001, and no port is in that partition.
TEST(Partition, ThatNoPortIsInEndsWithAnError) {
    const Info info = ask(usual_hints().get());
    ASSERT_NE(info, nullptr);
    const auto fabric = opened<fid_fabric>(
        "fi_fabric", [&](fid_fabric** out) { return fi_fabric(info->fabric_attr, out, nullptr); });
    fid_domain* domain = nullptr;
    EXPECT_EQ(fi_domain(fabric.get(), info.get(), &domain, nullptr), -FI_ENOENT);
}

}  // namespace
}  // namespace heddle::test
