// SPDX-License-Identifier: BSD-2-Clause
#include "tests/memory/fake_kernel.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <mutex>
#include <set>

namespace heddle::memory::test::fake_kernel {
namespace {

std::mutex mutex;                  // guards what follows
std::set<std::uintptr_t> watched;  // addresses of pages
int events = -1;  // where the kernel writes: the userfaultfd is the other end of a pipe
std::atomic<std::size_t> regions{0};

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int new_userfaultfd() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
    const std::scoped_lock lock(mutex);
    if (events >= 0) close(events);  // of a monitor that has only asked for features, or has ended
    events = ends[1];
    watched.clear();
    return ends[0];
}

template <class Each>
void for_pages(const uffdio_range& range, const Each& each) {
    const std::scoped_lock lock(mutex);
    for (std::uintptr_t page = range.start; page < range.start + range.len; page += kPage)
        each(page);
}

// A call that a userfaultfd answers. False: it is for the real kernel.
bool answer(unsigned long request, void* argument) {
    switch (request) {
        case UFFDIO_API:
            static_cast<uffdio_api*>(argument)->features =
                UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP |
                UFFD_FEATURE_PAGEFAULT_FLAG_WP;
            return true;
        case UFFDIO_REGISTER:
            for_pages(static_cast<uffdio_register*>(argument)->range,
                      [](std::uintptr_t page) { watched.insert(page); });
            return true;
        case UFFDIO_UNREGISTER:
            for_pages(*static_cast<uffdio_range*>(argument),
                      [](std::uintptr_t page) { watched.erase(page); });
            return true;
        case UFFDIO_WRITEPROTECT:
            return true;
        default:
            return false;
    }
}

std::size_t watched_pages(std::uintptr_t begin, std::uintptr_t end) {
    std::size_t found = 0;
    for (std::uintptr_t page = begin; page < end; page += kPage)
        found += watched.count(page);
    return found;
}

}  // namespace

bool watches_all(std::uintptr_t begin, std::uintptr_t end) {
    const std::scoped_lock lock(mutex);
    return watched_pages(begin, end) == (end - begin) / kPage;
}

bool watches_any(std::uintptr_t begin, std::uintptr_t end) {
    const std::scoped_lock lock(mutex);
    return watched_pages(begin, end) != 0;
}

bool report_unmap(std::uintptr_t begin, std::uintptr_t end) {
    const std::scoped_lock lock(mutex);
    if (watched_pages(begin, end) == 0) return false;
    uffd_msg message{};
    message.event = UFFD_EVENT_UNMAP;
    message.arg.remove.start = begin;
    message.arg.remove.end = end;
    return write(events, &message, sizeof message) == sizeof message;
}

std::size_t regions_of_device() { return regions; }

}  // namespace heddle::memory::test::fake_kernel

using namespace heddle::memory::test;

extern "C" long syscall(long number, ...) noexcept {
    if (number == SYS_userfaultfd) return fake_kernel::new_userfaultfd();
    static const auto real =
        fake_kernel::next<long(long, long, long, long, long, long, long)>("syscall");
    va_list list;
    va_start(list, number);
    long arguments[6];
    for (long& each : arguments)
        each = va_arg(list, long);
    va_end(list);
    return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                arguments[5]);
}

extern "C" int ioctl(int file, unsigned long request, ...) noexcept {
    va_list list;
    va_start(list, request);
    void* const argument = va_arg(list, void*);
    va_end(list);
    if (fake_kernel::answer(request, argument)) return 0;
    static const auto real = fake_kernel::next<int(int, unsigned long, void*)>("ioctl");
    return real(file, request, argument);
}

extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t, unsigned) {
    static std::atomic<std::uint32_t> keys{0};
    auto* const mr = new ibv_mr{};
    mr->pd = pd;
    mr->addr = address;
    mr->length = bytes;
    mr->lkey = mr->rkey = ++keys;
    ++fake_kernel::regions;
    return mr;
}

extern "C" int ibv_dereg_mr(ibv_mr* mr) {
    --fake_kernel::regions;
    delete mr;
    return 0;
}
