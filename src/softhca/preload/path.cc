// SPDX-License-Identifier: BSD-2-Clause
// The text part of path redirection: see path.h.
#include "softhca/preload/path.h"

#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/identity.h"

namespace softhca::preload {

namespace {

using std::literals::string_view_literals::operator""sv;

// The names of step 1. A path may be relative to any ancestor of ours, or to a directory inside the
// tree, where only the devices themselves still need us. The numbers of devices are left out.
constexpr std::string_view kClassName = "infiniband";  // /sys/class/..., /dev/infiniband
constexpr std::string_view kPciName = "5afc:00";       // /sys/devices, /sys/bus/pci/devices
constexpr std::string_view kNodeName = "uverbs";       // a device, inside the tree
constexpr std::string_view kManagerName = "rdma_cm";   // that of rdma_cm, inside the tree
constexpr std::string_view kNumberName = "231:19";     // /dev/char, /sys/dev/char

constexpr bool are_named_so() noexcept {
    for (unsigned i = 0; i < device::kMaxDevices; ++i)
        if (!device::pci_address(i).view().starts_with(kPciName) ||
            !device::char_device(i).view().starts_with(kNodeName) ||
            !device::char_number(i).view().starts_with(kNumberName))
            return false;
    return true;
}
static_assert(are_named_so());
static_assert(std::string_view(device::kPciDomainBus).ends_with(kPciName));
static_assert(kManagerName == device::kManagerDevice);

struct Rule {
    std::string_view path;
    enum { kSubtree, kPrefix, kExact } extent;
    Claim claim;
};

// The class is claimed by prefix. Otherwise infiniband_mad, infiniband_cm, ... of a host with
// hardware would appear beside our device without belonging to it.
constexpr Rule kRules[] = {
    {"/dev/infiniband/rdma_cm"sv, Rule::kExact, Claim::kManager},
    {"/sys/class/infiniband"sv, Rule::kPrefix, Claim::kTree},
    {"/dev/infiniband"sv, Rule::kSubtree, Claim::kTree},
    {"/sys/devices/pci5afc:00"sv, Rule::kSubtree, Claim::kTree},
};

// Paths that name a device. Its own entries come before the others, because they lie inside a
// subtree.
struct DeviceRule {
    std::string_view before;
    device::DeviceText (*name)(unsigned device) noexcept;
    bool is_subtree;
    Claim claim;
};
constexpr DeviceRule kDeviceRules[] = {
    {"/dev/infiniband/"sv, device::char_device, false, Claim::kDevice},
    {"/dev/char/"sv, device::char_number, false, Claim::kDeviceLink},
    {"/sys/bus/pci/devices/"sv, device::pci_address, true, Claim::kTree},
    {"/sys/bus/pci/drivers/mlx5_core/"sv, device::pci_address, true, Claim::kTree},
    {"/sys/dev/char/"sv, device::char_number, true, Claim::kTree},
};

Claim claim_of_device(std::string_view path, unsigned* number) noexcept {
    for (const DeviceRule& rule : kDeviceRules) {
        if (!path.starts_with(rule.before)) continue;
        const std::string_view name = path.substr(rule.before.size());
        for (unsigned i = 0; i < device::kMaxDevices; ++i) {
            const device::DeviceText text = rule.name(i);
            if (!name.starts_with(text.view())) continue;
            const std::string_view rest = name.substr(text.view().size());
            if (!rest.empty() && !(rule.is_subtree && rest.front() == '/')) continue;
            *number = i;
            return rule.claim;
        }
    }
    return Claim::kNone;
}

}  // namespace

bool PathBuffer::assign(std::string_view text) noexcept {
    clear();
    return append(text);
}

bool PathBuffer::append(std::string_view text) noexcept {
    SOFTHCA_ASSERT(length_ < sizeof text_);
    if (text.size() >= sizeof text_ - length_) {
        return false;
    }
    std::memcpy(text_ + length_, text.data(), text.size());
    set_length(length_ + text.size());
    return true;
}

bool PathBuffer::push(std::string_view segment) noexcept {
    SOFTHCA_ASSERT(length_ < sizeof text_);
    if (segment.size() + 1 >= sizeof text_ - length_) {
        return false;
    }
    text_[length_] = '/';
    std::memcpy(text_ + length_ + 1, segment.data(), segment.size());
    set_length(length_ + 1 + segment.size());
    return true;
}

void PathBuffer::pop() noexcept {
    const std::size_t slash = view().rfind('/');
    set_length(slash == std::string_view::npos ? 0 : slash);
}

void PathBuffer::set_length(std::size_t length) noexcept {
    SOFTHCA_ASSERT(length < sizeof text_);
    length_ = length;
    text_[length_] = '\0';
}

bool mentions_device(const char* path) noexcept {
    SOFTHCA_DEBUG_ASSERT(path != nullptr);
    const auto begins = [](const char* text, std::string_view name) {
        return std::strncmp(text, name.data(), name.size()) == 0;
    };
    for (; *path != '\0'; ++path) {
        switch (*path) {
            case kClassName[0]:
                if (begins(path, kClassName)) return true;
                break;
            case kPciName[0]:
                if (begins(path, kPciName)) return true;
                break;
            case kNodeName[0]:
                if (begins(path, kNodeName)) return true;
                break;
            case kManagerName[0]:
                if (begins(path, kManagerName)) return true;
                break;
            case kNumberName[0]:
                if (begins(path, kNumberName)) return true;
                break;
            default:
                break;
        }
    }
    return false;
}

bool has_parent_segment(const char* path) noexcept {
    for (const char* dots = std::strstr(path, ".."); dots != nullptr;
         dots = std::strstr(dots + 1, "..")) {
        const bool starts = dots == path || dots[-1] == '/';
        const bool ends = dots[2] == '\0' || dots[2] == '/';
        if (starts && ends) {
            return true;
        }
    }
    return false;
}

Claim claim_of(std::string_view path, unsigned* device) noexcept {
    SOFTHCA_DEBUG_ASSERT(path.empty() || path.front() == '/');
    if (const Claim claim = claim_of_device(path, device); claim != Claim::kNone) return claim;
    for (const Rule& rule : kRules) {
        if (!path.starts_with(rule.path)) {
            continue;
        }
        const std::string_view rest = path.substr(rule.path.size());
        if (rest.empty() || rule.extent == Rule::kPrefix ||
            (rule.extent == Rule::kSubtree && rest.front() == '/')) {
            return rule.claim;
        }
    }
    return Claim::kNone;
}

int walk(std::string_view base, const char* path, RealPath real, PathBuffer* out,
         Walk* walk) noexcept {
    SOFTHCA_ASSERT(path != nullptr && (path[0] == '/' || base.empty() || base.front() == '/'));
    *walk = Walk{};
    if (path[0] == '\0') {
        return ENOENT;
    }
    out->clear();
    if (path[0] != '/' && !out->assign(base == "/"sv ? ""sv : base)) {
        return ENAMETOOLONG;
    }

    std::string_view rest = path;
    while (!rest.empty()) {
        if (rest.front() == '/') {
            walk->trailing_slash = true;
            rest.remove_prefix(1);
            continue;
        }
        const std::string_view segment = rest.substr(0, rest.find('/'));
        SOFTHCA_ASSERT(!segment.empty());
        rest.remove_prefix(segment.size());
        if (segment == "."sv) {
            walk->trailing_slash = true;
        } else if (segment == ".."sv) {
            const bool ours = claim_of(out->view()) != Claim::kNone;
            walk->crossed_ours = walk->crossed_ours || ours;
            if (out->length() > 0 && !real(out)) {
                return EAGAIN;
            }
            out->pop();
            walk->trailing_slash = true;
        } else {
            walk->trailing_slash = false;
            if (!out->push(segment)) {
                return ENAMETOOLONG;
            }
        }
    }
    return 0;
}

}  // namespace softhca::preload
