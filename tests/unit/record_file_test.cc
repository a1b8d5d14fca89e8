// SPDX-License-Identifier: BSD-2-Clause
// The lines of a run record, and its file: names, and what happens when it cannot grow.
#include "softhca/record/record_file.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <limits.h>
#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "softhca/record/numbering.h"
#include "softhca/record/record_path.h"
#include "softhca/record/run_length.h"
#include "softhca/record/text.h"

namespace softhca::record {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

std::string path_of(const std::string& file, const std::string& directory = "") {
    char path[PATH_MAX];
    return expand_path(file, directory, 42, path, sizeof path) ? path : "too long";
}

TEST(RecordPath, ThePidIsInTheName) {
    EXPECT_EQ(path_of("/a/record"), "/a/record.42");
    EXPECT_EQ(path_of("/a/%p/r-%p.jsonl"), "/a/42/r-42.jsonl");
    EXPECT_EQ(path_of("%p"), "42");
    EXPECT_EQ(path_of("100%"), "100%.42");
}

TEST(RecordPath, ARelativeNameBeginsInTheDirectory) {
    EXPECT_EQ(path_of("record", "/home"), "/home/record.42");
    EXPECT_EQ(path_of("/record", "/home"), "/record.42");
}

TEST(RecordPath, APathThatIsTooLongIsRefused) {
    EXPECT_EQ(path_of(std::string(PATH_MAX - 3, 'x')), "too long");
    EXPECT_EQ(path_of(std::string(PATH_MAX - 4, 'x')).size(), PATH_MAX - 1U);
    EXPECT_EQ(path_of(std::string(2000, 'x') + "%p", "/" + std::string(2093, 'y')), "too long");
}

class File : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/softhca-record-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::string path(const std::string& name) const { return folder_ + "/" + name; }
    static std::string text_of(const std::string& path) {
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }
    std::string folder_;
};
using RecordFileTest = File;

TEST_F(RecordFileTest, TheFirstAppendEmptiesTheFile) {
    std::ofstream(path("r")) << "of an earlier process";
    RecordFile file;
    file.name(path("r").c_str());
    EXPECT_TRUE(file.append("a\n", 2));
    EXPECT_TRUE(file.try_append("b\n", 2));
    EXPECT_EQ(text_of(path("r")), "a\nb\n");
}

TEST_F(RecordFileTest, AFailureIsSaidOnce) {
    RecordFile file;
    file.name(path("none/r").c_str());
    CaptureStderr();
    EXPECT_FALSE(file.append("a\n", 2));
    EXPECT_FALSE(file.append("b\n", 2));
    const std::string said = GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("the run record " + path("none/r") +
                                " cannot be written (No such file or directory): it ends here"));
    EXPECT_EQ(said.find("run record"), said.rfind("run record"));
}

TEST_F(RecordFileTest, ALinkIsNotFollowed) {
    std::filesystem::create_symlink(path("target"), path("r"));
    RecordFile file;
    file.name(path("r").c_str());
    CaptureStderr();
    EXPECT_FALSE(file.append("a\n", 2));
    GetCapturedStderr();
    EXPECT_FALSE(std::filesystem::exists(path("target")));
}

// As when the disk is full; the limit's signal must not end the program.
TEST_F(RecordFileTest, AShortWriteEndsTheRecordAndNotTheProgram) {
    RecordFile file;
    file.name(path("r").c_str());
    EXPECT_TRUE(file.append("first\n", 6));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit least{8, before.rlim_max};
    CaptureStderr();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &least), 0);
    const bool grew = file.append("second\n", 7);
    const bool again = file.append("third\n", 6);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    GetCapturedStderr();  // the limit holds for the captured text, too
    EXPECT_FALSE(grew);
    EXPECT_FALSE(again);
    EXPECT_EQ(text_of(path("r")), "first\nse");
    sigset_t pending;
    sigpending(&pending);
    EXPECT_FALSE(sigismember(&pending, SIGXFSZ));
}

