// SPDX-License-Identifier: BSD-2-Clause
// What one input of uverbs_fuzz has made so far: see uverbs_session.h.
#include "uverbs_session.h"

#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "softhca/device/fabric.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/uverbs/uverbs.h"

namespace softhca::fuzz {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kLowDescriptors = 600;  // softhca's own are above

// The application's end of an object, as libibverbs lays it out. In memory of its own: what
// commands write elsewhere must not turn it into something that only looks valid.
struct UserObject {
    ibv_context context;
    ibv_cq_ex cq;
    ibv_qp_ex qp;
};
constexpr std::size_t kUserObjects = 4;

int post_send(ibv_qp*, ibv_send_wr* list, ibv_send_wr** bad) {
    if (list->wr_id & 1) {
        *bad = list;
        return ENOMEM;
    }
    return 0;
}
int post_receive(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) { return 0; }
int post_shared(ibv_srq*, ibv_recv_wr*, ibv_recv_wr**) { return 0; }
int poll(ibv_cq*, int, ibv_wc*) { return 0; }
int request_notify(ibv_cq*, int) { return 0; }
int start_poll(ibv_cq_ex*, ibv_poll_cq_attr*) { return ENOENT; }
void wr_start(ibv_qp_ex*) {}
int wr_complete(ibv_qp_ex*) { return 0; }

// Memory of the process for commands to name, made once.
struct Memory {
    struct Range {
        std::byte* at;
        std::size_t length;
    };
    Range plain, large, read_only, shared, file;
    UserObject* users;     // kUserObjects of them
    std::byte* users_end;  // where the inaccessible page begins
    std::byte* hole;       // not accessible
    int plain_file;

    Memory() {
        const auto make = [](std::size_t length, int protection, int flags, int fd = -1) {
            return Range{guarded_pages(length, protection, flags, fd), length};
        };
        plain_file = memfd_create("fuzz", MFD_CLOEXEC);
        if (plain_file < 0 || ftruncate(plain_file, 4 * kPage) != 0) fail("no memory file");
        constexpr int kBoth = PROT_READ | PROT_WRITE;
        plain = make(16 * kPage, kBoth, MAP_PRIVATE | MAP_ANONYMOUS);
        large = make(64 * kPage, kBoth, MAP_PRIVATE | MAP_ANONYMOUS);
        read_only = make(2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS);
        shared = make(4 * kPage, kBoth, MAP_SHARED | MAP_ANONYMOUS);
        file = make(4 * kPage, kBoth, MAP_SHARED, plain_file);
        hole = guarded_pages(kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS);
        const std::size_t length = (kUserObjects * sizeof(UserObject) + kPage - 1) / kPage * kPage;
        std::byte* at = guarded_pages(length, kBoth, MAP_PRIVATE | MAP_ANONYMOUS);
        users = reinterpret_cast<UserObject*>(at);
        users_end = at + length;
    }
};
Memory& memory() {
    static Memory* memory = new Memory;
    return *memory;
}

void fill_user_object(UserObject& user, int fd) {
    std::memset(static_cast<void*>(&user), 0, sizeof user);
    user.context.cmd_fd = fd;
    user.context.ops.post_send = post_send;
    user.context.ops.post_recv = post_receive;
    user.context.ops.post_srq_recv = post_shared;
    user.context.ops.poll_cq = poll;
    user.context.ops.req_notify_cq = request_notify;
    user.cq.context = &user.context;
    user.cq.start_poll = start_poll;
    user.qp.qp_base.context = &user.context;
    user.qp.qp_base.state = IBV_QPS_RTS;
    user.qp.wr_start = wr_start;
    user.qp.wr_complete = wr_complete;
}

std::size_t descriptors() {
    DIR* list = opendir("/proc/self/fd");
    if (!list) fail("cannot list /proc/self/fd");
    std::size_t count = 0;
    while (readdir(list))
        ++count;
    closedir(list);
    return count;
}

template <class Function>
void for_each_table(device::Segment& segment, Function&& function) {
    function("context", segment.contexts);
    function("PD", segment.pds);
    function("channel", segment.channels);
    function("XRC domain", segment.xrcds);
    function("XRC domain handle", segment.xrcd_handles);
    function("UAR page", segment.uars);
    function("CQ", segment.cqs);
    function("SRQ", segment.srqs);
    function("QP", segment.qps);
    function("MR", segment.mrs);
    function("DM", segment.dms);
    function("MW", segment.mws);
    function("indirect key", segment.mkeys);
}

// Event channels are pipes, and the only ones that come and go. When a context is closed, the
// application still has the descriptors of its channels, and has to close them.
bool is_channel(int fd) {
    static const std::vector<bool>* before = nullptr;  // pipes that were there at the beginning
    const auto pipe = [](int n) {
        struct stat status;
        return fstat(n, &status) == 0 && S_ISFIFO(status.st_mode);
    };
    if (!before) {
        auto* found = new std::vector<bool>(kLowDescriptors);
        for (int n = 0; n < kLowDescriptors; ++n)
            (*found)[static_cast<std::size_t>(n)] = pipe(n);
        before = found;
    }
    return fd >= 0 && fd < kLowDescriptors && !(*before)[static_cast<std::size_t>(fd)] && pipe(fd);
}

void close_descriptor(int fd) {
    uverbs::closing(fd);
    close(fd);
}

}  // namespace

