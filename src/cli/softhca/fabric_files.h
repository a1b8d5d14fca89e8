// SPDX-License-Identifier: BSD-2-Clause
// The fabrics of this user as files, looked at from outside: the command never joins a fabric to
// show it, so that what it shows is only what is there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softhca/device/segment.h"

namespace softhca::cli {

// The names of all fabrics of which something is left, in order. Throws CommandError if the
// directory is not to be trusted.
std::vector<std::string> fabric_names();

class FabricFile {
public:
    // nullptr if there is no such fabric. Throws CommandError if it is there but is not ours.
    static std::unique_ptr<FabricFile> open(const std::string& name);
    ~FabricFile();
    FabricFile(const FabricFile&) = delete;
    FabricFile& operator=(const FabricFile&) = delete;

    const std::string& name() const { return name_; }
    // Mapped for reading only; nullptr if another version of softhca made it.
    const device::Segment* segment() const { return segment_; }
    bool alive(std::uint32_t slot) const;
    // How many live processes use the fabric. Works for other versions too.
    unsigned live_processes() const;

private:
    FabricFile(std::string name, int fd, const device::Segment* segment)
        : name_(std::move(name)), fd_(fd), segment_(segment) {}
    std::string name_;
    int fd_;
    const device::Segment* segment_;
};

// Frees the objects of dead processes by joining the fabric for a moment. Throws CommandError.
void reclaim_dead(const std::string& name);

// Removes segment and tree, unless live processes use the fabric and `force` is not given: then
// false, and nothing was done. Throws CommandError if something cannot be removed.
bool remove_fabric(const std::string& name, bool force);

// Removes all fabrics of this user that no live process uses: those of killed jobs, as each process
// that ends by itself takes them away if it is the last. Never waits; what cannot be removed stays.
void remove_dead_fabrics();

}  // namespace softhca::cli