TEST(RecordText, Lines) {
    EXPECT_STREQ(Line::header("a\"b\\\x01", 7).text(),
                 "{\"schema\":1,\"kind\":\"softhca-record\",\"program\":\"a\\\"b\\\\\\u0001\","
                 "\"pid\":7,\"version\":\"" SOFTHCA_VERSION "\"}\n");
    EXPECT_STREQ(Line::of(CqObject{3, 1, Locked::kYes}).text(),
                 "{\"cq\":3,\"context\":1,\"lock\":true}\n");
    EXPECT_STREQ(Line::of(QpObject{9, 1, 4, 1, 3, 64, Locked::kNo, Locked::kUnknown}).text(),
                 "{\"qp\":9,\"context\":1,\"page\":4,\"uuar\":1,\"send_cq\":3,\"depth\":64,"
                 "\"lock\":false,\"uuar_lock\":null}\n");
    EXPECT_STREQ(Line::of(QpObject{}).text(),
                 "{\"qp\":0,\"context\":0,\"page\":null,\"uuar\":null,\"send_cq\":0,\"depth\":0,"
                 "\"lock\":null,\"uuar_lock\":null}\n");
    EXPECT_STREQ(Line::qp_totals(9, {1, 2, 3, 4}).text(),
                 "{\"totals\":{\"qp\":9,\"wqes\":1,\"doorbells\":2,\"blueflame\":3,"
                 "\"payload_reads\":4}}\n");
    EXPECT_STREQ(Line::cq_totals(3, 5).text(), "{\"totals\":{\"cq\":3,\"cqes\":5}}\n");
    EXPECT_STREQ(Line::begins(2).text(), "{\"thread\":2,\"begins\":true}\n");
    EXPECT_STREQ(Line::ends(2).text(), "{\"thread\":2,\"ends\":true}\n");
    EXPECT_STREQ(Line::truncated(2).text(), "{\"thread\":2,\"truncated\":true}\n");
}

TEST(RecordText, Runs) {
    const EventRun posts{{EventKind::kPost, true, 9, 4, 1, 2, 3, 80, 0}, 3};
    const EventRun polls{{EventKind::kPoll, false, 3, 2}, 1};
    const EventRun barrier{{EventKind::kBarrier, false, 5}, 1};
    EXPECT_STREQ(
        Line::of(1, std::span(&posts, 1), 1).text(),
        "{\"thread\":1,\"post\":9,\"wqes\":4,\"inline\":1,\"signaled\":2,\"reads\":3,\"bytes\":80,"
        "\"line\":0,\"blueflame\":true,\"times\":3}\n");
    EXPECT_STREQ(Line::of(1, std::span(&barrier, 1), 1).text(),
                 "{\"thread\":1,\"barrier\":5,\"times\":1}\n");
    const EventRun both[] = {polls, barrier};
    EXPECT_STREQ(Line::of(0, both, 8).text(),
                 "{\"thread\":0,\"cycle\":[{\"poll\":3,\"cqes\":2,\"times\":1},"
                 "{\"barrier\":5,\"times\":1}],\"times\":8}\n");
}

TEST(RecordText, TheLongestLineFits) {
    EventRun runs[kMostInCycle];
    for (EventRun& run : runs)
        run = {{EventKind::kPost, false, ~0u, ~0u, ~0u, ~0u, ~0u, ~0ull, INT64_MAX}, ~0ull};
    const Line line = Line::of(~0u, runs, ~0ull);
    EXPECT_EQ(line.text()[line.size() - 1], '\n');
    const Line name = Line::header(std::string(5000, '\x80').c_str(), INT_MAX);
    EXPECT_EQ(name.text()[name.size() - 1], '\n');
}

TEST(RecordNumbering, InOrderOfTheFirstUse) {
    Numbering<4> numbers;
    for (const std::uint64_t key : {70u, 0u, 70u, 8u})
        numbers.of(key);
    EXPECT_EQ(numbers.of(70), 0U);
    EXPECT_EQ(numbers.of(0), 1U);
    EXPECT_EQ(numbers.of(8), 2U);
    EXPECT_EQ(numbers.of(9), 3U);
    EXPECT_EQ(numbers.of(10), 4U) << "all further keys share a number";
    EXPECT_EQ(numbers.of(11), 4U);
    EXPECT_EQ(numbers.of(70), 0U);
    numbers.forget_after_fork();
    EXPECT_EQ(numbers.of(11), 0U);
}

}  // namespace
}  // namespace softhca::record
