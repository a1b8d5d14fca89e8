// SPDX-License-Identifier: BSD-2-Clause
// The declared environment variables: values, defaults, and what is said of wrong ones.
#include "softhca/base/options.h"

#include <cstring>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::map<std::string, std::string> environment;

const char* look_up(const char* variable) {
    const auto found = environment.find(variable);
    return found == environment.end() ? nullptr : found->second.c_str();
}

struct Read {
    Options options;
    std::string message;
    unsigned wrong;
};

Read read(std::map<std::string, std::string> variables) {
    environment = std::move(variables);
    Read result;
    char message[512] = "untouched";
    result.wrong = read_options(look_up, &result.options, message, sizeof message);
    result.message = message;
    return result;
}

const OptionDeclaration& declaration(const std::string& variable) {
    for (const OptionDeclaration& each : option_declarations()) {
        if (each.variable == variable) {
            return each;
        }
    }
    ADD_FAILURE() << variable << " is not declared";
    return option_declarations().front();
}

TEST(Options, DefaultsWithoutVariables) {
    const Read all = read({});
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.message, "");
    EXPECT_EQ(all.options.uar, UarPolicy::kDynamic);
    EXPECT_EQ(all.options.engine, EnginePolicy::kHybrid);
    EXPECT_EQ(all.options.memory, MemoryPolicy::kAuto);
    EXPECT_EQ(all.options.memlock, MemlockPolicy::kIgnore);
    EXPECT_EQ(all.options.lost_peer, LostPeerPolicy::kSilent);
    EXPECT_EQ(all.options.port, PortPolicy::kInfiniBand);
    EXPECT_EQ(all.options.device, DeviceTraits{});
    EXPECT_EQ(all.options.log, LogLevel::kWarn);
    EXPECT_STREQ(all.options.fabric, "default");
    EXPECT_STREQ(all.options.directory, "");
    EXPECT_STREQ(all.options.log_file, "");
    EXPECT_STREQ(all.options.record, "");
    EXPECT_EQ(all.options.record_limit, kRecordLimit);
}

TEST(Options, EmptyIsUnset) {
    const Read all = read({{"SOFTHCA_UAR", ""}, {"SOFTHCA_FABRIC", ""}});
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_STREQ(all.options.fabric, "default");
}

TEST(Options, EveryChoice) {
    EXPECT_EQ(read({{"SOFTHCA_UAR", "static"}}).options.uar, UarPolicy::kStatic);
    EXPECT_EQ(read({{"SOFTHCA_UAR", "dynamic"}}).options.uar, UarPolicy::kDynamic);
    EXPECT_EQ(read({{"SOFTHCA_ENGINE", "hybrid"}}).options.engine, EnginePolicy::kHybrid);
    EXPECT_EQ(read({{"SOFTHCA_ENGINE", "inline"}}).options.engine, EnginePolicy::kInline);
    EXPECT_EQ(read({{"SOFTHCA_ENGINE", "thread"}}).options.engine, EnginePolicy::kThread);
    EXPECT_EQ(read({{"SOFTHCA_ENGINE", "dedicated"}}).options.engine, EnginePolicy::kDedicated);
    EXPECT_EQ(read({{"SOFTHCA_MEMORY", "cma"}}).options.memory, MemoryPolicy::kCma);
    EXPECT_EQ(read({{"SOFTHCA_MEMORY", "auto"}}).options.memory, MemoryPolicy::kAuto);
    EXPECT_EQ(read({{"SOFTHCA_MEMLOCK", "ignore"}}).options.memlock, MemlockPolicy::kIgnore);
    EXPECT_EQ(read({{"SOFTHCA_MEMLOCK", "enforce"}}).options.memlock, MemlockPolicy::kEnforce);
    EXPECT_EQ(read({{"SOFTHCA_LOST_PEER", "silent"}}).options.lost_peer, LostPeerPolicy::kSilent);
    EXPECT_EQ(read({{"SOFTHCA_LOST_PEER", "flush"}}).options.lost_peer, LostPeerPolicy::kFlush);
    EXPECT_EQ(read({{"SOFTHCA_LOG", "error"}}).options.log, LogLevel::kError);
    EXPECT_EQ(read({{"SOFTHCA_LOG", "warn"}}).options.log, LogLevel::kWarn);
    EXPECT_EQ(read({{"SOFTHCA_LOG", "info"}}).options.log, LogLevel::kInfo);
    EXPECT_EQ(read({{"SOFTHCA_LOG", "debug"}}).options.log, LogLevel::kDebug);
    EXPECT_EQ(read({{"SOFTHCA_LOG", "trace"}}).options.log, LogLevel::kTrace);
}

TEST(Options, WrongValueNamesEverythingAndKeepsTheDefault) {
    for (const char* value : {"sometimes", "Static", "static ", "s"}) {
        const Read all = read({{"SOFTHCA_UAR", value}, {"SOFTHCA_ENGINE", "thread"}});
        EXPECT_EQ(all.wrong, 1U) << value;
        EXPECT_THAT(all.message, AllOf(HasSubstr("SOFTHCA_UAR"), HasSubstr(value),
                                       HasSubstr("dynamic or static")));
        EXPECT_EQ(all.options.uar, UarPolicy::kDynamic);
        EXPECT_EQ(all.options.engine, EnginePolicy::kThread) << "the others are still read";
    }
}