Session::Session(Input& in) : input(in) {
    const Memory& m = memory();
    is_channel(-1);
    for (const Memory::Range& part : {m.plain, m.large, m.shared, m.file})
        std::memset(part.at, 0, part.length);
    open_one();
    // so that an input means the same each time
    for_each_table(device::Fabric::current()->segment(),
                   [](const char*, auto& table) { table.cursor = 0; });
    for (std::size_t i = 0; i < kUserObjects; ++i)
        fill_user_object(m.users[i], devices_[0]);
}

int Session::device() {
    if (devices_.empty()) return -1;
    const std::uint8_t choice = devices_.size() > 1 ? input.byte() : 0;
    return devices_[choice % devices_.size()];
}

void Session::add(Kind kind, std::uint32_t value, std::uint8_t type) {
    handles[static_cast<std::size_t>(kind)].push_back({value, type});
}

std::uint32_t Session::handle(Kind kind, std::uint8_t* type) {
    const auto& known = handles[static_cast<std::size_t>(kind)];
    const std::uint8_t choice = input.byte();
    if (choice >= 250 || known.empty()) return choice & 1 ? input.word() : input.byte();
    const Handle& one = known[known.size() - 1 - choice % known.size()];
    if (type) *type = one.type;
    return one.value;
}

std::uint32_t Session::qp_number() {
    const std::uint8_t choice = input.byte();
    if (choice >= 250 || qp_numbers.empty()) return input.word();
    return qp_numbers[choice % qp_numbers.size()];
}

std::int32_t Session::channel() {
    const auto& known = handles[static_cast<std::size_t>(Kind::kChannel)];
    const std::uint8_t choice = input.byte();
    if (choice < 100 || known.empty()) return choice & 1 ? -1 : static_cast<std::int32_t>(choice);
    return static_cast<std::int32_t>(known[choice % known.size()].value);
}

int Session::plain_file() { return memory().plain_file; }

std::uint64_t Session::address() {
    const Memory& m = memory();
    const std::uint8_t choice = input.byte();
    const Memory::Range parts[] = {m.plain, m.plain,     m.large,  m.large,
                                   m.large, m.read_only, m.shared, m.file};
    const Memory::Range& part = parts[choice & 7];
    const auto at = reinterpret_cast<std::uintptr_t>(part.at);
    switch (choice >> 4) {
        case 15:
            return 0;
        case 14:
            return input.pick<std::uint64_t>({1, 8, kPage, ~7ull, ~0ull, ~0ull - kPage + 1,
                                              1ull << 47, (1ull << 47) - kPage, 1ull << 63});
        case 13:
            return reinterpret_cast<std::uintptr_t>(m.hole) + input.byte();
        case 12:
            return at + part.length - input.byte();
        case 11:
            return at + input.value<std::uint16_t>() % part.length;
        case 10:
        case 9:
        case 8:
            return at + ((input.value<std::uint16_t>() % part.length) & ~std::uint64_t{63});
        default:
            return at + input.byte() % (part.length / kPage) * kPage;
    }
}

