// SPDX-License-Identifier: BSD-2-Clause
// The fabrics of this user as files, looked at from outside. A viewer never joins a fabric, so what
// it sees is only what is there. This library (softhca_view) has no code of the device: `heddle`
// links it, too.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "softhca/device/segment.h"

namespace softhca::view {

// A fabric that cannot be looked at; the message says why.
class FabricError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// The names of all fabrics of which something is left, in order. Throws FabricError if the
// directory could be another user's.
std::vector<std::string> fabric_names();

class FabricFile {
public:
    // nullptr if there is no such fabric. Throws FabricError if it is there but is not ours.
    static std::unique_ptr<FabricFile> open(const std::string& name);
    ~FabricFile();
    FabricFile(const FabricFile&) = delete;
    FabricFile& operator=(const FabricFile&) = delete;

    const std::string& name() const { return name_; }
    // Mapped for reading only; nullptr if another version of softhca made it.
    const device::Segment* segment() const { return segment_; }
    // Is there a process that holds this slot?
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

}  // namespace softhca::view
