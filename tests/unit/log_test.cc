// SPDX-License-Identifier: BSD-2-Clause
// The log: its lines, its levels, and what it must leave alone.
#include "softhca/base/log.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softhca {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class Log : public testing::Test {
protected:
    void SetUp() override { set_log_level(LogLevel::kInfo); }
    void TearDown() override { set_log_level(LogLevel::kWarn); }
};

TEST_F(Log, LineFormat) {
    CaptureStderr();
    LOG_WARN("%s is %d", "answer", 42);
    EXPECT_EQ(GetCapturedStderr(),
              "softhca[" + std::to_string(::getpid()) + "]: warn: answer is 42\n");
}

TEST_F(Log, LevelsBelowTheThresholdAreOff) {
    int evaluated = 0;
    CaptureStderr();
    LOG_ERROR("e%d", ++evaluated);
    LOG_INFO("i%d", ++evaluated);
    LOG_DEBUG("d%d", ++evaluated);
    LOG_TRACE("t%d", ++evaluated);
    const std::string lines = GetCapturedStderr();
    EXPECT_THAT(lines, HasSubstr("error: e1\n"));
    EXPECT_THAT(lines, HasSubstr("info: i2\n"));
    EXPECT_EQ(evaluated, 2) << "arguments of messages that are off must not be evaluated";
}

TEST_F(Log, OncePerProcess) {
    CaptureStderr();
    for (int i = 0; i < 3; ++i) {
        LOG_WARN_ONCE("only %d", i);
    }
    const std::string lines = GetCapturedStderr();
    EXPECT_THAT(lines, EndsWith("only 0\n"));
    EXPECT_EQ(lines.find("only 1"), std::string::npos);
}

TEST_F(Log, LongLinesAreCutAndSaySo) {
    CaptureStderr();
    LOG_WARN("%s", std::string(5000, 'x').c_str());
    const std::string line = GetCapturedStderr();
    EXPECT_THAT(line, EndsWith("xx...\n"));
    EXPECT_LE(line.size(), 1024U);
}

TEST_F(Log, KeepsErrno) {
    CaptureStderr();
    errno = EXDEV;
    LOG_WARN("%s", std::strerror(ENOENT));
    EXPECT_EQ(errno, EXDEV);
    GetCapturedStderr();
}

}  // namespace
}  // namespace softhca
