// SPDX-License-Identifier: BSD-2-Clause
// The command interface (rdma/rdma_user_ioctl_cmds.h, rdma/ib_user_verbs.h, rdma/mlx5-abi.h): the
// input is a sequence of ioctl, mmap and close calls on command descriptors, with arguments that
// are nearly right, corrupt, or nothing like what libmlx5 sends. Nothing may crash; what a command
// writes stays within the buffer it was given; and when all descriptors are closed, the fabric is
// as empty, and the process has as many descriptors, as before.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

#include "softhca/uverbs/uverbs.h"
#include "uverbs_firmware.h"
#include "uverbs_requests.h"

extern "C" void softhca_doorbell(void* uar_register);

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 48;
constexpr std::uint64_t kPage = 4096;

// Lengths are nearly always right; buffers are sometimes in memory that may be anything.
void send(Session& s, Request& request, std::uint32_t number) {
    constexpr std::size_t kRoom = 512;
    constexpr std::byte kUntouched{0xa5};
    static std::byte out[kRoom], driver_out[kRoom];
    std::memset(out, static_cast<int>(kUntouched), kRoom);
    std::memset(driver_out, static_cast<int>(kUntouched), kRoom);
    const std::size_t out_length = s.input.one_in(8) ? s.input.below(64) : 400;
    const std::size_t driver_out_length = s.input.one_in(8) ? s.input.below(64) : 400;
    if (s.input.one_in(16)) request.core_length = s.input.below(sizeof request.core);
    if (s.input.one_in(16)) request.driver_length = s.input.below(sizeof request.driver);

    Call call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    call.add(UVERBS_ATTR_WRITE_CMD,
             number | (request.extended ? std::uint32_t{IB_USER_VERBS_CMD_FLAG_EXTENDED} : 0), 0);
    call.in(UVERBS_ATTR_CORE_IN, request.core, request.core_length);
    if (s.input.one_in(32)) call.last()->data = s.address();
    if (request.driver_length) call.in(UVERBS_ATTR_UHW_IN, request.driver, request.driver_length);
    const bool astray = s.input.one_in(16);
    if (astray)
        call.add(UVERBS_ATTR_CORE_OUT, s.address(), s.input.value<std::uint16_t>());
    else
        call.out(UVERBS_ATTR_CORE_OUT, out, out_length);
    if (s.input.one_in(16))
        call.add(UVERBS_ATTR_UHW_OUT, s.address(), s.input.value<std::uint16_t>());
    else
        call.out(UVERBS_ATTR_UHW_OUT, driver_out, driver_out_length);
    const int error = call.run(s.device());
    for (const auto& [buffer, length] :
         {std::pair{out, out_length}, {driver_out, driver_out_length}})
        for (std::size_t i = length; i < kRoom; ++i)
            if (buffer[i] != kUntouched)
                fail("command %u wrote byte %zu of a buffer of %zu", number, i, length);
    if (error || astray || out_length < 8) return;
    std::uint32_t answer[2];  // every answer begins with the handle; a queue pair's number follows
    std::memcpy(answer, out, sizeof answer);
    if (number == IB_USER_VERBS_CMD_GET_CONTEXT && !request.extended)
        s.add(Kind::kChannel, answer[0]);
    if (request.creates) s.add(request.kind, answer[0], request.type);
    if (request.creates && request.kind == Kind::kQp) s.qp_numbers.push_back(answer[1]);
}

void command(Session& s, std::uint32_t number, bool extended) {
    Request request;
    request.extended = extended;
    if (extended)
        build_extended(s, request, number);
    else
        build_plain(s, request, number);
    send(s, request, number);
}

