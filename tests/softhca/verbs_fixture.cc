// SPDX-License-Identifier: BSD-2-Clause
// Verbs objects, registered memory, and waiting with a deadline: part of verbs_fixture.h.

#include "verbs_fixture.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>

namespace softhca::test {

void fail(const std::string& what, int error) {
    if (error < 0) error = errno;
    throw VerbsFailure(what + ": " + std::strerror(error) + " (errno " + std::to_string(error) +
                       ")");
}

void require(int error, const std::string& what) {
    if (error != 0) fail(what, error);
}

namespace {

void destroyed(int error, const char* what) {
    EXPECT_EQ(error, 0) << what << ": " << std::strerror(error);
}

}  // namespace

void Destroy::operator()(ibv_context* o) const {
    destroyed(ibv_close_device(o), "ibv_close_device");
}
void Destroy::operator()(ibv_pd* o) const { destroyed(ibv_dealloc_pd(o), "ibv_dealloc_pd"); }
void Destroy::operator()(ibv_mr* o) const { destroyed(ibv_dereg_mr(o), "ibv_dereg_mr"); }
void Destroy::operator()(ibv_comp_channel* o) const {
    destroyed(ibv_destroy_comp_channel(o), "ibv_destroy_comp_channel");
}
void Destroy::operator()(ibv_cq* o) const { destroyed(ibv_destroy_cq(o), "ibv_destroy_cq"); }
void Destroy::operator()(ibv_cq_ex* o) const {
    destroyed(ibv_destroy_cq(ibv_cq_ex_to_cq(o)), "ibv_destroy_cq");
}
void Destroy::operator()(ibv_qp* o) const { destroyed(ibv_destroy_qp(o), "ibv_destroy_qp"); }
void Destroy::operator()(ibv_srq* o) const { destroyed(ibv_destroy_srq(o), "ibv_destroy_srq"); }
void Destroy::operator()(ibv_xrcd* o) const { destroyed(ibv_close_xrcd(o), "ibv_close_xrcd"); }
void Destroy::operator()(ibv_ah* o) const { destroyed(ibv_destroy_ah(o), "ibv_destroy_ah"); }
void Destroy::operator()(ibv_td* o) const { destroyed(ibv_dealloc_td(o), "ibv_dealloc_td"); }

Owned<ibv_context> open_device() {
#if defined(__SANITIZE_THREAD__)
    // libibverbs is not instrumented, so when two threads list devices at once its read() into its
    // own buffers is taken for a race (and the report hangs: it reads symbols by our close()).
    static std::mutex mutex;
    const std::lock_guard<std::mutex> guard(mutex);
#endif
    int count = 0;
    ibv_device** list = check(ibv_get_device_list(&count), "ibv_get_device_list");
    if (count == 0) {
        ibv_free_device_list(list);
        fail("no RDMA device is visible; run the tests under `softhca run`", ENODEV);
    }
    ibv_context* context = ibv_open_device(list[0]);
    const int error = errno;
    ibv_free_device_list(list);
    if (context == nullptr) fail("ibv_open_device", error);
    return Owned<ibv_context>(context);
}

ibv_device_attr device_attributes(ibv_context* context) {
    ibv_device_attr attributes = {};
    require(ibv_query_device(context, &attributes), "ibv_query_device");
    return attributes;
}

ibv_port_attr port_attributes(ibv_context* context) {
    ibv_port_attr attributes = {};
    require(ibv_query_port(context, 1, &attributes), "ibv_query_port");
    return attributes;
}

bool is_ethernet(ibv_context* context) {
    return port_attributes(context).link_layer == IBV_LINK_LAYER_ETHERNET;
}

Owned<ibv_cq> create_cq(ibv_context* context, int entries, ibv_comp_channel* channel) {
    return Owned<ibv_cq>(
        check(ibv_create_cq(context, entries, nullptr, channel, 0), "ibv_create_cq"));
}

Owned<ibv_srq> create_srq(ibv_pd* pd, std::uint32_t entries, std::uint32_t sges) {
    ibv_srq_init_attr attributes = {};
    attributes.attr.max_wr = entries;
    attributes.attr.max_sge = sges;
    return Owned<ibv_srq>(check(ibv_create_srq(pd, &attributes), "ibv_create_srq"));
}

std::uint8_t pattern(std::uint32_t seed, std::size_t index) {
    const std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15ULL + seed * 0x2545f4914f6cdd1dULL;
    return static_cast<std::uint8_t>(mixed >> 40);
}

void fill_pattern(void* data, std::size_t length, std::uint32_t seed) {
    auto* bytes = static_cast<std::uint8_t*>(data);
    for (std::size_t i = 0; i < length; ++i)
        bytes[i] = pattern(seed, i);
}

testing::AssertionResult has_pattern(const void* data, std::size_t length, std::uint32_t seed) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    for (std::size_t i = 0; i < length; ++i) {
        if (bytes[i] == pattern(seed, i)) continue;
        std::size_t wrong = 0;
        for (std::size_t k = i; k < length; ++k)
            wrong += bytes[k] != pattern(seed, k);
        return testing::AssertionFailure()
               << "first wrong byte at " << i << " of " << length << ": is " << int{bytes[i]}
               << ", should be " << int{pattern(seed, i)} << "; " << wrong << " bytes are wrong";
    }
    return testing::AssertionSuccess();
}

Memory::Memory(ibv_pd* pd, std::size_t size, int access) : size_(size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    data_ = static_cast<std::uint8_t*>(memory);
    mr_.reset(ibv_reg_mr(pd, data_, size, access));
    if (!mr_) {
        const int error = errno;
        munmap(data_, size);
        fail("ibv_reg_mr of " + std::to_string(size) + " bytes", error);
    }
}

