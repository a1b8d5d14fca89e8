// SPDX-License-Identifier: BSD-2-Clause
// Machine files (TOML): the values of the model's parameters, each with its unit, its source and
// the range that is plausible.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

#include "predict/machine.h"

namespace heddle::predict {

struct MachineFileError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct MachineFile {
    struct Origin {
        std::string source;
        double low = 0, high = 0;
    };
    std::string name;           // "ConnectX-4 EDR, 16 cores of a 2.5 GHz Haswell"
    std::uint32_t threads = 0;  // that the values were fitted with at most
    std::uint32_t bytes = 0;    // the payload of the messages that they were fitted with
    bool is_measured = false;   // on this host, by `heddle calibrate --machine`
    Machine machine;
    // How far measured rates were from predicted ones, for workloads that are alike in what their
    // threads share. At least eight of ten held-out points lie within [low, high] times the model.
    struct Interval {
        double low = 1, high = 1;
        std::uint32_t points = 0;
    };
    std::map<std::string, Interval, std::less<>> intervals;  // by kind; none: never validated
    std::map<std::string, Origin, std::less<>> origins;      // of all parameters
};

// `where` names the text in errors.
// @throw MachineFileError with the line, if it is no TOML, lacks a parameter or has one that does
//   not exist, or a value is no number, negative or outside of its range
MachineFile parse_machine(std::string_view text, const std::string& where);
// @throw MachineFileError also if the file cannot be read
MachineFile read_machine(const std::string& path);
std::string to_toml(const MachineFile& file);

// The machine of ICPADS'18: ConnectX-4 EDR and 16 cores of a Haswell socket, by revision 3.
const MachineFile& connectx4_haswell();

}  // namespace heddle::predict
