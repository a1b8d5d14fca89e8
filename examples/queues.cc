// SPDX-License-Identifier: BSD-2-Clause
// Posts lists of RDMA writes with one doorbell each, on both paths: Queues, Endpoint::visit.
#include <heddle/endpoint.h>

#include <cstdio>

namespace post = heddle::post;

namespace {

constexpr std::uint32_t kRequests = 32;

// A template: the compiler knows the queues of each path.
template <class Queues>
bool write_list(Queues& queues, const post::WorkRequest& request) {
    for (std::uint32_t i = 1; i <= kRequests; ++i) {
        post::WorkRequest each = request;
        each.id = i;
        if (i == kRequests) each.flags |= post::kSignaled;  // it completes all earlier ones, too
        if (queues.send().post(each) != post::Posted::kOk) return false;
    }
    if (queues.send().ring_doorbell() != post::Posted::kOk) return false;
    post::Completion done;
    while (queues.completions().poll(&done, 1) == 0) {
    }
    return done.status == IBV_WC_SUCCESS && done.id == kRequests;
}

bool run(heddle::Path path) {
    heddle::EndpointOptions options;
    options.path = path;
    options.post_list = kRequests;
    heddle::EndpointSet set("", heddle::Category::kSharedDynamic, 1, options);
    heddle::Endpoint& endpoint = set[0];
    endpoint.connect(endpoint.address());  // to itself
    const auto at = reinterpret_cast<std::uintptr_t>(endpoint.buffer());
    const ibv_sge sge{at, 8, endpoint.mr()->lkey};
    post::WorkRequest request;
    request.opcode = post::Opcode::kWrite;
    request.flags = post::kInline;
    request.sges = {&sge, 1};
    request.remote_address = at + 64;
    request.remote_key = endpoint.mr()->rkey;
    return endpoint.visit([&](auto& queues) { return write_list(queues, request); });
}

}  // namespace

int main() {
    try {
        const bool verbs = run(heddle::Path::kVerbs);
        const bool direct = !heddle::device().mlx5 || run(heddle::Path::kDirect);
        std::printf("verbs path: %s, direct path: %s\n", verbs ? "done" : "failed",
                    direct ? "done" : "failed");
        return verbs && direct ? 0 : 1;
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "queues: %s\n", error.what());
        return 1;
    }
}
