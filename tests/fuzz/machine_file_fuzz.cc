// SPDX-License-Identifier: BSD-2-Clause
// Machine files and revisions of `heddle predict` with some bytes changed: each is refused with its
// name in the message, or holds what it says when it is written and read again.
#include <cmath>
#include <string>

#include "input.h"
#include "predict/embedded.h"
#include "predict/machine_file.h"
#include "predict/revision.h"

namespace {

using softhca::fuzz::fail;
using softhca::fuzz::Input;
using namespace heddle::predict;

// Bytes of the text are replaced, taken out and put in.
std::string changed(std::string_view original, Input& input) {
    std::string text(original);
    for (std::uint32_t n = input.below(8); n != 0 && !text.empty(); --n) {
        const std::size_t at = input.value<std::uint16_t>() % text.size();
        const std::size_t length = std::min<std::size_t>(input.below(24), text.size() - at);
        std::string by;
        for (std::uint32_t i = input.below(24); i != 0 && !input.empty(); --i)
            by += static_cast<char>(input.byte());
        text.replace(at, length, by);
    }
    return text;
}

void machine(const std::string& text) {
    try {
        const MachineFile file = parse_machine(text, "name");
        for (const Parameter& parameter : kParameters) {
            const double value = file.machine.*parameter.value;
            if (!std::isfinite(value) || value < parameter.least) fail("a value that cannot be");
        }
        if (file.threads == 0 || file.bytes == 0) fail("a machine of no threads or bytes");
        const std::string once = to_toml(file);
        if (to_toml(parse_machine(once, "again")) != once) fail("it is not read as it was written");
    } catch (const MachineFileError& error) {
        if (!std::string_view(error.what()).starts_with("name"))
            fail("what is written cannot be read, or an error without the file's name");
    }
}

void revision(const std::string& text) {
    try {
        const Revision read = parse_revision(text, "name");
        if (read.passes == 0 || read.passes > 100) fail("a number of passes that cannot be");
        for (const FitStep& step : read.steps)
            if (step.parameters.empty() || step.points.empty()) fail("a fit of nothing");
    } catch (const MachineFileError& error) {
        if (!std::string_view(error.what()).starts_with("name")) fail("an error without a name");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    switch (input.below(3)) {
        case 0:
            machine(changed(kConnectx4Haswell, input));
            break;
        case 1:
            revision(changed(kRevision3, input));
            break;
        default: {
            std::string text;
            while (!input.empty())
                text += static_cast<char>(input.byte());
            machine(text);
            revision(text);
        }
    }
    return 0;
}