void any_command(Session& s) {
    constexpr std::uint32_t kPlain[] = {IB_USER_VERBS_CMD_GET_CONTEXT,
                                        IB_USER_VERBS_CMD_QUERY_DEVICE,
                                        IB_USER_VERBS_CMD_QUERY_PORT,
                                        IB_USER_VERBS_CMD_ALLOC_PD,
                                        IB_USER_VERBS_CMD_DEALLOC_PD,
                                        IB_USER_VERBS_CMD_REG_MR,
                                        IB_USER_VERBS_CMD_REREG_MR,
                                        IB_USER_VERBS_CMD_DEREG_MR,
                                        IB_USER_VERBS_CMD_ALLOC_MW,
                                        IB_USER_VERBS_CMD_DEALLOC_MW,
                                        IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
                                        IB_USER_VERBS_CMD_CREATE_CQ,
                                        IB_USER_VERBS_CMD_RESIZE_CQ,
                                        IB_USER_VERBS_CMD_DESTROY_CQ,
                                        IB_USER_VERBS_CMD_CREATE_QP,
                                        IB_USER_VERBS_CMD_OPEN_QP,
                                        IB_USER_VERBS_CMD_MODIFY_QP,
                                        IB_USER_VERBS_CMD_QUERY_QP,
                                        IB_USER_VERBS_CMD_DESTROY_QP,
                                        IB_USER_VERBS_CMD_CREATE_SRQ,
                                        IB_USER_VERBS_CMD_CREATE_XSRQ,
                                        IB_USER_VERBS_CMD_MODIFY_SRQ,
                                        IB_USER_VERBS_CMD_QUERY_SRQ,
                                        IB_USER_VERBS_CMD_DESTROY_SRQ,
                                        IB_USER_VERBS_CMD_OPEN_XRCD,
                                        IB_USER_VERBS_CMD_CLOSE_XRCD,
                                        IB_USER_VERBS_CMD_ATTACH_MCAST,
                                        IB_USER_VERBS_CMD_DETACH_MCAST};
    constexpr std::uint32_t kExtended[] = {
        IB_USER_VERBS_EX_CMD_QUERY_DEVICE, IB_USER_VERBS_EX_CMD_CREATE_CQ,
        IB_USER_VERBS_EX_CMD_MODIFY_CQ, IB_USER_VERBS_EX_CMD_CREATE_QP,
        IB_USER_VERBS_EX_CMD_MODIFY_QP};
    if (s.input.one_in(16)) return command(s, s.input.byte(), s.input.one_in(2));
    if (s.input.one_in(5)) return command(s, s.input.pick(kExtended), true);
    command(s, s.input.pick(kPlain), false);
}

// From RESET to RTS, as far as it goes.
void bring_up(Session& s) {
    const std::uint8_t which = s.input.byte();
    for (const std::uint32_t state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        Request request;
        request.core_length = sizeof(ib_uverbs_modify_qp);
        auto& core = *reinterpret_cast<ib_uverbs_modify_qp*>(request.core);
        const auto& all = s.handles[static_cast<std::size_t>(Kind::kQp)];
        if (all.empty()) return;
        const Handle& qp = all[which % all.size()];
        core.qp_handle = qp.value;
        core.qp_state = static_cast<std::uint8_t>(state);
        core.attr_mask = attributes_for(state, qp.type);
        core.dest.dlid = device::kFirstLid;
        core.port_num = core.dest.port_num = 1;
        core.path_mtu = IBV_MTU_1024;
        core.dest_qp_num = s.qp_number() & 0xffffff;
        core.qp_access_flags = 15;
        core.timeout = core.min_rnr_timer = 1;
        core.max_rd_atomic = core.max_dest_rd_atomic = 1;
        Call call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
        call.add(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_MODIFY_QP, 0);
        call.in(UVERBS_ATTR_CORE_IN, &core, sizeof core);
        call.run(s.device());
    }
}

void uar_method(Session& s) {
    if (s.input.one_in(3)) {
        Call call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY);
        call.add(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, s.handle(Kind::kUar), 0);
        call.run(s.device());
        return;
    }
    std::uint64_t offset = 0;
    std::uint32_t length = 0, page = 0;
    Call call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
    call.add(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, s.input.below(3), 8);
    call.add(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0);
    call.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof offset);
    call.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length, sizeof length);
    call.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page, sizeof page);
    if (s.input.one_in(8)) call.last()->data = s.address();
    if (call.run(s.device())) return;
    s.add(Kind::kUar, static_cast<std::uint32_t>(call.data_of(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)));
    s.offsets.push_back(offset);
}