Memory::~Memory() {
    mr_.reset();
    munmap(data_, size_);
}

ibv_sge Memory::sge(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), mr_->lkey};
}

void Memory::fill(std::size_t offset, std::size_t length, std::uint32_t seed) const {
    fill_pattern(data_ + offset, length, seed);
}

testing::AssertionResult Memory::holds(std::size_t offset, std::size_t length,
                                       std::uint32_t seed) const {
    return has_pattern(data_ + offset, length, seed);
}

testing::AssertionResult Memory::untouched(std::size_t offset, std::size_t length,
                                           std::uint8_t value) const {
    for (std::size_t i = offset; i < offset + length; ++i) {
        if (data_[i] != value)
            return testing::AssertionFailure()
                   << "byte " << i << " was changed from " << int{value} << " to " << int{data_[i]};
    }
    return testing::AssertionSuccess();
}

std::optional<ibv_wc> poll_for(ibv_cq* cq, Clock::duration time) {
    const auto end = Clock::now() + time;
    for (unsigned turn = 1;; ++turn) {
        ibv_wc completion = {};
        const int count = ibv_poll_cq(cq, 1, &completion);
        if (count < 0) fail("ibv_poll_cq returned " + std::to_string(count));
        if (count > 0) return completion;
        if (turn % 64 == 0) {
            if (Clock::now() >= end) return std::nullopt;
            sched_yield();
        }
    }
}

std::optional<ibv_async_event> async_event(ibv_context* context, Clock::duration time) {
    pollfd waiting = {context->async_fd, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
    const int ready = poll(&waiting, 1, static_cast<int>(ms));
    if (ready < 0) fail("poll of the asynchronous event file");
    if (ready == 0) return std::nullopt;
    ibv_async_event event = {};
    if (ibv_get_async_event(context, &event) != 0) fail("ibv_get_async_event");
    ibv_ack_async_event(&event);
    return event;
}

testing::AssertionResult got_qp_event(ibv_context* context, ibv_event_type type, ibv_qp* qp) {
    for (;;) {
        const auto event = async_event(context, kDeadline);
        if (!event) return testing::AssertionFailure() << "no " << ibv_event_type_str(type);
        if (event->event_type == type && event->element.qp == qp)
            return testing::AssertionSuccess();
        // A QP with an SRQ raises this one too when it goes to error, before or after.
        if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event->element.qp == qp) continue;
        return testing::AssertionFailure()
               << ibv_event_type_str(event->event_type) << " in place of "
               << ibv_event_type_str(type) << (event->element.qp == qp ? "" : ", of another QP");
    }
}

ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attributes = {};
    ibv_qp_init_attr initial = {};
    require(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial), "ibv_query_qp");
    return attributes.qp_state;
}

std::string describe(ibv_qp* qp) {
    static const char* const kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    ibv_qp_attr attributes = {};
    ibv_qp_init_attr initial = {};
    std::ostringstream text;
    text << "QP 0x" << std::hex << qp->qp_num;
    if (ibv_query_qp(qp, &attributes, IBV_QP_STATE, &initial) != 0)
        text << " (state unknown)";
    else if (attributes.qp_state <= IBV_QPS_ERR)
        text << " in " << kNames[attributes.qp_state];
    return text.str();
}

std::string describe(const ibv_wc& wc) {
    std::ostringstream text;
    text << "completion of work request " << wc.wr_id << " on QP 0x" << std::hex << wc.qp_num
         << ": " << ibv_wc_status_str(wc.status) << " (" << std::dec << wc.status
         << "), vendor error 0x" << std::hex << wc.vendor_err;
    if (wc.status == IBV_WC_SUCCESS)
        text << std::dec << ", opcode " << wc.opcode << ", " << wc.byte_len << " bytes";
    return text.str();
}

testing::AssertionResult succeeded(const ibv_wc& completion) {
    if (completion.status == IBV_WC_SUCCESS) return testing::AssertionSuccess();
    return testing::AssertionFailure() << describe(completion);
}

testing::AssertionResult has_status(const ibv_wc& completion, ibv_wc_status status,
                                    std::uint32_t vendor_error) {
    if (completion.status == status && completion.vendor_err == vendor_error)
        return testing::AssertionSuccess();
    std::ostringstream wanted;
    wanted << ibv_wc_status_str(status) << ", vendor error 0x" << std::hex << vendor_error;
    return testing::AssertionFailure() << describe(completion) << "; should be " << wanted.str();
}

bool static_uars() {
    const char* value = std::getenv("SOFTHCA_UAR");
    return value != nullptr && std::strcmp(value, "static") == 0;
}

void expect_answer(Pair& pair, ibv_wc wc, ibv_grh header) {
    pair.b.ah.reset(
        check(ibv_create_ah_from_wc(pair.b.pd.get(), &wc, &header, 1), "ibv_create_ah_from_wc"));
    ASSERT_EQ(pair.a.post_receive(2, {pair.a.memory->sge(1024, 256)}), 0);
    ASSERT_TRUE(pair.b.run(send_of(pair.b, 10)));
    EXPECT_TRUE(succeeded(pair.a.wait_receive()));
}

Work write_of(const Endpoint& e, std::size_t length) {
    Work work;
    work.opcode = IBV_WR_RDMA_WRITE;
    work.sges = {e.memory->sge(0, length)};
    return work;
}

Work send_of(const Endpoint& e, std::size_t length) {
    Work work;
    work.sges = {e.memory->sge(0, length)};
    return work;
}

}  // namespace softhca::test
