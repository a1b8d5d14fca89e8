// SPDX-License-Identifier: BSD-2-Clause
// The table of traits, and the parser of a trait list.
#include "softhca/base/device_traits.h"

#include <charconv>

#include "softhca/base/assert.h"

namespace softhca {

namespace {

// In the order of DeviceTrait. docs/reference/softhca.md describes each trait.
constexpr DeviceTraitDeclaration kTraits[] = {
    {DeviceTrait::kNoAtomics, "no-atomics", false,
     "the device has no atomic operations and refuses queue pairs that allow them"},
    {DeviceTrait::kNoXrc, "no-xrc", false, "the device has no XRC"},
    {DeviceTrait::kNoDc, "no-dc", false, "the device has no DC transport"},
    {DeviceTrait::kNoDevx, "no-devx", false,
     "the device takes no firmware commands (DEVX), so it has no indirect memory keys"},
    {DeviceTrait::kNoRoceV1, "no-roce-v1", false,
     "an Ethernet port has no RoCE v1 GIDs, so that the first entry of its table is empty"},
    {DeviceTrait::kReuseNumbers, "reuse-numbers", true,
     "a new queue pair or SRQ gets the number of one that was destroyed"},
    {DeviceTrait::kPinned, "pinned", true,
     "a registration keeps the pages it was made with, whatever is mapped there later"},
    {DeviceTrait::kArm, "arm", true,
     "a CQ ignores an arm whose sequence number differs from its number of events so far"},
    {DeviceTrait::kSharedUuar, "shared-uuar", true,
     "a QP fails if it writes a uUAR that another thread writes under another lock"},
    {DeviceTrait::kNoBlueFlame, "no-blueflame", false,
     "the device has no BlueFlame: all QPs ring one non-cached register"},
    {DeviceTrait::kPackets, "packets", true,
     "a message arrives in packets of the path MTU, with pauses between them"},
    {DeviceTrait::kReorder, "reorder", true,
     "the last packet of a message is in memory before the others"},
    {DeviceTrait::kNoThreadDomains, "no-thread-domains", false,
     "a thread domain gets no register of its own, as with kernels before 4.16"},
    {DeviceTrait::kFewSges, "few-sges", false,
     "a work request has at most 4 scatter/gather entries"},
    {DeviceTrait::kSmallInline, "small-inline", false,
     "a work queue entry has at most 256 bytes, which leaves about 100 for inline data"},
    {DeviceTrait::kNoCopyOnFork, "no-copy-on-fork", false,
     "fork takes registered pages from the parent, as with kernels before 5.12, except those "
     "under MADV_DONTFORK"},
    {DeviceTrait::kNoUserfaultfd, "no-userfaultfd", false,
     "userfaultfd is refused (EPERM), as in a container with a seccomp filter"},
    {DeviceTrait::kAtomicBytes, "atomic-bytes", true,
     "the completion of an atomic operation does not report a byte count"},
    {DeviceTrait::kRnrTimers, "rnr-timers", true,
     "a sender that found no receive waits for its RNR timer, whatever is posted meanwhile"},
};

constexpr bool in_order() noexcept {
    unsigned place = 0;
    for (const DeviceTraitDeclaration& each : kTraits)
        if (static_cast<unsigned>(each.trait) != place++) return false;
    return true;
}
static_assert(in_order(), "the table is in the order of the enumeration");
static_assert(std::size(kTraits) == static_cast<std::size_t>(DeviceTrait::kRnrTimers) + 1,
              "each trait is declared");
static_assert(std::size(kTraits) <= 32, "DeviceTraits has one bit for each trait");

// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
std::uint64_t mixed(std::uint64_t value) noexcept {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

bool read_number(std::string_view text, std::uint64_t* number) noexcept {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc{} && end == text.data() + text.size();
}

bool read_word(std::string_view word, DeviceTraits* traits) noexcept {
    const auto choose = [traits](auto&& wanted) {
        for (const DeviceTraitDeclaration& each : kTraits)
            traits->set(each.trait, wanted(each));
    };
    std::uint64_t number = 0;
    if (word == "kind") {
        choose([](const DeviceTraitDeclaration&) { return false; });
        return true;
    }
    if (word == "strict") {
        choose([](const DeviceTraitDeclaration& each) { return each.strict; });
        return true;
    }
    if (word.starts_with("seed:")) {
        if (!read_number(word.substr(5), &number)) return false;
        traits->set_seed(number);
        return true;
    }
    if (word.starts_with("random:")) {
        if (!read_number(word.substr(7), &number)) return false;
        const std::uint64_t choice = mixed(number);
        choose([choice](const DeviceTraitDeclaration& each) {
            return each.strict && (choice >> static_cast<unsigned>(each.trait) & 1) != 0;
        });
        traits->set_seed(number);
        return true;
    }
    SOFTHCA_ASSERT(traits != nullptr);
    const bool on = !word.starts_with('-');
    if (!on) word.remove_prefix(1);
    for (const DeviceTraitDeclaration& each : kTraits) {
        if (word != each.word) continue;
        traits->set(each.trait, on);
        return true;
    }
    return false;
}

}  // namespace

std::span<const DeviceTraitDeclaration> device_trait_declarations() noexcept { return kTraits; }

bool read_device_traits(std::string_view text, DeviceTraits* traits) noexcept {
    SOFTHCA_ASSERT(traits != nullptr);
    DeviceTraits read;
    while (true) {
        const std::size_t comma = text.find(',');
        if (!read_word(text.substr(0, comma), &read)) return false;
        if (comma == std::string_view::npos) break;
        SOFTHCA_ASSERT(comma < text.size());
        text.remove_prefix(comma + 1);
    }
    *traits = read;
    return true;
}

}  // namespace softhca
