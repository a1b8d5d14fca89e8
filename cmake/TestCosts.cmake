# SPDX-License-Identifier: BSD-2-Clause
# What each test costs, as scripts/measure-tests found on a machine of 2 cores. Lines of
# tests/costs.txt: TREE TEST MILLISECONDS SLOTS. They give each test its limit of time, its place in
# the order (the longest first), and what runs beside it.
#
# A slot is a quarter of a processor: with 8 slots two tests that compute run at once, or eight that
# mostly wait for timers and for peers that die. scripts/run-ctest says how many there are.

set(HEDDLE_COSTS_FILE ${CMAKE_CURRENT_LIST_DIR}/../tests/costs.txt)
set(HEDDLE_LEAST_LIMIT 30) # seconds: a busy machine needs some to start a process

# heddle_test_cost(TEST TREE COST SLOTS LIMIT): sets the last three variables. TREE: release, asan or
# tsan. LIMIT, in seconds, is ten times what the test takes. A test that has not been measured yet
# has two slots and the limit HEDDLE_UNMEASURED_LIMIT.
set(HEDDLE_UNMEASURED_LIMIT 120)
function(heddle_test_cost test tree cost slots limit)
    string(REGEX REPLACE "([][+.*?()^$|\\])" "\\\\\\1" pattern "${test}")
    set(line "")
    if(EXISTS ${HEDDLE_COSTS_FILE})
        file(STRINGS ${HEDDLE_COSTS_FILE} line REGEX "^${tree} ${pattern} ")
    endif()
    if(line MATCHES " ([0-9]+) ([0-9]+)$")
        math(EXPR seconds "${CMAKE_MATCH_1} / 100")
        if(seconds LESS HEDDLE_LEAST_LIMIT)
            set(seconds ${HEDDLE_LEAST_LIMIT})
        endif()
        set(${cost} ${CMAKE_MATCH_1} PARENT_SCOPE)
        set(${slots} ${CMAKE_MATCH_2} PARENT_SCOPE)
    else()
        set(seconds ${HEDDLE_UNMEASURED_LIMIT})
        set(${cost} 1000 PARENT_SCOPE)
        set(${slots} 2 PARENT_SCOPE)
    endif()
    set(${limit} ${seconds} PARENT_SCOPE)
endfunction()
