// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/reuse/post_costs.h"

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

constexpr const char* kPostCostsLine = "heddle post costs 1";
constexpr int kTurns = 41, kPosts = 8;
// What two equal sides differ by.
constexpr double kLevel = 1.02;

// An endpoint that writes to itself.
class PostLoop {
public:
    PostLoop(const std::string& device, Path path)
        : set_(device, Category::kMpiEverywhere, 1, options(path)) {
        set_[0].connect(set_[0].address());
    }

    // Nanoseconds of an operation, one after the other.
    double turn(std::size_t bytes) {
        HEDDLE_ASSERT(bytes != 0 && bytes <= kBytes, "the buffer holds the source and the target");
        using Clock = std::chrono::steady_clock;
        Endpoint& e = set_[0];
        const auto at = reinterpret_cast<std::uintptr_t>(e.buffer());
        const ibv_sge sge{at, static_cast<std::uint32_t>(bytes), e.mr()->lkey};
        post::WorkRequest work;
        work.opcode = post::Opcode::kWrite;
        work.flags = post::kSignaled;
        if (bytes <= kInline) work.flags |= post::kInline;
        work.sges = {&sge, 1};
        work.remote_address = at + kBytes;
        work.remote_key = e.mr()->rkey;
        const auto begin = Clock::now();
        e.visit([&](auto& queues) {
            post::Completion done;
            for (int i = 0; i < kPosts; ++i) {
                if (queues.send().post_now(work) != post::Posted::kOk)
                    throw VerbsError("an operation to measure posting with", EIO);
                while (queues.completions().poll(&done, 1) == 0)
                    if (Clock::now() - begin > std::chrono::seconds(1))
                        throw VerbsError("an operation to measure posting with", ETIMEDOUT);
                if (done.status != IBV_WC_SUCCESS)
                    throw VerbsError("an operation to measure posting with", EIO);
            }
        });
        return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kPosts;
    }

private:
    static constexpr std::size_t kBytes = PostCosts::kSizes.back(), kInline = 60;
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
    PostLoop verbs(device, Path::kVerbs), direct(device, Path::kDirect);
    PostCosts all;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
        std::vector<double> by_verbs, directly;
        for (int turn = 0; turn < kTurns; ++turn) {
            by_verbs.push_back(verbs.turn(kSizes[i]));
            directly.push_back(direct.turn(kSizes[i]));
        }
        HEDDLE_ASSERT(by_verbs.size() == directly.size(), "the two sides take turns");
        all.costs[i] = {median(by_verbs), median(directly)};
    }
    return all;
}

std::filesystem::path PostCosts::file(const DeviceInfo& device) {
    return calibration_file("post", device);
}

std::string PostCosts::text() const {
    std::string text = std::string(kPostCostsLine) + "\n";
    for (std::size_t i = 0; i < kSizes.size(); ++i)
        text += std::to_string(kSizes[i]) + " " + exact(costs[i].verbs) + " " +
                exact(costs[i].direct) + "\n";
    return text;
}

std::optional<PostCosts> PostCosts::parse(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    if (!std::getline(lines, line) || line != kPostCostsLine) return std::nullopt;
    PostCosts all;
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
        if (!std::getline(lines, line)) return std::nullopt;
        std::istringstream words(line);
        words.imbue(std::locale::classic());
        std::size_t size = 0;
        Cost& cost = all.costs[i];
        words >> size >> cost.verbs >> cost.direct;
        const auto time = [](double value) { return value > 0 && value < kMostNanoseconds; };
        if (!words || !(words >> std::ws).eof() || size != kSizes[i] || !time(cost.verbs) ||
            !time(cost.direct))
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
