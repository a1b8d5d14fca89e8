// SPDX-License-Identifier: BSD-2-Clause
// What `softhca stat` makes of a segment in which nothing can be trusted: the input writes the
// counts and objects of an otherwise empty one, and a snapshot is taken of it.
#include <sys/mman.h>

#include <cerrno>

#include "softhca/device/fabric.h"
#include "softhca/view/snapshot.h"
#include "support.h"

namespace softhca::fuzz {
namespace {

constexpr unsigned kMostOperations = 64;

// A fabric of our own, for the locks that tell who is alive.
const view::FabricFile& fabric_file() {
    static const std::unique_ptr<view::FabricFile> file = [] {
        if (!device::Fabric::attach()) fail("cannot join a fabric");
        return view::FabricFile::open(std::getenv("SOFTHCA_FABRIC"));
    }();
    if (!file) fail("the fabric is not there");
    return *file;
}

template <class T>
void damage(T& object, Input& input) {
    auto* bytes = reinterpret_cast<std::byte*>(&object);
    const std::uint32_t at = input.below(sizeof(T));
    input.bytes(bytes + at, std::min<std::size_t>(input.byte() % 64 + 1u, sizeof(T) - at));
}

template <class T, std::uint32_t N>
void damage_table(device::Table<T, N>& table, Input& input) {
    // all of a large table is a lot to read
    const std::uint32_t high = input.byte() == 255 ? input.word() : input.below(64);
    table.high.store(high);
    const std::uint32_t most = std::min({high, N, 64u});
    if (!most) return;
    T& item = table[input.byte() % most];
    input.bytes(&item, sizeof(device::ObjectHead));
    if (!input.one_in(4)) item.head.state.store(device::kLive);
    item.head.set_owner(item.head.owner() & (input.one_in(4) ? ~0u : 7u));
    item.head.context &= input.one_in(4) ? ~0u : 7u;
    damage(item, input);
}

void one_operation(device::Segment& s, Input& input) {
    switch (input.below(13)) {
        case 0:
            s.processes_high.store(input.one_in(4) ? input.word() : input.below(16));
            return;
        case 1: {
            device::Process& process = s.processes[input.below(8)];
            process.state.store(input.below(5));
            input.bytes(process.command, sizeof process.command);
            input.bytes(&process.pid, sizeof process.pid);
            return;
        }
        case 2:
            return damage_table(s.contexts, input);
        case 3:
            return damage_table(s.pds, input);
        case 4:
            return damage_table(s.channels, input);
        case 5:
            return damage_table(s.xrcd_handles, input);
        case 6:
            return damage_table(s.uars, input);
        case 7:
            return damage_table(s.cqs, input);
        case 8:
            return damage_table(s.srqs, input);
        case 9:
            return damage_table(s.qps, input);
        case 10:
            return damage_table(s.mrs, input);
        case 11:
            return damage_table(s.dms, input);
        default:
            s.created_ns = input.value<std::uint64_t>();
            return;
    }
}

}  // namespace
}  // namespace softhca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char*** arguments) {
    softhca::fuzz::use_own_fabric("snapshot", *arguments);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace softhca::fuzz;
    Input input(data, size);
    softhca::device::Segment& s = segment();
    s.processes_high.store(8);
    s.processes[0].state.store(softhca::device::kLive);
    for (unsigned n = 0; n < kMostOperations && !input.empty(); ++n)
        one_operation(s, input);
    const softhca::view::Snapshot snapshot = softhca::view::take_snapshot(fabric_file(), s);
    for (const softhca::view::ProcessUse& process : snapshot.processes)
        for (const char c : process.command)
            if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
                fail("a command's name holds the control character 0x%x", c);
    if (madvise(&s, sizeof s, MADV_DONTNEED) != 0) fail("cannot clear the segment");
    return 0;
}
