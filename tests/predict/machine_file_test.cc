// SPDX-License-Identifier: BSD-2-Clause
// Machine files that are right, and what is said of those that are not.
#include <gmock/gmock.h>

#include <string>

#include "predict/embedded.h"
#include "predict/machine_file.h"
#include "predict/revision.h"

namespace heddle::predict {
namespace {

std::string shipped() { return std::string(kConnectx4Haswell); }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), by);
}

// The shipped file with another value, which its range has.
std::string with_value(const std::string& name, double value) {
    MachineFile file = connectx4_haswell();
    for (const Parameter& parameter : kParameters)
        if (parameter.name == name) file.machine.*parameter.value = value;
    file.origins.at(name).low = 0;
    return to_toml(file);
}

void expect_refused(const std::string& text, const std::string& said) {
    try {
        parse_machine(text, "my.toml");
        FAIL() << "nothing was said of " << said;
    } catch (const MachineFileError& error) {
        EXPECT_THAT(error.what(), testing::StartsWith("my.toml"));
        EXPECT_THAT(error.what(), testing::HasSubstr(said));
    }
}

TEST(PredictMachineFile, IsTheSameWhenItIsWrittenAndReadAgain) {
    const MachineFile& once = connectx4_haswell();
    const MachineFile again = parse_machine(to_toml(once), "again");
    EXPECT_EQ(again.name, once.name);
    EXPECT_EQ(again.threads, once.threads);
    EXPECT_EQ(to_toml(again), to_toml(once));
    for (const Parameter& parameter : kParameters)
        EXPECT_NEAR(again.machine.*parameter.value, once.machine.*parameter.value, 1e-3);
}

TEST(PredictMachineFile, EachValueHasASourceAndLiesInItsRange) {
    for (const Parameter& parameter : kParameters) {
        const MachineFile::Origin& origin =
            connectx4_haswell().origins.at(std::string(parameter.name));
        EXPECT_FALSE(origin.source.empty()) << parameter.name;
        EXPECT_LT(origin.low, origin.high) << parameter.name;
    }
}

TEST(PredictMachineFile, ErrorsNameTheLine) {
    expect_refused("schema = 1\nname = \"x\"\nthreads =\n", "my.toml:3: ");
    expect_refused(replaced(shipped(), "schema = 1", "schema = 2"),
                   "my.toml:1: 'schema' has to be 1");
    expect_refused(replaced(shipped(), "threads = 16", "threads = 1.5"),
                   "my.toml:3: 'threads' has to be a whole number from 1 to 1000000");
    expect_refused(replaced(shipped(), "value = 8\n", "value = 99\n"),
                   "parameter.atomic: 'value' is not between 'low' and 'high'");
    expect_refused(replaced(shipped(), "value = 8\n", "value = -8\n"),
                   "parameter.atomic: 'value' has to be a number >= 0");
    expect_refused(replaced(shipped(), "value = 8\n", "value = nan\n"), "has to be a number >= 0");
    expect_refused(replaced(shipped(), "value = 8\n", "value = \"8\"\n"), "has to be a number");
    expect_refused(replaced(shipped(), "unit = \"ns\"", "unit = \"us\""),
                   "'unit' has to be \"ns\"");
    expect_refused(replaced(shipped(), "[parameter.atomic]", "[parameter.atomics]"),
                   "the model has no parameter 'atomics'");
    expect_refused("schema = 1\nname = \"x\"\nthreads = 1\nbytes = 1\n",
                   "it has no table [parameter.NAME]");
    expect_refused("schema = 1\nthreads = 1\nbytes = 1\n", "it has no 'name'");
    expect_refused("[[[", "my.toml: this is no TOML");
    expect_refused(replaced(shipped(), "[parameter.atomic]", "[other.atomic]"),
                   "it has no table [parameter.atomic]");
    expect_refused(replaced(shipped(), "value = 20\n", "value = 0\n"),
                   "parameter.empty_poll: 'value' is not between");
    expect_refused(with_value("post_call", 0), "parameter.post_call: 'value' has to be at least 1");
    expect_refused(with_value("fetch_group", 0.5), "'value' has to be at least 1");
    expect_refused(with_value("crowd", 2.5), "'value' has to be a whole number");
    expect_refused(shipped() + "\n[interval.x]\nlow = 2\nhigh = 1\npoints = 5\n",
                   "interval.x: 'low' is above 'high'");
}

TEST(PredictMachineFile, CharactersBeyondAsciiAreForCommentsAndStrings) {
    const auto refused = [](const std::string& text, int line) {
        expect_refused(text, "my.toml:" + std::to_string(line) +
                                 ": characters beyond ASCII are for comments and for strings");
    };
    refused("\u044b = 1\n", 1);
    refused("schema = 1\n\u00b5\n", 2);
    refused("schema = \"\"\"a\n\\ \u00b5\"\"\"\n", 1);
    refused("schema = \'\'\'a\'\'\'\'\u00b5\n", 1);
    refused("schema = \"a\\\"\"\u00b5\n", 1);
    refused("# \u00b5\n\u00b5\n", 2);
    const std::string named = replaced(shipped(), "name = '", "# \u00b5\nname = '\u00b5\"");
    EXPECT_TRUE(parse_machine(named, "my.toml").name.starts_with("\u00b5\""));
}

TEST(PredictMachineFile, AMissingFile) {
    EXPECT_THAT([] { read_machine("/nowhere/machine.toml"); },
                testing::ThrowsMessage<MachineFileError>(
                    testing::HasSubstr("cannot read '/nowhere/machine.toml'")));
}

TEST(PredictRevision, AParameterIsSetOrFittedOnce) {
    const std::string text(kRevision3);
    const auto said = [](const std::string& changed) {
        try {
            parse_revision(changed, "r.toml");
        } catch (const MachineFileError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(said(text), "");
    EXPECT_THAT(said(replaced(text, "[set.atomic]", "[other.atomic]")),
                testing::HasSubstr("'atomic' is neither set nor fitted"));
    EXPECT_THAT(said(text + "\n[[fit]]\nparameters = [\"atomic\"]\npoints = [[\"3\", \"All\", "
                            "\"1\"]]\nlow = 1\nhigh = 2\n"),
                testing::HasSubstr("'atomic' has two values"));
    EXPECT_THAT(said(text + "\n[[fit]]\nparameters = [\"atomic\"]\npoints = [[\"3\"]]\nlow = "
                            "1\nhigh = 2\n"),
                testing::HasSubstr("a point is [FIGURE, CURVE, X]"));
    EXPECT_THAT(said(replaced(text, "passes = 3", "passes = 0")),
                testing::HasSubstr("'passes' has to be from 1 to 100"));
}

}  // namespace
}  // namespace heddle::predict
