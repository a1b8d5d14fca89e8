// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/reuse/post_costs.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <locale>
#include <sstream>
#include <vector>

#include "heddle/detail/assert.h"
#include "heddle/endpoint.h"
#include "protocol/reuse/calibration_file.h"

namespace heddle::protocol {
namespace {

constexpr const char* kPostCostsLine = "heddle post costs 2";
constexpr unsigned kTurns = 41, kPosts = 8;  // posts of a turn, at least
// What two equal sides differ by.
constexpr double kLevel = 1.02;

// Endpoints that write to themselves.
class PostLoop {
public:
    PostLoop(const DeviceInfo& device, Path path, unsigned queue_pairs)
        : set_(device.name, made_on(device, Category::kDynamic), queue_pairs, options(path)) {
        for (unsigned i = 0; i < queue_pairs; ++i)
            set_[i].connect(set_[i].address());
    }

    // Nanoseconds of an operation, one after the other, the next on the next queue pair.
    double turn(std::size_t bytes) {
        const auto begin = Clock::now();
        const unsigned posts = std::max(kPosts, set_.size());
        for (unsigned i = 0; i < posts; ++i)
            write(set_[i % set_.size()], bytes);
        return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / posts;
    }

private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t kBytes = PostCosts::kSizes.back(), kInline = 60;

    static void write(Endpoint& e, std::size_t bytes) {
        HEDDLE_ASSERT(bytes != 0 && bytes <= kBytes, "the buffer holds the source and the target");
        const auto at = reinterpret_cast<std::uintptr_t>(e.buffer());
        const ibv_sge sge{at, static_cast<std::uint32_t>(bytes), e.mr()->lkey};
        post::WorkRequest work;
        work.opcode = post::Opcode::kWrite;
        work.flags = post::kSignaled;
        if (bytes <= kInline) work.flags |= post::kInline;
        work.sges = {&sge, 1};
        work.remote_address = at + kBytes;
        work.remote_key = e.mr()->rkey;
        constexpr std::uint32_t kLooks = 1024;
        const auto begin = Clock::now();
        e.visit([&](auto& queues) {
            post::Completion done;
            if (queues.send().post_now(work) != post::Posted::kOk)
                throw VerbsError("an operation to measure posting with", EIO);
            for (std::uint32_t looks = 0; queues.completions().poll(&done, 1) == 0;)
                if (++looks % kLooks == 0 && Clock::now() - begin > std::chrono::seconds(1))
                    throw VerbsError("an operation to measure posting with", ETIMEDOUT);
            if (done.status != IBV_WC_SUCCESS)
                throw VerbsError("an operation to measure posting with", EIO);
        });
    }
    static EndpointOptions options(Path path) {
        EndpointOptions options;
        options.depth = 16;
        options.max_inline = kInline;
        options.buffer_bytes = 2 * kBytes;
        options.path = path;
        return options;
    }
    EndpointSet set_;
};

}  // namespace

bool PostCosts::direct_pays() const noexcept {
    double logs = 0;
    for (const Cost& cost : costs) {
        if (!(cost.verbs > 0) || !(cost.direct > 0)) return true;  // nothing is known
        logs += std::log(cost.direct / cost.verbs);
    }
    return std::exp(logs / static_cast<double>(costs.size())) <= kLevel;
}

PostCosts PostCosts::measure(const std::string& device) {
    const DeviceInfo info = heddle::device(device);
    PostCosts all;
    Cost* cost = all.costs.data();
    for (const unsigned queue_pairs : kQueuePairs) {
        PostLoop verbs(info, Path::kVerbs, queue_pairs), direct(info, Path::kDirect, queue_pairs);
        for (const std::size_t bytes : kSizes) {
            std::vector<double> by_verbs, directly;
            for (unsigned turn = 0; turn < kTurns; ++turn) {
                by_verbs.push_back(verbs.turn(bytes));
                directly.push_back(direct.turn(bytes));
            }
            HEDDLE_ASSERT(by_verbs.size() == directly.size(), "the two sides take turns");
            *cost++ = {median(by_verbs), median(directly)};
        }
    }
    return all;
}

std::filesystem::path PostCosts::file(const DeviceInfo& device) {
    return calibration_file("post", device);
}

std::string PostCosts::text() const {
    std::string text = std::string(kPostCostsLine) + "\n";
    for (std::size_t i = 0; i < costs.size(); ++i)
        text += std::to_string(queue_pairs_of(i)) + " " + std::to_string(size_of(i)) + " " +
                exact(costs[i].verbs) + " " + exact(costs[i].direct) + "\n";
    return text;
}

std::optional<PostCosts> PostCosts::parse(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    if (!std::getline(lines, line) || line != kPostCostsLine) return std::nullopt;
    PostCosts all;
    for (std::size_t i = 0; i < all.costs.size(); ++i) {
        if (!std::getline(lines, line)) return std::nullopt;
        std::istringstream words(line);
        words.imbue(std::locale::classic());
        unsigned queue_pairs = 0;
        std::size_t size = 0;
        Cost& cost = all.costs[i];
        words >> queue_pairs >> size >> cost.verbs >> cost.direct;
        const auto time = [](double value) { return value > 0 && value < kMostNanoseconds; };
        if (!words || !(words >> std::ws).eof() || queue_pairs != queue_pairs_of(i) ||
            size != size_of(i) || !time(cost.verbs) || !time(cost.direct))
            return std::nullopt;
    }
    if (std::getline(lines, line)) return std::nullopt;
    return all;
}

std::optional<PostCosts> PostCosts::load(const std::filesystem::path& file) {
    return parse(read_calibration(file));
}

bool PostCosts::save(const std::filesystem::path& file) const noexcept {
    return write_calibration(file, text());
}

}  // namespace heddle::protocol
