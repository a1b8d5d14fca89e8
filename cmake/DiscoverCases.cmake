# SPDX-License-Identifier: BSD-2-Clause
# cmake -D BINARY=... -D SETTINGS=... -D OUTPUT=... -P DiscoverCases.cmake
# Writes a ctest script with one test for each case of a GoogleTest binary. CMake's own
# gtest_discover_tests gives all cases of a binary the same command prefix; ours need a fabric each.
# A case whose name contains "Long" gets the label `long`.
cmake_minimum_required(VERSION 3.25)
include(${SETTINGS})

execute_process(COMMAND ${launcher} ${BINARY} --gtest_list_tests
    OUTPUT_VARIABLE listing ERROR_VARIABLE complaint RESULT_VARIABLE result)
if(NOT result STREQUAL "0")
    message(FATAL_ERROR "${BINARY} --gtest_list_tests failed (${result}):\n${listing}${complaint}")
endif()

cmake_path(GET BINARY STEM binary_name)
string(REGEX REPLACE "_tests?$" "" part ${binary_name})
string(REPLACE ";" "\\;" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(content "")
set(suite "")
foreach(line IN LISTS lines)
    string(REGEX REPLACE " *#.*$" "" name "${line}")
    if(name MATCHES "^[^ ].*\\.$")
        set(suite ${name})
        continue()
    elseif(NOT name MATCHES "^  ([^ ]+)$" OR suite STREQUAL "")
        continue()
    endif()
    set(case ${suite}${CMAKE_MATCH_1})
    set(test ${label}.${part}.${case})
    if(case MATCHES "(^|[./])DISABLED_")
        continue()
    endif()
    set(command "")
    if(softhca)
        # At most 64 characters; the hash keeps shortened names apart.
        string(MD5 hash ${test})
        string(SUBSTRING ${hash} 0 8 hash)
        string(REGEX REPLACE "[^A-Za-z0-9]" "-" fabric ${case})
        string(SUBSTRING ${fabric} 0 40 fabric)
        set(command ${softhca} run --fabric ${fabric_prefix}${hash}-${fabric} --)
    endif()
    set(labels ${label})
    if(case MATCHES "Long")
        list(APPEND labels long)
    endif()
    string(APPEND content "add_test([==[${test}]==]")
    foreach(word IN LISTS launcher command)
        string(APPEND content " [==[${word}]==]")
    endforeach()
    string(APPEND content " [==[${BINARY}]==] [==[--gtest_filter=${case}]==]"
        ")\n"
        "set_tests_properties([==[${test}]==] PROPERTIES LABELS [==[${labels}]==]"
        " FIXTURES_REQUIRED [==[${fixture}]==] TIMEOUT ${timeout} ENVIRONMENT [==[${environment}]==]"
        " SKIP_REGULAR_EXPRESSION [==[\\[  SKIPPED \\]]==])\n")
endforeach()
if(content STREQUAL "")
    message(FATAL_ERROR "${BINARY} has no test")
endif()
file(WRITE ${OUTPUT} "${content}")
