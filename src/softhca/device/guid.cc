// SPDX-License-Identifier: BSD-2-Clause
#include "softhca/device/guid.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "softhca/base/libc.h"

// Computes the device's GUID: see guid.h.
namespace softhca::device {
namespace {

// FNV-1a, and a finalizer that lets each bit of the text change the low 40 bits.
class Hash {
public:
    void add(std::string_view text) noexcept {
        for (const char c : text)
            add_byte(static_cast<unsigned char>(c));
        add_byte(0);  // so two texts differ from their concatenation
    }
    void add(std::uint64_t number) noexcept {
        for (unsigned shift = 0; shift < 64; shift += 8)
            add_byte(static_cast<unsigned char>(number >> shift));
    }
    std::uint64_t value() const noexcept {
        std::uint64_t mixed = state_;
        mixed = (mixed ^ mixed >> 33) * 0xff51'afd7'ed55'8ccdULL;
        mixed = (mixed ^ mixed >> 33) * 0xc4ce'b9fe'1a85'ec53ULL;
        return mixed ^ mixed >> 33;
    }

private:
    void add_byte(unsigned char byte) noexcept { state_ = (state_ ^ byte) * 0x100'0000'01b3ULL; }
    std::uint64_t state_ = 0xcbf2'9ce4'8422'2325ULL;
};

}  // namespace

std::uint64_t node_guid(std::string_view fabric, std::uint64_t filesystem) noexcept {
    Hash hash;
    hash.add(fabric);
    hash.add(geteuid());
    hash.add(filesystem);  // containers may share a boot_id, but each has its own /dev/shm
    utsname host{};
    if (uname(&host) == 0) hash.add(host.nodename);
    const int fd = libc::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        char text[64];
        const ssize_t n = libc::read(fd, text, sizeof text);
        if (n > 0) hash.add({text, static_cast<std::size_t>(n)});
        libc::close(fd);
    }
    return kGuidPrefix | (hash.value() & 0xff'ffff'ffffULL);
}

}  // namespace softhca::device
