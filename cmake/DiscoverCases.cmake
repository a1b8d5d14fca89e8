# SPDX-License-Identifier: BSD-2-Clause
# cmake -D BINARY=... -D SETTINGS=... -D OUTPUT=... -P DiscoverCases.cmake
# Writes a ctest script with one test for each suite of a GoogleTest binary: all of the suite's cases
# run in one process, on one fabric. Starting a process for each case took more time than the cases.
# A suite that takes long is split into several tests (SPLIT in heddle_verbs_test), and each case of
# one that leaves something behind in its process (EACH) is a test of its own. Cases whose names
# contain a word of `long_words` are a test of their own with the label `long`; those with a word of
# `excluded_words` are left out (HeddleTesting.cmake says why).
cmake_minimum_required(VERSION 3.25)
include(${SETTINGS})
include(${CMAKE_CURRENT_LIST_DIR}/TestCosts.cmake)

execute_process(COMMAND ${launcher} ${BINARY} --gtest_list_tests
    OUTPUT_VARIABLE listing ERROR_VARIABLE complaint RESULT_VARIABLE result)
if(NOT result STREQUAL "0")
    message(FATAL_ERROR "${BINARY} --gtest_list_tests failed (${result}):\n${listing}${complaint}")
endif()

# Patterns of --gtest_filter, and the same as regular expressions.
list(TRANSFORM long_words REPLACE "(.+)" "*\\1*" OUTPUT_VARIABLE long_patterns)
list(TRANSFORM excluded_words REPLACE "(.+)" "*\\1*" OUTPUT_VARIABLE excluded_patterns)
set(not_short ${long_patterns} ${excluded_patterns})
list(JOIN not_short ":" not_short)
list(JOIN long_words "|" long_expression)
list(JOIN excluded_words "|" excluded_expression)
if(excluded_expression STREQUAL "")
    set(excluded_expression "^$")
endif()

# suites: their names; short_SUITE and long_SUITE: how many cases of each kind.
string(REPLACE ";" "\\;" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(suites "")
set(suite "")
foreach(line IN LISTS lines)
    string(REGEX REPLACE " *#.*$" "" name "${line}")
    if(name MATCHES "^([^ ].*)\\.$")
        set(suite ${CMAKE_MATCH_1})
        list(APPEND suites ${suite})
        set(short_${suite} 0)
        set(long_${suite} 0)
    elseif(name MATCHES "^  ([^ ]+)$" AND NOT suite STREQUAL "")
        set(case ${CMAKE_MATCH_1})
        if("${suite}.${case}" MATCHES "(^|[./])DISABLED_" OR
                "${suite}.${case}" MATCHES "${excluded_expression}")
            continue()
        elseif("${suite}.${case}" MATCHES "${long_expression}")
            math(EXPR long_${suite} "${long_${suite}} + 1")
        else()
            math(EXPR short_${suite} "${short_${suite}} + 1")
            list(APPEND cases_${suite} ${case})
        endif()
    endif()
endforeach()

set(content "")
function(add_suite test filter labels variables)
    set(command "")
    if(softhca)
        # At most 64 characters; the hash keeps shortened names apart.
        string(MD5 hash ${test})
        string(SUBSTRING ${hash} 0 8 hash)
        string(REGEX REPLACE "[^A-Za-z0-9]" "-" fabric ${test})
        string(SUBSTRING ${fabric} 0 40 fabric)
        set(command ${softhca} run --fabric ${fabric_prefix}${hash}-${fabric} --)
    endif()
    heddle_test_cost(${test} ${tree} cost slots limit)
    set(text "add_test([==[${test}]==]")
    foreach(word IN LISTS launcher command)
        string(APPEND text " [==[${word}]==]")
    endforeach()
    string(APPEND text " [==[${BINARY}]==] [==[--gtest_filter=${filter}]==])\n"
        "set_tests_properties([==[${test}]==] PROPERTIES LABELS [==[${labels}]==]"
        " FIXTURES_REQUIRED [==[${fixture}]==] TIMEOUT ${limit} COST ${cost}"
        " PROCESSORS ${slots} ENVIRONMENT [==[${environment};${variables}]==]"
        " SKIP_RETURN_CODE 77)\n")
    set(content "${content}${text}" PARENT_SCOPE)
endfunction()

foreach(suite IN LISTS suites)
    set(test ${label}.${suite})
    if(long_${suite} GREATER 0)
        set(filter "")
        foreach(word IN LISTS long_words)
            string(FIND ${suite} ${word} at)
            if(at GREATER -1)
                set(filter "${suite}.*")  # all of its cases are long
                break()
            endif()
            string(APPEND filter "${suite}.*${word}*:")
        endforeach()
        add_suite(${test}.Long "${filter}" "${label};long" "")
    endif()
    if(short_${suite} GREATER 0)
        if(suite IN_LIST each OR each STREQUAL "ALL")
            foreach(case IN LISTS cases_${suite})
                add_suite(${test}.${case} ${suite}.${case} "${label}" "")
            endforeach()
            continue()
        endif()
        set(parts 1)
        foreach(rule IN LISTS split)
            if(rule MATCHES "^(.*)=([0-9]+)$" AND CMAKE_MATCH_1 STREQUAL suite)
                set(parts ${CMAKE_MATCH_2})
            endif()
        endforeach()
        set(filter "${suite}.*:-${not_short}")
        if(parts EQUAL 1)
            add_suite(${test} "${filter}" "${label}" "")
        else()
            foreach(part RANGE 1 ${parts})
                math(EXPR index "${part} - 1")
                add_suite(${test}.${part}of${parts} "${filter}" "${label}"
                    "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index}")
            endforeach()
        endif()
    endif()
endforeach()
if(content STREQUAL "")
    message(FATAL_ERROR "${BINARY} has no test")
endif()
file(WRITE ${OUTPUT} "${content}")