TEST(Options, TheFirstWrongOneIsReported) {
    const Read all = read({{"SOFTHCA_ENGINE", "steam"}, {"SOFTHCA_MEMORY", "mercury"}});
    EXPECT_EQ(all.wrong, 2U);
    EXPECT_THAT(all.message, HasSubstr("steam"));
}

TEST(Options, FabricNames) {
    const std::string longest(64, 'n');
    for (const std::string& good : {std::string("a"), std::string("Az09._-"), longest,
                                    std::string("-x"), std::string("a..b")}) {
        const Read all = read({{"SOFTHCA_FABRIC", good}});
        EXPECT_EQ(all.wrong, 0U) << good;
        EXPECT_EQ(all.options.fabric, good);
    }
    for (const std::string& bad : {std::string(".hidden"), std::string(".."), std::string("a/b"),
                                   std::string("a b"), longest + "n", std::string("\xc3\xa9")}) {
        const Read all = read({{"SOFTHCA_FABRIC", bad}});
        EXPECT_EQ(all.wrong, 1U) << bad;
        EXPECT_STREQ(all.options.fabric, "default") << bad;
    }
}

TEST(Options, Directory) {
    EXPECT_STREQ(read({{"SOFTHCA_DIRECTORY", "/a b"}}).options.directory, "/a b");
    for (const std::string& bad : {std::string("here"), "/" + std::string(3800, 'x')}) {
        EXPECT_EQ(read({{"SOFTHCA_DIRECTORY", bad}}).wrong, 1U);
        EXPECT_STREQ(read({{"SOFTHCA_DIRECTORY", bad}}).options.directory, "");
    }
}

TEST(Options, LogFile) {
    EXPECT_STREQ(read({{"SOFTHCA_LOG_FILE", "/x/y.log"}}).options.log_file, "/x/y.log");
    const Read all = read({{"SOFTHCA_LOG_FILE", "/" + std::string(PATH_MAX, 'x')}});
    EXPECT_EQ(all.wrong, 1U);
    EXPECT_STREQ(all.options.log_file, "");
}

TEST(Options, LongMessagesAreCut) {
    char message[16];
    std::memset(message, '!', sizeof message);
    Options options;
    EXPECT_FALSE(apply_option(declaration("SOFTHCA_UAR"), std::string(10000, 'x'), &options,
                              message, sizeof message - 1));
    EXPECT_EQ(std::strlen(message), sizeof message - 2);
    EXPECT_EQ(message[sizeof message - 1], '!') << "written beyond the given size";
}

// Everything that is made from the table relies on these.
TEST(Options, Record) {
    EXPECT_STREQ(read({{"SOFTHCA_RECORD", "r/%p"}}).options.record, "r/%p");
    EXPECT_EQ(read({{"SOFTHCA_RECORD", std::string(4001, 'x')}}).wrong, 1U);
    EXPECT_EQ(read({{"SOFTHCA_RECORD_LIMIT", "1"}}).options.record_limit, 1U);
    EXPECT_EQ(read({{"SOFTHCA_RECORD_LIMIT", "1000000000"}}).options.record_limit, 1'000'000'000U);
    for (const char* value : {"0", "-1", "1000000001", "1k", " 1", "99999999999999999999"})
        EXPECT_EQ(read({{"SOFTHCA_RECORD_LIMIT", value}}).wrong, 1U) << value;
}

TEST(Options, DeclarationsAreComplete) {
    std::map<std::string, int> variables;
    std::map<std::string, int> flags;
    for (const OptionDeclaration& each : option_declarations()) {
        SCOPED_TRACE(each.variable);
        EXPECT_EQ(++variables[each.variable], 1);
        EXPECT_EQ(++flags[each.flag], 1);
        EXPECT_EQ(std::string(each.variable).rfind("SOFTHCA_", 0), 0U);
        EXPECT_GT(std::strlen(each.help), 0U);
        EXPECT_GT(std::strlen(each.possible), 0U);
        EXPECT_GT(std::strlen(each.metavar), 0U);
        Options options;
        char message[256];
        if (std::strlen(each.initial) > 0) {
            EXPECT_TRUE(apply_option(each, each.initial, &options, message, sizeof message));
            const Options defaults;
            EXPECT_EQ(std::memcmp(&options.uar, &defaults.uar, sizeof options.uar), 0);
            EXPECT_EQ(options.engine, defaults.engine);
            EXPECT_EQ(options.memory, defaults.memory);
            EXPECT_EQ(options.log, defaults.log);
            EXPECT_STREQ(options.fabric, defaults.fabric);
        }
        bool initial_among_values = each.values.empty();
        for (const char* value : each.values) {
            EXPECT_TRUE(apply_option(each, value, &options, message, sizeof message)) << value;
            EXPECT_THAT(each.possible, HasSubstr(value));
            initial_among_values = initial_among_values || std::strcmp(value, each.initial) == 0;
        }
        EXPECT_TRUE(initial_among_values);
    }
    EXPECT_EQ(variables.size(), 17U);
}

}  // namespace
}  // namespace softhca
