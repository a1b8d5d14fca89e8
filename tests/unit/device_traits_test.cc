// SPDX-License-Identifier: BSD-2-Clause
// Which traits a list of words stands for.
#include "softhca/base/device_traits.h"

#include <string>

#include <gtest/gtest.h>

namespace softhca {
namespace {

DeviceTraits traits_of(std::string_view text) {
    DeviceTraits traits;
    EXPECT_TRUE(read_device_traits(text, &traits)) << text;
    return traits;
}

TEST(DeviceTraits, KindHasNone) {
    EXPECT_EQ(traits_of("kind"), DeviceTraits{});
    EXPECT_EQ(traits_of("strict,no-xrc,kind"), DeviceTraits{});
}

TEST(DeviceTraits, StrictHasWhatTheTableSays) {
    const DeviceTraits strict = traits_of("strict");
    for (const DeviceTraitDeclaration& each : device_trait_declarations())
        EXPECT_EQ(strict.has(each.trait), each.strict) << each.word;
}

TEST(DeviceTraits, EachByItselfAndTakenAway) {
    for (const DeviceTraitDeclaration& each : device_trait_declarations()) {
        const std::string word = each.word;
        const DeviceTraits one = traits_of(word);
        for (const DeviceTraitDeclaration& other : device_trait_declarations())
            EXPECT_EQ(one.has(other.trait), other.trait == each.trait) << word << other.word;
        EXPECT_FALSE(traits_of("strict," + word + ",-" + word).has(each.trait)) << word;
        EXPECT_NE(std::string(each.help), "");
    }
}

TEST(DeviceTraits, SeedsChooseAmongStrictOnes) {
    EXPECT_EQ(traits_of("random:7"), traits_of("random:7"));
    EXPECT_EQ(traits_of("random:7").seed(), 7U);
    EXPECT_EQ(traits_of("strict,seed:9").seed(), 9U);
    for (const DeviceTraitDeclaration& each : device_trait_declarations()) {
        unsigned with = 0;
        for (unsigned seed = 0; seed < 200; ++seed)
            with += traits_of("random:" + std::to_string(seed)).has(each.trait);
        if (each.strict) {
            EXPECT_GT(with, 60U) << each.word;
            EXPECT_LT(with, 140U) << each.word;
        } else {
            EXPECT_EQ(with, 0U) << each.word;
        }
    }
}

TEST(DeviceTraits, WrongWordsChangeNothing) {
    const DeviceTraits before = traits_of("no-xrc,seed:3");
    for (const char* text : {"", ",", "strict,", ",strict", "Strict", "harsh", "seed:", "seed:x",
                             "seed:1x", "random:", "random:-1", "-strict", "--no-xrc", "no-xrc "}) {
        DeviceTraits traits = before;
        EXPECT_FALSE(read_device_traits(text, &traits)) << '"' << text << '"';
        EXPECT_EQ(traits, before);
    }
}

}  // namespace
}  // namespace softhca
