// SPDX-License-Identifier: BSD-2-Clause
// Possible values of the provider's options are accepted. All others change nothing.
#include "provider/options.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace heddle::provider {
namespace {

const OptionDeclaration& declaration(const std::string& name) {
    for (const OptionDeclaration& each : option_declarations())
        if (each.name == name) return each;
    throw std::invalid_argument(name);
}

TEST(ProviderOptions, ThatAreNotPossibleChangeNothing) {
    Options options;
    std::string message;
    ASSERT_TRUE(apply_option(declaration("stats"), "/tmp/counts.json", options, message));
    EXPECT_FALSE(apply_option(declaration("stats"), "json", options, message));
    EXPECT_EQ(options.stats, Stats::kFile);
    EXPECT_EQ(options.stats_file, "/tmp/counts.json");
    EXPECT_NE(message.find("FI_HEDDLE_STATS='json'"), std::string::npos) << message;
}

}  // namespace
}  // namespace heddle::provider
