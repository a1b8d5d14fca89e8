// SPDX-License-Identifier: BSD-2-Clause
// System calls on registered memory. To the program the memory is what it is without the device:
// each call is made on registered memory and on memory that no device knows, and then both must
// look the same, also in a forked child, after stores, and after the registration has ended.
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "plot.h"
#include "verbs_fixture.h"

namespace softhca::test {
namespace {

// Advice of Linux 5.18 and 6.13.
constexpr int kDontneedLocked = 24, kGuardInstall = 102, kGuardRemove = 103;

struct PageView {
    std::string access;  // as in /proc/self/maps; empty if nothing is mapped
    bool readable = false;
    std::vector<std::uint8_t> content;
    bool operator==(const PageView&) const = default;
};

std::ostream& operator<<(std::ostream& out, const PageView& view) {
    out << '[' << view.access << (view.readable ? "" : " unreadable");
    if (view.readable)
        out << ' ' << unsigned{view.content[0]} << " .. " << unsigned{view.content[kPage - 1]};
    return out << ']';
}

std::vector<PageView> look(const std::uint8_t* at, std::size_t pages) {
    std::vector<PageView> views(pages);
    std::ifstream maps("/proc/self/maps");
    const auto first = reinterpret_cast<std::uintptr_t>(at);
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        std::uintptr_t start, end;
        char dash;
        std::string access;
        words >> std::hex >> start >> dash >> end >> access;
        for (std::size_t i = 0; i < pages; ++i)
            if (first + i * kPage >= start && first + i * kPage < end)
                views[i].access = access.substr(0, 3);
    }
    for (std::size_t i = 0; i < pages; ++i) {
        PageView& view = views[i];
        view.content.resize(kPage);
        iovec local{view.content.data(), kPage};
        iovec remote{const_cast<std::uint8_t*>(at) + i * kPage, kPage};
        view.readable = !view.access.empty() && view.access[0] == 'r' &&
                        process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == kPage;
        if (!view.readable) view.content.clear();
    }
    return views;
}

// What a call says, with an address told from where the memory was.
struct Answer {
    bool failed = false;
    int error = 0;
    std::uint8_t* at = nullptr;  // where the memory is afterwards
    std::size_t pages = kPages + 4;
    bool any_content = false;  // the kernel may have discarded the pages, or will
};

Answer answer_of(long result) { return {result != 0, result != 0 ? errno : 0}; }
Answer answer_of(void* result, std::size_t pages) {
    const bool failed = result == MAP_FAILED;
    return {failed, failed ? errno : 0, failed ? nullptr : static_cast<std::uint8_t*>(result),
            pages};
}
Answer after_free(long result) {
    Answer answer = answer_of(result);
    answer.any_content = true;
    return answer;
}

struct Call {
    const char* name;
    Answer (*make)(const Plot&);
};

const Call kCalls[] = {
    {"DontneedAll",
     [](const Plot& m) { return answer_of(madvise(m.data(), kBytes, MADV_DONTNEED)); }},
    {"DontneedSome",
     [](const Plot& m) { return answer_of(madvise(m.page(3), 4 * kPage, MADV_DONTNEED)); }},
    {"DontneedOddLength",
     [](const Plot& m) { return answer_of(madvise(m.page(3), 2 * kPage + 5, MADV_DONTNEED)); }},
    {"DontneedOddAddress",
     [](const Plot& m) { return answer_of(madvise(m.page(3) + 8, kPage, MADV_DONTNEED)); }},
    {"DontneedNothing",
     [](const Plot& m) { return answer_of(madvise(m.page(3), 0, MADV_DONTNEED)); }},
    {"DontneedTooMuch",
     [](const Plot& m) { return answer_of(madvise(m.page(3), ~std::size_t{0}, MADV_DONTNEED)); }},
    {"DontneedAcrossAHole",
     [](const Plot& m) {
         munmap(m.page(4), kPage);
         return answer_of(madvise(m.page(2), 6 * kPage, MADV_DONTNEED));
     }},
    {"DontneedOfLocked",
     [](const Plot& m) {
         mlock(m.page(4), 2 * kPage);
         return answer_of(madvise(m.page(4), 2 * kPage, MADV_DONTNEED));
     }},
    {"DontneedLocked",
     [](const Plot& m) {
         mlock(m.page(4), 2 * kPage);
         return answer_of(madvise(m.page(4), 2 * kPage, kDontneedLocked));
     }},
    {"Free", [](const Plot& m) { return after_free(madvise(m.page(2), 6 * kPage, MADV_FREE)); }},
    {"FreeOddAddress",
     [](const Plot& m) { return answer_of(madvise(m.page(2) + 8, kPage, MADV_FREE)); }},
    {"Remove", [](const Plot& m) { return answer_of(madvise(m.page(2), kPage, MADV_REMOVE)); }},
    {"Guard",
     [](const Plot& m) {
         const Answer answer = answer_of(madvise(m.page(2), 2 * kPage, kGuardInstall));
         madvise(m.page(2), 2 * kPage, kGuardRemove);
         return answer;
     }},
    {"Populate", [](const Plot& m) { return answer_of(madvise(m.data(), kBytes, 23)); }},
    {"UnknownAdvice", [](const Plot& m) { return answer_of(madvise(m.data(), kBytes, 12345)); }},
    {"Dofork", [](const Plot& m) { return answer_of(madvise(m.data(), kBytes, MADV_DOFORK)); }},
    {"MmapOver",
     [](const Plot& m) {
         return answer_of(mmap(m.page(2), 5 * kPage, kReadWrite, kPrivate | MAP_FIXED, -1, 0), 5);
     }},
    {"MunmapSome", [](const Plot& m) { return answer_of(munmap(m.page(2), 5 * kPage)); }},
    {"MunmapAndMmap",
     [](const Plot& m) {
         munmap(m.data(), kBytes);
         return answer_of(mmap(m.data(), kBytes, kReadWrite, kPrivate | MAP_FIXED, -1, 0), kPages);
     }},
    {"Decommit",  // as allocators do it
     [](const Plot& m) {
         (void)mmap(m.page(2), 5 * kPage, PROT_NONE, kPrivate | MAP_FIXED | MAP_NORESERVE, -1, 0);
         return answer_of(mprotect(m.page(3), 3 * kPage, kReadWrite));
     }},
    {"MprotectNone",
     [](const Plot& m) { return answer_of(mprotect(m.page(2), 5 * kPage, PROT_NONE)); }},
    {"MprotectRead",
     [](const Plot& m) { return answer_of(mprotect(m.page(2), 5 * kPage, PROT_READ)); }},
    {"MprotectAndBack",
     [](const Plot& m) {
         mprotect(m.data(), kBytes, PROT_NONE);
         return answer_of(mprotect(m.data(), kBytes, kReadWrite));
     }},
    {"GrowInPlace",
     [](const Plot& m) {
         m.open_behind();
         return answer_of(mremap(m.data(), kBytes, kBytes + 3 * kPage, 0), kPages + 3);
     }},
    {"GrowInPlaceTwice",
     [](const Plot& m) {
         m.open_behind();
         mremap(m.data(), kBytes, kBytes + kPage, MREMAP_MAYMOVE);
         return answer_of(mremap(m.data(), kBytes + kPage, kBytes + 3 * kPage, MREMAP_MAYMOVE),
                          kPages + 3);
     }},
    {"GrowAPage",
     [](const Plot& m) {
         munmap(m.page(1), kBytes - kPage);
         m.page(0)[5] = 77;
         return answer_of(mremap(m.page(0), kPage, 3 * kPage, 0), 3);
     }},
    {"GrowWithoutRoom",
     [](const Plot& m) { return answer_of(mremap(m.data(), kBytes, 2 * kBytes, 0), 0); }},
    {"GrowElsewhere",
     [](const Plot& m) {
         return answer_of(mremap(m.data(), kBytes, 2 * kBytes, MREMAP_MAYMOVE), 2 * kPages);
     }},
    {"GrowTheMiddleElsewhere",
     [](const Plot& m) {
         return answer_of(mremap(m.page(4), 4 * kPage, 6 * kPage, MREMAP_MAYMOVE), 6);
     }},
    {"GrowTo",
     [](const Plot& m) {
         return answer_of(
             mremap(m.data(), kBytes, 2 * kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.elsewhere()),
             2 * kPages);
     }},
    {"Shrink", [](const Plot& m) { return answer_of(mremap(m.data(), kBytes, 5 * kPage, 0), 5); }},
    {"ShrinkTo",
     [](const Plot& m) {
         return answer_of(
             mremap(m.data(), kBytes, 5 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, m.elsewhere()), 5);
     }},
    {"MoveTo",
     [](const Plot& m) {
         return answer_of(
             mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.elsewhere()),
             kPages);
     }},
    {"MoveTwoMappings",  // possible since Linux 6.17
     [](const Plot& m) {
         mprotect(m.page(5), kBytes - 5 * kPage, PROT_READ);
         return answer_of(
             mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.elsewhere()),
             kPages);
     }},
    {"MoveAndLeaveAnywhere",
     [](const Plot& m) {
         return answer_of(
             mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr), kPages);
     }},
    {"MoveThereAndBack",
     [](const Plot& m) {
         mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.elsewhere());
         m.elsewhere()[kPage] = 99;
         return answer_of(
             mremap(m.elsewhere(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.data()),
             kPages);
     }},
    {"MoveOverItself",
     [](const Plot& m) {
         return answer_of(
             mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.page(2)), 0);
     }},
    {"MoveToOddAddress",
     [](const Plot& m) {
         return answer_of(
             mremap(m.data(), kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m.elsewhere() + 8), 0);
     }},
    {"MoveAndLeave",
     [](const Plot& m) {
         return answer_of(mremap(m.data(), kBytes, kBytes,
                                 MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, m.elsewhere()),
                          kPages);
     }},
    {"MapTwice",
     [](const Plot& m) { return answer_of(mremap(m.data(), 0, kBytes, MREMAP_MAYMOVE), 0); }},
    {"ToNothing",
     [](const Plot& m) { return answer_of(mremap(m.data(), kBytes, 0, MREMAP_MAYMOVE), 0); }},
    {"GrowAcrossAHole",
     [](const Plot& m) {
         munmap(m.page(4), kPage);
         return answer_of(mremap(m.data(), kBytes, 2 * kBytes, MREMAP_MAYMOVE), 0);
     }},
    {"GrowBeyondTheEnd",
     [](const Plot& m) {
         return answer_of(mremap(m.page(8), kBytes, 2 * kBytes, MREMAP_MAYMOVE), 0);
     }},
    {"GrowLocked",
     [](const Plot& m) {
         mlock(m.data(), kBytes);
         return answer_of(mremap(m.data(), kBytes, kBytes + 2 * kPage, MREMAP_MAYMOVE), kPages + 2);
     }},
    {"UnknownFlag",
     [](const Plot& m) { return answer_of(mremap(m.data(), kBytes, 2 * kBytes, 0x800), 0); }},
};

