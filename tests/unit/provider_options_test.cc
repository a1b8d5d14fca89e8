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

TEST(ProviderOptions, OfPathsHaveTheRangesOfTheirFields) {
    Options options;
    std::string message;
    const auto takes = [&](const char* name, const char* text) {
        return apply_option(declaration(name), text, options, message);
    };
    EXPECT_TRUE(takes("pkey", "0x8001"));
    EXPECT_EQ(options.path.pkey, 0x8001);
    for (const char* text : {"0", "0x8000", "0x10000", "0x", "partition", "0x1 "})
        EXPECT_FALSE(takes("pkey", text)) << text;
    EXPECT_EQ(options.path.pkey, 0x8001);
    EXPECT_TRUE(takes("pkey", "auto"));
    EXPECT_EQ(options.path.pkey, 0);
    EXPECT_TRUE(takes("service_level", "15"));
    EXPECT_FALSE(takes("service_level", "16"));
    EXPECT_TRUE(takes("traffic_class", "104"));
    EXPECT_FALSE(takes("traffic_class", "256"));
    EXPECT_TRUE(takes("flow_label", "1048575"));
    EXPECT_FALSE(takes("flow_label", "1048576"));
    EXPECT_EQ(options.path.service_level, 15);
    EXPECT_EQ(options.path.traffic_class, 104);
    EXPECT_EQ(options.path.flow_label, 1048575u);
    EXPECT_TRUE(takes("device", "mlx5_0:2,rxe*"));
    EXPECT_FALSE(takes("device", "mlx5_0:none"));
    EXPECT_EQ(options.protocol.device, "mlx5_0:2,rxe*");
}

}  // namespace
}  // namespace heddle::provider
