// SPDX-License-Identifier: BSD-2-Clause
// fi_guest FOLDER SEED: an endpoint that comes and goes, for tests to start, stop (SIGTERM) and
// kill in numbers. It leaves its name in the folder, finds others there, and sends them messages of
// all ways and RMA writes until it is stopped; what comes is looked at, byte by byte. Others may be
// gone at any moment: what was sent to them must end, with whatever error, in time.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "tests/provider/fi_support.h"

namespace {

using namespace heddle::test;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t g_stop = 0;

constexpr std::size_t kReceives = 16, kMostAtOnce = 8, kRoom = 128 * 1024, kWindow = 4096;
constexpr std::array<std::size_t, 6> kSizes{8, 9, 500, 4000, 20'000, 100'000};
// Longer than it takes to give up: connections 30 s, retries a second.
constexpr std::chrono::seconds kLongest{60};

// What others need to reach a guest.
struct Card {
    std::byte name[kNameBytes];
    std::uint64_t address, key;
};

// The first eight bytes say who sent and how much, the others follow from them.
void fill(std::vector<std::byte>& bytes, std::size_t size, std::uint64_t who) {
    bytes.resize(size);
    const std::uint64_t first = who << 32 | size;
    std::memcpy(bytes.data(), &first, sizeof first);
    for (std::size_t i = sizeof first; i < size; ++i)
        bytes[i] = static_cast<std::byte>(first * 31 + i * 7);
}
bool as_filled(const std::byte* bytes, std::size_t size) {
    std::uint64_t first;
    if (size < sizeof first) return false;
    std::memcpy(&first, bytes, sizeof first);
    if ((first & 0xffffffff) != size) return false;
    for (std::size_t i = sizeof first; i < size; ++i)
        if (bytes[i] != static_cast<std::byte>(first * 31 + i * 7)) return false;
    return true;
}

class Guest {
public:
    Guest(std::filesystem::path folder, unsigned seed)
        : folder_(std::move(folder)), random_(seed), window_(kWindow), station_(world_) {
        station_.enable();
        region_ = opened<fid_mr>("fi_mr_reg", [&](fid_mr** mr) {
            return fi_mr_reg(world_.domain.get(), window_.data(), window_.size(), FI_REMOTE_WRITE,
                             0, 0, 0, mr, nullptr);
        });
        for (std::size_t i = 0; i < kReceives; ++i)
            receive(i);
        announce();
    }
    ~Guest() {
        std::error_code ignored;
        std::filesystem::remove(card_, ignored);
    }

    // 0, or what to end with.
    int run() {
        auto looked = Clock::time_point{};
        while (g_stop == 0) {
            if (Clock::now() - looked > std::chrono::milliseconds(20)) {
                look_around();
                looked = Clock::now();
                for (const Sending& each : sending_)
                    if (each.busy && looked - each.begun > kLongest) {
                        std::printf("what was sent to %llu does not end\n",
                                    static_cast<unsigned long long>(each.to));
                        return 3;
                    }
            }
            send();
            if (!drain(station_.transmit.get(), true) || !drain(station_.receive.get(), false))
                return 4;
        }
        std::printf("%llu sent, %llu came, %llu failed\n", sent_, came_, failed_);
        return 0;
    }

private:
    struct Sending {
        bool busy = false;
        fi_addr_t to = 0;
        Clock::time_point begun;
        std::vector<std::byte> bytes;
    };

