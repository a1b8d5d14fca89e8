# SPDX-License-Identifier: BSD-2-Clause
# What each test costs, as scripts/measure-tests found in the release tree on a machine of 2 cores.
# Lines of tests/costs.txt: TEST MILLISECONDS SLOTS. They give each test its limit of time, its place in
# the order (the longest first), and what runs beside it.
#
# A slot is a quarter of a processor: with 8 slots two tests that compute run at once, or eight that
# mostly wait for timers and for peers that die. scripts/run-ctest says how many there are.

set(HEDDLE_COSTS_FILE ${CMAKE_CURRENT_LIST_DIR}/../tests/costs.txt)
set(HEDDLE_LEAST_LIMIT 60) # seconds: a busy machine needs some to start a process
# How much longer tests may take under a sanitizer; an allowance, not measured test by test.
set(HEDDLE_SLOWER_asan 4)
set(HEDDLE_SLOWER_tsan 10)
set(HEDDLE_SLOWER_release 1)

# heddle_test_cost(TEST TREE COST SLOTS LIMIT): sets the last three variables. TREE: release, asan or
# tsan. LIMIT, in seconds, is ten times what the test takes. A case that is a test of its own only
# under a sanitizer has the limit of its suite. A test that has not been measured yet counts as one of
# 12 seconds and half a processor.
function(heddle_test_cost test tree cost slots limit)
    string(REGEX REPLACE "\\.[^.]*$" "" suite "${test}")
    set(milliseconds 12000)
    set(measured_slots 2)
    foreach(name IN ITEMS ${test} ${suite})
        string(REGEX REPLACE "([][+.*?()^$|\\])" "\\\\\\1" pattern "${name}")
        set(line "")
        if(EXISTS ${HEDDLE_COSTS_FILE})
            file(STRINGS ${HEDDLE_COSTS_FILE} line REGEX "^${pattern} ")
        endif()
        if(line MATCHES " ([0-9]+) ([0-9]+)$")
            set(milliseconds ${CMAKE_MATCH_1})
            set(measured_slots ${CMAKE_MATCH_2})
            break()
        endif()
    endforeach()
    math(EXPR milliseconds "${milliseconds} * ${HEDDLE_SLOWER_${tree}}")
    math(EXPR seconds "${milliseconds} / 100")
    math(EXPR least "${HEDDLE_LEAST_LIMIT} * ${HEDDLE_SLOWER_${tree}}")
    if(seconds LESS least)
        set(seconds ${least})
    endif()
    set(${cost} ${milliseconds} PARENT_SCOPE)
    set(${slots} ${measured_slots} PARENT_SCOPE)
    set(${limit} ${seconds} PARENT_SCOPE)
endfunction()