std::uint64_t Session::length() {
    switch (input.below(8)) {
        case 0:
            return input.pick<std::uint64_t>(
                {0, 1, kPage - 1, ~0ull, ~0ull - kPage, 1ull << 62, 1ull << 47, 1ull << 30});
        case 1:
            return input.value<std::uint16_t>() * std::uint64_t{16};
        case 2:
            return input.value<std::uint16_t>();
        default:
            return (input.below(8) + 1) * kPage;
    }
}

std::uint32_t Session::access() {
    constexpr std::uint32_t kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    switch (input.below(8)) {
        case 0:
            return input.word();
        case 1:
            return kAll | IBV_ACCESS_ON_DEMAND;
        case 2:
            return 0;
        case 3:
            return input.byte();
        default:
            return kAll;
    }
}

std::uint64_t Session::user_handle() {
    const Memory& m = memory();
    const std::uint8_t choice = input.byte();
    UserObject& user = m.users[choice % kUserObjects];
    switch (choice >> 5) {
        case 0:
            return 0;
        case 1:
        case 2:
            return address();
        case 3:
            return reinterpret_cast<std::uintptr_t>(&user.context);
        // the end of the mapping cuts the object off; only the pointer to the context is inside
        case 4: {
            ibv_context* context = &user.context;
            std::byte* at = m.users_end - 8 * (1 + choice % 8);
            std::memcpy(at, &context, sizeof context);
            return reinterpret_cast<std::uintptr_t>(at);
        }
        case 5:
            return reinterpret_cast<std::uintptr_t>(&user.cq);
        default:
            return reinterpret_cast<std::uintptr_t>(&user.qp);
    }
}

void Session::open_one() {
    if (devices_.size() >= 3) return;
    const int fd = uverbs::open_device(0);
    if (fd < 0) fail("cannot open the device: errno %d", errno);
    if (!uverbs::owns(fd)) fail("descriptor %d is not known to be a device", fd);
    devices_.push_back(fd);
}

void Session::close_one() {
    if (devices_.empty()) return;
    const std::size_t n = input.byte() % devices_.size();
    close_descriptor(devices_[n]);
    devices_.erase(devices_.begin() + static_cast<std::ptrdiff_t>(n));
    if (devices_.empty()) open_one();
}

void Session::duplicate() {
    if (devices_.empty() || devices_.size() >= 3) return;
    const int copy = dup(devices_[input.byte() % devices_.size()]);
    if (copy < 0) return;
    if (input.one_in(2) && !uverbs::adopt(copy)) fail("a duplicate is not known to be one");
    devices_.push_back(copy);
}

void Session::close_channel() {
    auto& known = handles[static_cast<std::size_t>(Kind::kChannel)];
    if (known.empty()) return;
    const std::size_t n = input.byte() % known.size();
    const int fd = static_cast<int>(known[n].value);
    if (is_channel(fd)) close_descriptor(fd);
    known.erase(known.begin() + static_cast<std::ptrdiff_t>(n));
}

void Session::scribble() {
    const Memory& m = memory();
    const Memory::Range part = input.pick({m.plain, m.large, m.shared, m.file});
    const std::size_t at = input.value<std::uint16_t>() % (part.length - 64);
    input.bytes(part.at + at, 1 + input.below(64));
}

void Session::replace_pages() {
    const Memory& m = memory();
    const Memory::Range part = input.pick({m.plain, m.large});
    std::byte* at = part.at + input.byte() % (part.length / kPage) * kPage;
    if (mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        at)
        fail("cannot replace a page");
}

// Between two commands an application may free what it gave to the first.
void Session::damage_user_object() {
    UserObject& user = memory().users[input.byte() % kUserObjects];
    auto* elsewhere = reinterpret_cast<ibv_context*>(static_cast<std::uintptr_t>(address()));
    switch (input.below(4)) {
        case 0:
            user.qp.qp_base.context = elsewhere;
            break;
        case 1:
            user.cq.context = elsewhere;
            break;
        case 2:
            user.context.cmd_fd = static_cast<int>(input.byte());
            break;
        default:
            fill_user_object(user, device());
    }
}