// Which pages of the memory are registered.
struct Registered {
    const char* name;
    std::size_t first, count;
};
const Registered kRegistered[] = {{"Whole", 0, kPages}, {"Middle", 3, 4}, {"FirstPage", 0, 1}};

class MemoryCalls : public testing::TestWithParam<std::tuple<Call, Registered>> {
protected:
    static void expect_same(const Plot& known, const Answer& of_known, const Plot& plain,
                            const Answer& of_plain, const char* when) {
        SCOPED_TRACE(when);
        EXPECT_EQ(look(known.data(), kPages + 4), look(plain.data(), kPages + 4)) << "in place";
        if (of_known.at != nullptr && of_plain.at != nullptr) {
            EXPECT_EQ(look(of_known.at, of_known.pages), look(of_plain.at, of_plain.pages))
                << "where it is now";
        }
    }
    // In all pages that can be written, at the old place and the new one.
    static void store(const Plot& memory, const Answer& answer, std::uint8_t value) {
        const auto each = [value](std::uint8_t* at, std::size_t pages) {
            const auto views = look(at, pages);
            for (std::size_t i = 0; i < pages; ++i)
                if (views[i].access.starts_with("rw"))
                    memset(at + i * kPage, value + static_cast<int>(i), kPage / 2);
        };
        each(memory.data(), kPages + 4);
        if (answer.at != nullptr && answer.at != memory.data()) each(answer.at, answer.pages);
    }
};

