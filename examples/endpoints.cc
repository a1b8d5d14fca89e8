// SPDX-License-Identifier: BSD-2-Clause
// Two threads exchange a message in one process: EndpointSet, Endpoint, QpAddress, WorkRequest,
// Completion. Two processes do the same once they have exchanged their addresses.
#include <heddle/endpoint.h>

#include <cstdio>
#include <cstring>
#include <thread>

namespace post = heddle::post;

namespace {

// Waits for one completion. Returns whether it is a success.
bool wait_for_one(heddle::Endpoint& endpoint) {
    post::Completion done;
    while (endpoint.poll(&done, 1) == 0) {
    }
    if (done.status != IBV_WC_SUCCESS) std::fprintf(stderr, "%s\n", ibv_wc_status_str(done.status));
    return done.status == IBV_WC_SUCCESS;
}

bool receive(heddle::Endpoint& endpoint) {
    if (!wait_for_one(endpoint)) return false;
    std::printf("received: %s\n", reinterpret_cast<const char*>(endpoint.buffer()));
    return true;
}

bool send(heddle::Endpoint& endpoint) {
    std::strcpy(reinterpret_cast<char*>(endpoint.buffer()), "hello");
    const ibv_sge sge{reinterpret_cast<std::uintptr_t>(endpoint.buffer()), sizeof "hello",
                      endpoint.mr()->lkey};
    post::WorkRequest request;
    request.opcode = post::Opcode::kSend;
    request.flags = post::kSignaled | post::kInline;
    request.sges = {&sge, 1};
    return endpoint.post(request) == post::Posted::kOk && wait_for_one(endpoint);
}

}  // namespace

int main() {
    try {
        heddle::EndpointOptions options;
        options.path = heddle::device().mlx5 ? heddle::Path::kDirect : heddle::Path::kVerbs;
        options.receive_depth = 16;
        heddle::EndpointSet set("", heddle::Category::kDynamic, 2, options);
        set[0].connect(set[1].address());
        set[1].connect(set[0].address());
        // The receive is posted before the message is sent.
        const ibv_sge into{reinterpret_cast<std::uintptr_t>(set[1].buffer()), 64,
                           set[1].mr()->lkey};
        if (set[1].post_receive({&into, 1}, 1) != post::Posted::kOk) return 1;
        bool received = false;
        std::thread receiver([&] { received = receive(set[1]); });
        const bool sent = send(set[0]);
        receiver.join();
        return sent && received ? 0 : 1;
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "endpoints: %s\n", error.what());
        return 1;
    }
}