void mr_method(Session& s) {
    std::uint64_t replies[4];
    if (s.input.one_in(2)) {
        Call call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
        call.add(UVERBS_ATTR_QUERY_MR_HANDLE, s.handle(Kind::kMr), 0);
        call.out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &replies[0], 4);
        call.out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &replies[1], 4);
        call.out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &replies[2], 8);
        call.out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, &replies[3], 8);
        if (s.input.one_in(8)) call.last()->data = s.address();
        call.run(s.device());
        return;
    }
    ib_uverbs_sge list[3] = {};
    for (ib_uverbs_sge& sge : list)
        sge = {s.address(), s.input.word(), s.handle(Kind::kMr) << 8 | s.input.below(4)};
    Call call(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);
    call.add(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, s.handle(Kind::kPd), 0);
    call.add(UVERBS_ATTR_ADVISE_MR_ADVICE, s.input.below(4), 0);
    call.add(UVERBS_ATTR_ADVISE_MR_FLAGS, s.input.below(3), 0);
    call.in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, list,
            s.input.one_in(8) ? s.input.below(sizeof list) : sizeof list);
    if (s.input.one_in(8)) call.last()->data = s.address();
    call.run(s.device());
}

void alloc_dm(Session& s) {
    std::uint64_t start = 0;
    std::uint16_t page = 0;
    Call call(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    call.add(UVERBS_ATTR_ALLOC_DM_HANDLE, 0, 0);
    call.add(UVERBS_ATTR_ALLOC_DM_LENGTH,
             s.input.one_in(8) ? s.input.value<std::uint64_t>() : s.input.below(5 * kPage), 8);
    call.add(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, s.input.below(14), 4);
    if (s.input.one_in(8)) call.add(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, s.input.below(3), 8);
    call.out(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &start, sizeof start);
    call.out(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &page, sizeof page);
    if (s.input.one_in(8)) call.last()->data = s.address();
    if (call.run(s.device())) return;
    s.add(Kind::kDm, static_cast<std::uint32_t>(call.data_of(UVERBS_ATTR_ALLOC_DM_HANDLE)));
    s.offsets.push_back((std::uint64_t{MLX5_IB_MMAP_DEVICE_MEM} << 8 | page) * kPage);
}

void reg_dm_mr(Session& s) {
    std::uint32_t keys[2];
    Call call(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
    call.add(UVERBS_ATTR_REG_DM_MR_HANDLE, 0, 0);
    call.add(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, s.handle(Kind::kPd), 0);
    call.add(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, s.handle(Kind::kDm), 0);
    call.add(UVERBS_ATTR_REG_DM_MR_OFFSET, s.input.one_in(8) ? s.address() : s.input.byte(), 8);
    call.add(UVERBS_ATTR_REG_DM_MR_LENGTH, s.input.one_in(8) ? s.length() : s.input.below(kPage),
             8);
    call.add(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, s.access() | IBV_ACCESS_ZERO_BASED, 4);
    call.out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &keys[0], sizeof keys[0]);
    call.out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &keys[1], sizeof keys[1]);
    if (s.input.one_in(8)) call.last()->data = s.address();
    if (call.run(s.device())) return;
    s.add(Kind::kMr, static_cast<std::uint32_t>(call.data_of(UVERBS_ATTR_REG_DM_MR_HANDLE)));
}

void dm_method(Session& s) {
    if (s.input.one_in(2)) return alloc_dm(s);
    if (s.input.one_in(2)) return reg_dm_mr(s);
    if (s.input.one_in(2)) {
        Call call(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE);
        call.add(UVERBS_ATTR_FREE_DM_HANDLE, s.handle(Kind::kDm), 0);
        call.run(s.device());
        return;
    }
    std::uint64_t start, length;
    std::uint16_t page;
    Call call(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY);
    call.add(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, s.handle(Kind::kDm), 0);
    call.out(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, &start, sizeof start);
    call.out(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, &page, sizeof page);
    call.out(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, &length, sizeof length);
    if (s.input.one_in(8)) call.last()->data = s.address();
    call.run(s.device());
}

// Any object, method and attributes; headers that do not fit them.
void odd_method(Session& s) {
    Call call(s.input.one_in(2) ? s.input.value<std::uint16_t>()
                                : static_cast<std::uint16_t>(s.input.below(24)),
              s.input.one_in(4) ? s.input.value<std::uint16_t>()
                                : static_cast<std::uint16_t>(s.input.below(16)));
    for (unsigned n = s.input.below(8); n; --n) {
        const auto id =
            static_cast<std::uint16_t>(s.input.byte() | (s.input.one_in(2) ? 0x1000 : 0));
        call.add(id, s.input.one_in(2) ? s.address() : s.input.byte(),
                 s.input.value<std::uint16_t>() & 0x1ff);
    }
    Call::Header header = call.header();
    if (s.input.one_in(4)) header.length = s.input.value<std::uint16_t>();
    if (s.input.one_in(4)) header.attributes = static_cast<std::uint16_t>(s.input.below(17));
    if (s.input.one_in(4)) header.length = static_cast<std::uint16_t>(24 + 16 * header.attributes);
    if (s.input.one_in(8)) header.reserved1 = s.input.byte();
    call.send(s.device(), header);
}