TEST_P(MemoryCalls, LookAsOnPlainMemory) {
    const auto& [call, registered] = GetParam();
    const auto context = open_device();
    const std::unique_ptr<ibv_pd, Destroy> pd(check(ibv_alloc_pd(context.get()), "ibv_alloc_pd"));
    const Plot plain, known;
    Owned<ibv_mr> region(check(
        ibv_reg_mr(pd.get(), known.page(registered.first), registered.count * kPage, kAllAccess),
        "ibv_reg_mr"));
    const Answer of_plain = call.make(plain);
    const Answer of_known = call.make(known);
    EXPECT_EQ(of_known.failed, of_plain.failed) << std::strerror(of_known.error);
    EXPECT_EQ(of_known.error, of_plain.error)
        << std::strerror(of_known.error) << " and not " << std::strerror(of_plain.error);
    EXPECT_EQ(of_known.at == known.data(), of_plain.at == plain.data());
    if (!of_plain.any_content) expect_same(known, of_known, plain, of_plain, "after the call");
    store(plain, of_plain, 20);
    store(known, of_known, 20);
    if (of_plain.any_content)
        for (std::size_t i = 0; i < kPages; ++i)
            memset(plain.page(i) + kPage / 2, 0, kPage / 2),
                memset(known.page(i) + kPage / 2, 0, kPage / 2);
    expect_same(known, of_known, plain, of_plain, "after stores");
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        expect_same(known, of_known, plain, of_plain, "in a child");
        store(plain, of_plain, 60);
        store(known, of_known, 60);
        expect_same(known, of_known, plain, of_plain, "after stores of the child");
        std::fflush(nullptr);
        _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    expect_same(known, of_known, plain, of_plain, "after a child");
    region.reset();
    expect_same(known, of_known, plain, of_plain, "after the registration");
    store(plain, of_plain, 40);
    store(known, of_known, 40);
    expect_same(known, of_known, plain, of_plain, "after more stores");
    for (const Plot* memory : {&plain, &known}) {
        munlock(memory->data(), kBytes);
        madvise(memory->data(), kBytes, MADV_DONTNEED);
        munmap(memory->page(kPages / 2), kPage);
    }
    expect_same(known, of_known, plain, of_plain, "when all is gone");
    if (of_plain.at != nullptr && of_plain.at != plain.data() && of_plain.pages > 0) {
        munmap(of_plain.at, of_plain.pages * kPage);
        munmap(of_known.at, of_known.pages * kPage);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Each, MemoryCalls, testing::Combine(testing::ValuesIn(kCalls), testing::ValuesIn(kRegistered)),
    [](const auto& info) {
        return std::string(std::get<0>(info.param).name) + "Of" + std::get<1>(info.param).name;
    });

}  // namespace
}  // namespace softhca::test