    void announce() {
        Card card{};
        std::memcpy(card.name, station_.name, sizeof card.name);
        card.address = reinterpret_cast<std::uintptr_t>(window_.data());
        card.key = fi_mr_key(region_.get());
        const auto draft = folder_ / ("." + std::to_string(::getpid()));
        card_ = folder_ / std::to_string(::getpid());
        std::ofstream(draft, std::ios::binary).write(reinterpret_cast<char*>(&card), sizeof card);
        std::filesystem::rename(draft, card_);
        std::puts("ready");
        std::fflush(stdout);
    }
    void look_around() {
        std::set<std::string> there;
        std::error_code gone;
        for (const auto& each : std::filesystem::directory_iterator(folder_, gone)) {
            const std::string name = each.path().filename();
            if (name[0] == '.' || each.path() == card_) continue;
            there.insert(name);
            if (known_.count(name) != 0) continue;
            Card card{};
            std::ifstream in(each.path(), std::ios::binary);
            if (!in.read(reinterpret_cast<char*>(&card), sizeof card)) continue;
            fi_addr_t address = FI_ADDR_NOTAVAIL;
            if (fi_av_insert(station_.av.get(), card.name, 1, &address, 0, nullptr) != 1) continue;
            known_[name] = {address, card};
        }
        for (auto at = known_.begin(); at != known_.end();)
            at = there.count(at->first) != 0 ? std::next(at) : known_.erase(at);
    }
    void receive(std::size_t i) {
        const ssize_t result = fi_trecv(station_.ep.get(), buffers_[i].data(), kRoom, nullptr,
                                        FI_ADDR_UNSPEC, 0, ~std::uint64_t{0}, &buffers_[i]);
        EXPECT_EQ(result, 0);
    }
    void send() {
        if (known_.empty()) return;
        const auto free = std::find_if(sending_.begin(), sending_.end(),
                                       [](const Sending& each) { return !each.busy; });
        if (free == sending_.end()) return;
        const auto& [to, card] =
            std::next(known_.begin(), static_cast<long>(random_() % known_.size()))->second;
        const std::size_t way = random_() % (kSizes.size() + 1);
        const bool write = way == kSizes.size();
        fill(free->bytes, write ? kWindow : kSizes[way], static_cast<std::uint64_t>(::getpid()));
        const ssize_t result = write ? fi_write(station_.ep.get(), free->bytes.data(), kWindow,
                                                nullptr, to, card.address, card.key, &*free)
                                     : fi_tsend(station_.ep.get(), free->bytes.data(),
                                                free->bytes.size(), nullptr, to, random_(), &*free);
        if (result == 0) {
            free->busy = true;
            free->to = to;
            free->begun = Clock::now();
        } else if (result != -FI_EAGAIN) {
            ++failed_;
        }
    }
    // False: what came is not what was sent.
    bool drain(fid_cq* cq, bool transmit) {
        fi_cq_tagged_entry entries[8];
        for (;;) {
            const ssize_t got = fi_cq_read(cq, entries, 8);
            if (got == -FI_EAVAIL) {
                fi_cq_err_entry error{};
                if (fi_cq_readerr(cq, &error, 0) != 1) return true;
                ++failed_;
                ended(error.op_context, transmit);
                continue;
            }
            if (got <= 0) return true;
            for (ssize_t i = 0; i < got; ++i) {
                if (!transmit) {
                    ++came_;
                    const auto* const bytes = static_cast<std::byte*>(entries[i].op_context);
                    if (!as_filled(bytes, entries[i].len)) {
                        std::printf("a message of %zu bytes is damaged\n", entries[i].len);
                        return false;
                    }
                } else {
                    ++sent_;
                }
                ended(entries[i].op_context, transmit);
            }
        }
    }
    void ended(void* context, bool transmit) {
        if (transmit)
            static_cast<Sending*>(context)->busy = false;
        else
            receive(static_cast<std::size_t>(static_cast<std::array<std::byte, kRoom>*>(context) -
                                             buffers_.data()));
    }

    const std::filesystem::path folder_;
    std::filesystem::path card_;
    std::mt19937 random_;
    // What others read from and write to until the endpoint is closed.
    std::vector<std::byte> window_;
    std::array<Sending, kMostAtOnce> sending_;
    World world_{hints()};
    Station station_;
    static inline std::array<std::array<std::byte, kRoom>, kReceives> buffers_;
    Opened<fid_mr> region_;
    std::map<std::string, std::pair<fi_addr_t, Card>> known_;
    unsigned long long sent_ = 0, came_ = 0, failed_ = 0;

    static Info hints() {
        Info hints = usual_hints();
        hints->domain_attr->mr_mode &= ~static_cast<int>(FI_MR_LOCAL);
        return hints;
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: fi_guest FOLDER SEED\n");
        return 2;
    }
    std::signal(SIGTERM, [](int) { g_stop = 1; });
    try {
        Guest guest(argv[1], static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
        return guest.run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "fi_guest: %s\n", error.what());
        return 1;
    }
}
