// SPDX-License-Identifier: BSD-2-Clause
// Processor lists and masks in the kernel's formats (lib/bitmap.c: "%*pbl", "%*pb").
#include "softhca/device/tree_host.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "softhca/base/assert.h"
#include "softhca/base/libc.h"
#include "softhca/base/options.h"

namespace softhca::device {

namespace {

constexpr unsigned kMostProcessors = 1U << 16;

std::string first_line(const char* path) {
    const int fd = libc::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return {};
    }
    char text[4096];
    const ssize_t size = libc::read(fd, text, sizeof text);
    libc::close(fd);
    const std::string_view whole(text, size > 0 ? static_cast<std::size_t>(size) : 0);
    return std::string(whole.substr(0, whole.find('\n')));
}

struct Range {
    unsigned first, last;
};

bool take_number(std::string_view& text, unsigned* out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    if (error != std::errc{} || *out >= kMostProcessors) {
        return false;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

// Parses a list such as "0-3,8". Returns false for anything else.
bool parse_list(std::string_view list, std::vector<Range>* out) {
    while (!list.empty()) {
        Range range{};
        if (!take_number(list, &range.first)) {
            return false;
        }
        range.last = range.first;
        if (!list.empty() && list.front() == '-') {
            list.remove_prefix(1);
            if (!take_number(list, &range.last) || range.last < range.first) {
                return false;
            }
        }
        out->push_back(range);
        if (list.empty()) {
            return true;
        }
        if (list.front() != ',' || list.size() == 1) {
            return false;
        }
        list.remove_prefix(1);
    }
    return false;
}

unsigned last_of(std::string_view list) {
    std::vector<Range> ranges;
    unsigned last = 0;
    if (parse_list(list, &ranges)) {
        for (const Range& range : ranges) {
            last = std::max(last, range.last);
        }
    }
    return last;
}

// How many processors the kernel's masks have room for.
unsigned most_processors(std::string_view online) {
    return std::max(last_of(online), last_of(first_line("/sys/devices/system/cpu/possible"))) + 1;
}

// The host's NUMA nodes, in order.
std::vector<int> host_nodes() {
    std::vector<Range> ranges;
    std::vector<int> nodes;
    if (parse_list(first_line("/sys/devices/system/node/online"), &ranges))
        for (const Range& range : ranges)
            for (unsigned node = range.first; node <= range.last; ++node)
                nodes.push_back(static_cast<int>(node));
    return nodes;
}

int node_of(unsigned device, unsigned devices, int single) {
    const Options& wanted = options();
    if (wanted.numa_count != 0) return wanted.numa[device % wanted.numa_count];
    if (devices == 1) return single;
    const std::vector<int> nodes = host_nodes();
    return nodes.empty() ? -1 : nodes[device % nodes.size()];
}

}  // namespace

std::string processor_mask(std::string_view list, unsigned processors) {
    std::vector<Range> ranges;
    if (!parse_list(list, &ranges)) {
        return {};
    }
    std::vector<std::uint32_t> words((processors + 31) / 32);
    for (const Range& range : ranges) {
        for (unsigned i = range.first; i <= range.last && i < processors; ++i) {
            words[i / 32] |= 1U << (i % 32);
        }
    }
    std::string mask;
    for (std::size_t word = words.size(); word-- > 0;) {
        // The most significant word has only as many digits as its bits need.
        const bool top = word + 1 == words.size();
        const unsigned bits = top ? processors - 32 * static_cast<unsigned>(word) : 32;
        SOFTHCA_ASSERT(bits >= 1 && bits <= 32);
        char text[16];
        std::snprintf(text, sizeof text, "%s%0*x", top ? "" : ",", static_cast<int>((bits + 3) / 4),
                      words[word]);
        mask += text;
    }
    return mask;
}

std::string host_interface() {
    const int fd = libc::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {};
    ifreq requests[64];
    ifconf list{};
    list.ifc_len = sizeof requests;
    list.ifc_req = requests;
    std::string found;
    if (libc::ioctl(fd, SIOCGIFCONF, &list) == 0) {
        bool is_loopback = false;
        for (std::size_t i = 0; i < static_cast<std::size_t>(list.ifc_len) / sizeof(ifreq); ++i) {
            ifreq flags = requests[i];
            if (libc::ioctl(fd, SIOCGIFFLAGS, &flags) != 0 || (flags.ifr_flags & IFF_UP) == 0)
                continue;
            if (!found.empty() && !is_loopback) break;
            is_loopback = (flags.ifr_flags & IFF_LOOPBACK) != 0;
            if (found.empty() || !is_loopback)
                found.assign(flags.ifr_name, ::strnlen(flags.ifr_name, sizeof flags.ifr_name));
        }
    }
    libc::close(fd);
    return found;
}

HostProcessors host_processors() {
    HostProcessors host;
    host.online_list = first_line("/sys/devices/system/cpu/online");
    unsigned processors = most_processors(host.online_list);
    host.online_mask = processor_mask(host.online_list, processors);
    if (host.online_mask.empty()) {
        const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
        processors = online > 0 ? static_cast<unsigned>(online) : 1;
        host.online_list = processors == 1 ? "0" : "0-" + std::to_string(processors - 1);
        host.online_mask = processor_mask(host.online_list, processors);
    }
    // If the machine has one NUMA node, the device is on it. Otherwise it is near to none in
    // particular.
    host.numa_node = first_line("/sys/devices/system/node/online") == "0" ? 0 : -1;
    return host;
}

HostProcessors processors_near(unsigned device, unsigned devices) {
    HostProcessors near = host_processors();
    near.numa_node = node_of(device, devices, near.numa_node);
    if (near.numa_node < 0 || (devices == 1 && options().numa_count == 0)) return near;
    const std::string folder = "/sys/devices/system/node/node" + std::to_string(near.numa_node);
    const std::string list = first_line((folder + "/cpulist").c_str());
    const std::string mask = processor_mask(list, most_processors(near.online_list));
    if (list.empty() || mask.empty()) return near;
    near.online_list = list;
    near.online_mask = mask;
    return near;
}

}  // namespace softhca::device