void Session::call_user_object() {
    UserObject& user = memory().users[input.byte() % kUserObjects];
    user.qp.qp_base.qp_num = qp_number();
    user.cq.handle = handle(Kind::kCq);
    switch (input.below(6)) {
        case 0: {
            ibv_sge sge{0, input.byte(), 0};
            ibv_send_wr second{}, first{};
            first.next = &second;
            first.wr_id = input.byte();
            first.sg_list = second.sg_list = &sge;
            first.num_sge = second.num_sge = 1;
            first.opcode = static_cast<ibv_wr_opcode>(input.below(8));
            first.send_flags = input.byte();
            if (input.one_in(2)) first.next = nullptr;
            ibv_send_wr* bad = nullptr;
            user.context.ops.post_send(&user.qp.qp_base, &first, &bad);
            break;
        }
        case 1: {
            ibv_recv_wr list{};
            ibv_recv_wr* bad = nullptr;
            user.context.ops.post_recv(&user.qp.qp_base, &list, &bad);
            break;
        }
        case 2: {
            ibv_wc completion;
            user.context.ops.poll_cq(ibv_cq_ex_to_cq(&user.cq), 1, &completion);
            break;
        }
        case 3:
            user.context.ops.req_notify_cq(ibv_cq_ex_to_cq(&user.cq), 0);
            break;
        default:
            user.qp.wr_start(&user.qp);
            user.qp.wr_complete(&user.qp);
    }
}

void Session::check_counts() {
    device::Fabric* fabric = device::Fabric::current();
    if (!fabric) fail("the process has left the fabric");
    const auto check = [](const char* what, std::uint32_t index, std::uint32_t users) {
        if (users > 1u << 24) fail("%s %u has %d users", what, index, static_cast<int>(users));
    };
    device::Segment& s = fabric->segment();
    const auto each = [&](const char* what, auto& table) {
        for (std::uint32_t i = 0; i < table.high.load(); ++i)
            if (table[i].head.live()) check(what, i, table[i].users.load());
    };
    each("PD", s.pds);
    each("CQ", s.cqs);
    each("SRQ", s.srqs);
    each("XRC domain handle", s.xrcd_handles);
    each("DM", s.dms);
    for (std::uint32_t i = 0; i < s.uars.high.load(); ++i)
        for (const auto& users : s.uars[i].users)
            if (s.uars[i].head.live()) check("UAR page", i, users.load());
}

void Session::close_all() {
    for (const Mapping& mapping : mappings)
        munmap(mapping.at, mapping.length);
    // also those whose number was lost because the answer could not be written
    const bool channels_first = !input.one_in(2);
    std::vector<int> channels;
    for (int fd = 0; fd < kLowDescriptors; ++fd)
        if (is_channel(fd)) channels.push_back(fd);
    if (channels_first)
        for (const int fd : channels)
            close_descriptor(fd);
    for (const int fd : devices_)
        close_descriptor(fd);
    if (!channels_first)
        for (const int fd : channels)
            close_descriptor(fd);
    device::Fabric* fabric = device::Fabric::current();
    for_each_table(fabric->segment(), [](const char* what, auto& table) {
        if (const std::uint32_t left = table.in_use.load()) fail("%u %ss are left", left, what);
    });
    const device::MulticastGroups& groups = fabric->segment().multicast;
    for (std::uint32_t i = 0; i < groups.high.load(); ++i)
        for (const auto& member : groups.members[i])
            if (member.load() != 0) fail("a QP is left in a multicast group");
    const device::memory::SharingCounters sharing = device::memory::sharing_counters();
    if (sharing.shared_bytes != sharing.idle_bytes)
        fail("%llu bytes are still shared",
             static_cast<unsigned long long>(sharing.shared_bytes - sharing.idle_bytes));
    if (const std::uint64_t bytes = fabric->self().shared_bytes.load())
        fail("%llu registered bytes are left", static_cast<unsigned long long>(bytes));
    if (const std::uint64_t pages = fabric->self().pinned_pages.load())
        fail("%llu pinned pages are left", static_cast<unsigned long long>(pages));
    static std::size_t usual = 0;
    const std::size_t now = descriptors();
    if (!usual) {
        usual = now + 8;  // some are opened when they are needed for the first time
        count_threads_as_own();
    }
    if (now > usual) fail("%zu descriptors are open, %zu more than usual", now, now - usual);
}

}  // namespace softhca::fuzz
