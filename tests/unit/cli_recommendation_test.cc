// SPDX-License-Identifier: BSD-2-Clause
// What `heddle compare` recommends, from runs that are made up.
#include "cli/heddle/compare_verdict.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/cli_job.h"

namespace heddle::cli {
namespace {

class Recommendation : public testing::Test {
protected:
    // The program takes so many times as long as plainly, in each of seven rounds.
    void add(const std::string& name, double ratio, double plain = 10) {
        CompareVariant variant;
        variant.name = name;
        variant.command = name + " ./program";
        for (int round = 0; round < 7; ++round)
            variant.seconds.push_back(ratio * (plain + 0.01 * round));
        runs.variants.push_back(variant);
    }
    bool says(const std::string& text) const {
        return recommendation(request, runs).find(text) != std::string::npos;
    }
    CompareRequest request;
    ComparedRuns runs;
};

TEST_F(Recommendation, IsTheFasterOne) {
    add("plain", 1);
    add("heddle run", 0.8);
    EXPECT_TRUE(says("Use heddle run ./program: it takes 0.80 times as long"));
    EXPECT_FALSE(says("runs are short"));
    EXPECT_FALSE(says("softhca"));
    add("heddle run --rndv auto", 0.5);
    EXPECT_TRUE(says("Use heddle run --rndv auto ./program: it takes 0.50 times as long"));
    runs.variants.back().failure = "ended with status 1";
    EXPECT_TRUE(says("\"heddle run --rndv auto\" failed: ended with status 1."));
    EXPECT_TRUE(says("Use heddle run ./program"));
}

TEST_F(Recommendation, SaysWhyThereIsNoGain) {
    add("plain", 1);
    add("heddle run", 1.2);
    EXPECT_TRUE(says("heddle does not help here: the program takes 1.20 times as long"));
    EXPECT_FALSE(says("because"));
    runs.profile = job_of(idle_process(1));
    EXPECT_TRUE(says("because the program sends no messages over heddle"));
    Json line = copying_process();
    runs.profile = job_of(line);  // 4000 messages in 10.03 seconds
    EXPECT_TRUE(says("a process sends only 399 messages a second"));
    line["unexpected"] = 3000;
    runs.profile = job_of(line);
    EXPECT_TRUE(says("75 % of the messages come before their receives are posted"));
    runs.software = true;
    EXPECT_TRUE(says("on softhca, a simulator"));
}

TEST_F(Recommendation, RunsThatAreShortSayLittle) {
    add("plain", 1, 0.5);
    add("heddle run", 0.8, 0.5);
    EXPECT_TRUE(says("The runs are short"));
}

TEST_F(Recommendation, NeedsBothToRun) {
    add("plain", 1);
    add("heddle run", 0.8);
    runs.variants[1].failure = "ended with status 1";
    EXPECT_TRUE(says("The program runs without heddle and fails over it"));
    runs.variants[0].failure = "ended with status 2";
    EXPECT_TRUE(says("The program fails without heddle, too"));
    runs.variants[1].failure.clear();
    EXPECT_TRUE(says("The program fails without heddle: there is nothing to compare with"));
}

TEST_F(Recommendation, NeedsRounds) {
    add("plain", 1);
    add("heddle run", 0.8);
    for (CompareVariant& variant : runs.variants)
        variant.seconds.resize(3);
    EXPECT_TRUE(says("Too few rounds for a conclusion"));
}

TEST_F(Recommendation, OfTheNullModelIsNoDifference) {
    request.null_model = true;
    add("plain", 1);
    add("plain", 1);
    EXPECT_TRUE(says("Null model: no difference"));
    runs.variants[1].seconds.assign(7, 20);
    EXPECT_TRUE(says("this machine is not steady enough"));
}

}  // namespace
}  // namespace heddle::cli