void odd_ioctl(Session& s) {
    const std::uint64_t at = s.address();
    uverbs::ioctl(s.input.one_in(2) ? s.device() : static_cast<int>(s.input.byte()),
                  s.input.one_in(2) ? RDMA_VERBS_IOCTL : s.input.word(),
                  reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)));
}

void map(Session& s) {
    std::uint64_t offset;
    switch (s.input.below(4)) {
        case 0:
            offset = s.input.value<std::uint64_t>();
            break;
        case 1:
            offset = (s.input.below(8) << 8 | s.input.byte()) * kPage;
            break;
        case 2:
            offset = (s.input.below(8) << 8 | s.input.byte() | s.input.below(4) << 16) * kPage;
            break;
        default:
            offset = s.offsets.empty() ? 0 : s.offsets[s.input.byte() % s.offsets.size()];
            if (s.input.one_in(4))
                offset += std::uint64_t{s.input.byte()} << (12 + s.input.below(52));
    }
    const std::size_t length = s.input.one_in(8)   ? s.input.value<std::uint16_t>()
                               : s.input.one_in(8) ? kPage * s.input.below(6)
                                                   : kPage;
    const int protection = s.input.one_in(4)   ? static_cast<int>(s.input.below(8))
                           : s.input.one_in(2) ? PROT_READ
                                               : PROT_WRITE;
    const int flags = s.input.one_in(8) ? MAP_PRIVATE : MAP_SHARED;
    void* at =
        uverbs::map(s.device(), nullptr, length, protection, flags, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return;
    s.mappings.push_back({static_cast<std::byte*>(at), length, (protection & PROT_WRITE) != 0});
}

void unmap(Session& s) {
    if (s.mappings.empty()) return;
    const std::size_t n = s.input.byte() % s.mappings.size();
    const Session::Mapping gone = s.mappings[n];
    munmap(gone.at, gone.length);
    s.mappings.erase(s.mappings.begin() + static_cast<std::ptrdiff_t>(n));
}

void ring(Session& s) {
    if (s.mappings.empty()) return;
    const Session::Mapping& page = s.mappings[s.input.byte() % s.mappings.size()];
    if (!page.writable) return;
    auto* at = reinterpret_cast<std::uint64_t*>(
        page.at + s.input.pick<std::size_t>({0x800, 0x900, 0x20, 0xff0}));
    at[0] = htobe64(s.input.one_in(2) ? std::uint64_t{s.qp_number()} << 8
                                      : s.input.value<std::uint64_t>());
    at[1] = s.input.byte();
    softhca_doorbell(at);
}

void one_operation(Session& s) {
    switch (s.input.below(32)) {
        case 0:
            return uar_method(s);
        case 1:
            return mr_method(s);
        case 2:
            return odd_method(s);
        case 3:
            return odd_ioctl(s);
        case 4:
            return map(s);
        case 5:
            return unmap(s);
        case 6:
            return ring(s);
        case 7:
            return s.close_one();
        case 8:
            return s.open_one();
        case 9:
            return s.duplicate();
        case 10:
            return s.scribble();
        case 11:
            return s.replace_pages();
        case 12:
            return s.damage_user_object();
        case 13:
            return s.call_user_object();
        case 14:
        case 15:
            return bring_up(s);
        case 16:
            return s.close_channel();
        case 17:
            return dm_method(s);
        case 18:
            return devx_method(s);
        default:
            return any_command(s);
    }
}

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
    softhca::fuzz::use_own_fabric("uverbs", *arguments);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace softhca::fuzz;
    Input input(data, size);
    Session s(input);
    // most inputs are about what comes after these
    if (!input.one_in(16)) command(s, IB_USER_VERBS_CMD_GET_CONTEXT, false);
    if (!input.one_in(8)) command(s, IB_USER_VERBS_CMD_ALLOC_PD, false);
    for (unsigned n = 0; n < kMostOperations && !input.empty(); ++n) {
        one_operation(s);
        s.check_counts();
    }
    s.close_all();
    return 0;
}
