// SPDX-License-Identifier: BSD-2-Clause
// What a process reads that is no message: options, files of what was measured on a host, and names
// that a program inserts into an address vector.
#include <string>
#include <vector>

#include "input.h"
#include "protocol/common/address_vector.h"
#include "protocol/reuse/post_costs.h"
#include "protocol/reuse/reuse_costs.h"
#include "provider/name_text.cc"
#include "provider/options.cc"

namespace {

using softhca::fuzz::fail;
using softhca::fuzz::Input;

std::string rest_of(Input& input) {
    std::string text;
    while (!input.empty() && text.size() < 20'000)
        text += static_cast<char>(input.byte());
    return text;
}

// A value is taken whole, or nothing changes and the message says what is possible.
void options(Input& input) {
    using namespace heddle::provider;
    const auto table = option_declarations();
    Options options;
    while (!input.empty()) {
        const OptionDeclaration& declaration = table[input.below(64) % table.size()];
        std::string value;
        for (std::uint32_t n = input.below(24); n != 0 && !input.empty(); --n)
            value += static_cast<char>(input.byte());
        const std::string file = options.stats_file, device = options.protocol.device;
        const Stats stats = options.stats;
        std::string message;
        if (apply_option(declaration, value, options, message)) {
            if (!message.empty()) fail("a complaint about what was taken");
        } else if (message.find(variable_of(declaration)) == std::string::npos) {
            fail("a complaint that names no variable");
        } else if (options.stats_file != file || options.protocol.device != device ||
                   options.stats != stats) {
            fail("a value that is not possible has changed something");
        }
        const heddle::protocol::Options& o = options.protocol;
        if (o.eager_bytes < 256 || o.eager_bytes > 1 << 20 || o.inline_bytes > 1024 ||
            o.receive_buffers < 16 || o.send_depth < 16 || o.send_depth > 8192 ||
            o.timeouts.connect_ms < 100 || o.tuples.queues > 4096 || o.reuse.speculation < 1 ||
            o.reuse.speculation > 100)
            fail("an option out of its range");
    }
}

void calibration(const std::string& text) {
    using namespace heddle::protocol;
    if (const auto costs = PostCosts::parse(text)) costs->direct_pays();
    if (const auto costs = ReuseCosts::parse(text))
        for (unsigned way = 0; way < ReuseCosts::kWays; ++way) {
            const auto kind = static_cast<ReuseCosts::Way>(way);
            costs->smallest(kind);
            for (std::size_t bytes = ReuseCosts::kSmallest; bytes < 4u << 20; bytes *= 2)
                if (costs->uses_for(bytes, kind, 25) < ReuseCosts::kFewestUses)
                    fail("a buffer that is used once is frequent");
            if (costs->fewest_uses(25) < ReuseCosts::kFewestUses) fail("too few uses");
        }
}

// What is found by a name is the lowest number that it was given and has not lost.
void names(Input& input) {
    using namespace heddle::protocol;
    AddressVector addresses;
    std::vector<EndpointAddress> given;
    std::vector<bool> there;
    while (!input.empty() && given.size() < 200) {
        if (input.one_in(4)) {
            const std::uint64_t number =
                input.one_in(8) ? input.value<std::uint64_t>() : input.below(64);
            const bool known = number < there.size() && there[number];
            if (addresses.remove(number) != known) fail("removed what is not there");
            if (known) there[number] = false;
        } else {
            EndpointAddress name;
            if (input.one_in(4)) {
                input.bytes(&name, sizeof name);
            } else {
                name.endpoint = static_cast<std::uint16_t>(input.below(4));
                name.process.nonce = input.below(2);
            }
            char text[heddle::provider::kNameText];
            if (heddle::provider::name_text(name, text) >= sizeof text) fail("a text cut off");
            if (addresses.insert(name) != given.size()) fail("numbers are not in order");
            given.push_back(name);
            there.push_back(true);
        }
        for (std::size_t i = 0; i < given.size(); ++i) {
            const EndpointAddress* const found = addresses.find(i);
            if ((found != nullptr) != there[i]) fail("number %zu", i);
            if (found != nullptr && *found != given[i]) fail("another name at %zu", i);
            std::uint64_t lowest = AddressVector::kNone;
            for (std::size_t k = given.size(); k-- != 0;)
                if (there[k] && given[k] == given[i]) lowest = k;
            if (addresses.find(given[i]) != lowest) fail("not the lowest number of a name");
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    switch (input.below(3)) {
        case 0:
            options(input);
            break;
        case 1:
            calibration(rest_of(input));
            break;
        default:
            names(input);
            break;
    }
    return 0;
}
