# SPDX-License-Identifier: BSD-2-Clause
# How tests are registered with ctest. Offers
#   heddle_verbs_test(TARGET LABEL label [SPLIT suite=parts...] [EACH suite...] SOURCES source...)
#                                         a GoogleTest binary; each of its suites is one ctest test, as
#                                         many as SPLIT says, or one for each case, and runs under
#                                         `softhca run` on a fabric of its own
#   heddle_unit_test(TARGET SOURCE...)    a GoogleTest binary that needs no device
#   heddle_program(TARGET SOURCE)         a verbs program for tests to start, in tests/
#   heddle_suites_of(VARIABLE SOURCE...)  a --gtest_filter of the suites in these sources
#   heddle_test_properties(TEST... LABELS label... [TIMEOUT seconds] [WRAPPED])
#                                         environment, labels, and by tests/costs.txt the limit of
#                                         time (else TIMEOUT) and what runs beside, for any other test;
#                                         WRAPPED: its command is `softhca run ...` on a fabric
#                                         whose name begins with HEDDLE_FABRIC_PREFIX
# Labels say which part a test belongs to; `long` keeps it out of `make test`, and `foreign` (it runs
# programs we do not build) out of the sanitizer builds.

# TIMEOUT may be followed by an empty string, which CMake 3.31 warns of without this.
if(POLICY CMP0174)
    cmake_policy(SET CMP0174 NEW)
endif()

# The distribution's Python, if there is one: its packages (pyverbs) are for that.
find_program(HEDDLE_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(HEDDLE_PYTHON python3 REQUIRED)
set(HEDDLE_TEST_DIR ${PROJECT_BINARY_DIR}/tests)
set(SOFTHCA_COMMAND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/softhca)

# Fabric names of this build tree alone: several trees can be tested at the same time.
string(MD5 HEDDLE_TREE_HASH ${PROJECT_BINARY_DIR})
string(SUBSTRING ${HEDDLE_TREE_HASH} 0 6 HEDDLE_TREE_HASH)
set(HEDDLE_FABRIC_PREFIX t${HEDDLE_TREE_HASH}-)

# heddle's own tests run on a device as harsh as hardware.
set(HEDDLE_TEST_DEVICE strict CACHE STRING
    "Traits of the device of heddle's own tests and of mpi.*, as `softhca run --device` takes them")

include(TestCosts)
set(HEDDLE_TREE release)
# Words in the names of cases: what takes long, and what does not work at all in this tree.
set(HEDDLE_LONG_WORDS Long)
set(HEDDLE_EXCLUDED_WORDS "")
set(HEDDLE_TEST_LAUNCHER "") # put before a program that a sanitizer needs help to start
set(HEDDLE_TEST_ENVIRONMENT
    SOFTHCA=${SOFTHCA_COMMAND}
    SOFTHCA_LIBRARY=${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libsofthca.so
    HEDDLE_SOURCE_DIR=${PROJECT_SOURCE_DIR}
    HEDDLE_BUILD_DIR=${PROJECT_BINARY_DIR}
    HEDDLE_TEST_DIR=${HEDDLE_TEST_DIR}
    HEDDLE_FABRIC_PREFIX=${HEDDLE_FABRIC_PREFIX}
    HEDDLE_SANITIZE=${HEDDLE_SANITIZE}
    # tests that wait for the death of a peer take half a second for it, not eight
    FI_HEDDLE_TIMEOUT=14
    # measured costs of registering and copying under a sanitizer stay out of the cache of the user
    XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/cache
    PYTHONDONTWRITEBYTECODE=1)

# The preloaded library is built with the sanitizer too, and the sanitizer's runtime has to come
# before it: then a call goes program -> runtime's interceptor -> libsofthca -> libc.
if(HEDDLE_SANITIZE)
    # They make thousands of objects or messages.
    list(APPEND HEDDLE_LONG_WORDS NothingLeaks FedByTwoProcesses QueuePairsGrow)
    # They simulate for long, in one thread, what shorter cases have, too.
    list(APPEND HEDDLE_LONG_WORDS PredictModel PredictLimits PredictPaperPoints PredictErrorTable)
    # They count mappings, of which a sanitizer has some of its own.
    set(HEDDLE_EXCLUDED_WORDS LeavesAloneWhatIsNotPlainMemory KeepsProtectionAndLock)
    set(suppressions ${PROJECT_SOURCE_DIR}/tests/sanitizers)
    if(HEDDLE_SANITIZE STREQUAL "thread")
        set(runtime libtsan.so)
        set(HEDDLE_TREE tsan)
        set(HEDDLE_UNSANITIZED predict_tests cli_unit_tests) # they have no threads
        list(APPEND HEDDLE_TEST_ENVIRONMENT
            # die_after_fork: softhca starts its progress thread in forked children, too
            TSAN_OPTIONS=suppressions=${suppressions}/tsan.supp:second_deadlock_stack=1:die_after_fork=0)
    else()
        set(runtime libasan.so)
        set(HEDDLE_TREE asan)
        list(APPEND HEDDLE_TEST_ENVIRONMENT
            ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
            LSAN_OPTIONS=suppressions=${suppressions}/lsan.supp:print_suppressions=0
            UBSAN_OPTIONS=print_stacktrace=1)
    endif()
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${runtime}
        OUTPUT_VARIABLE runtime_path OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    file(REAL_PATH ${runtime_path} HEDDLE_SANITIZER_PRELOAD)
    if(NOT EXISTS ${HEDDLE_SANITIZER_PRELOAD})
        message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no ${runtime}")
    endif()
    list(APPEND HEDDLE_TEST_ENVIRONMENT HEDDLE_SANITIZER_PRELOAD=${HEDDLE_SANITIZER_PRELOAD})

    # ThreadSanitizer of gcc 12 and 13 does not know the address layout of kernels that randomize
    # with 32 bits (vm.mmap_rnd_bits); without randomization it does.
    if(NOT DEFINED HEDDLE_SANITIZER_STARTS)
        set(probe ${PROJECT_BINARY_DIR}/sanitizer_probe)
        file(WRITE ${probe}.cc "int main() { return 0; }\n")
        execute_process(COMMAND ${CMAKE_CXX_COMPILER} -fsanitize=${HEDDLE_SANITIZE}
            -o ${probe} ${probe}.cc COMMAND_ERROR_IS_FATAL ANY)
        set(attempts plainly fixed)
        foreach(attempt IN LISTS attempts)
            set(launcher "")
            if(attempt STREQUAL "fixed")
                set(launcher setarch -R)
            endif()
            set(failures 0)
            foreach(i RANGE 1 10)
                execute_process(COMMAND ${launcher} ${probe}
                    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE complaint)
                if(NOT result STREQUAL "0")
                    math(EXPR failures "${failures} + 1")
                endif()
            endforeach()
            if(failures EQUAL 0)
                set(HEDDLE_SANITIZER_STARTS "${launcher}" CACHE INTERNAL
                    "Command prefix with which a sanitized program starts")
                break()
            endif()
        endforeach()
        if(NOT DEFINED HEDDLE_SANITIZER_STARTS)
            message(FATAL_ERROR "programs built with -fsanitize=${HEDDLE_SANITIZE} do not start "
                "here: ${complaint}\nAs root, `sysctl vm.mmap_rnd_bits=28` helps.")
        endif()
    endif()
    set(HEDDLE_TEST_LAUNCHER ${HEDDLE_SANITIZER_STARTS})
endif()

# Before the first test that uses a fabric of this tree and after the last: nothing may be left.
if(NOT HEDDLE_FUZZ)
    foreach(step begin end)
        add_test(NAME fabrics.${step}
            COMMAND ${PROJECT_SOURCE_DIR}/scripts/fabrics-left ${step})
        set_tests_properties(fabrics.${step} PROPERTIES ENVIRONMENT "${HEDDLE_TEST_ENVIRONMENT}")
    endforeach()
    set_tests_properties(fabrics.begin PROPERTIES FIXTURES_SETUP fabrics)
    set_tests_properties(fabrics.end PROPERTIES FIXTURES_CLEANUP fabrics)
endif()

function(heddle_test_properties)
    cmake_parse_arguments(PARSE_ARGV 0 arg "WRAPPED" "TIMEOUT" "LABELS")
    foreach(test IN LISTS arg_UNPARSED_ARGUMENTS)
        heddle_test_cost(${test} ${HEDDLE_TREE} cost slots limit)
        if(arg_TIMEOUT)
            set(limit ${arg_TIMEOUT})
        endif()
        set_tests_properties(${test} PROPERTIES
            LABELS "${arg_LABELS}" TIMEOUT ${limit} COST ${cost} PROCESSORS ${slots}
            SKIP_RETURN_CODE 77 ENVIRONMENT "${HEDDLE_TEST_ENVIRONMENT}")
        if(arg_WRAPPED)
            set_tests_properties(${test} PROPERTIES FIXTURES_REQUIRED fabrics)
            if(HEDDLE_SANITIZER_PRELOAD)
                set_property(TEST ${test} APPEND PROPERTY
                    ENVIRONMENT LD_PRELOAD=${HEDDLE_SANITIZER_PRELOAD})
            endif()
        endif()
    endforeach()
endfunction()

# Lists the suites of a GoogleTest binary after each link and registers them, see the script.
function(heddle_discover target label wrapped split each)
    set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}_cases.cmake)
    set(environment ${HEDDLE_TEST_ENVIRONMENT})
    if(wrapped AND HEDDLE_SANITIZER_PRELOAD)
        list(APPEND environment LD_PRELOAD=${HEDDLE_SANITIZER_PRELOAD})
    endif()
    if(label STREQUAL "fi" OR label STREQUAL "protocol")
        list(APPEND environment SOFTHCA_DEVICE=${HEDDLE_TEST_DEVICE})
    endif()
    if(HEDDLE_SANITIZE)
        # A report then names the case. ThreadSanitizer also follows neither fences, which order what
        # one case does before the next, nor threads of a child forked beside threads.
        set(each ALL)
    endif()
    set(softhca "")
    set(fixture "")
    if(wrapped)
        set(softhca ${SOFTHCA_COMMAND})
        set(fixture fabrics)
    endif()
    set(settings ${CMAKE_CURRENT_BINARY_DIR}/${target}_settings.cmake)
    file(CONFIGURE OUTPUT ${settings} @ONLY CONTENT [[
set(label "@label@")
set(tree "@HEDDLE_TREE@")
set(split "@split@")
set(each "@each@")
set(long_words "@HEDDLE_LONG_WORDS@")
set(excluded_words "@HEDDLE_EXCLUDED_WORDS@")
set(launcher "@HEDDLE_TEST_LAUNCHER@")
set(softhca "@softhca@")
set(fixture "@fixture@")
set(fabric_prefix "@HEDDLE_FABRIC_PREFIX@")
set(environment "@environment@")
]])
    set(scripts ${PROJECT_SOURCE_DIR}/cmake/DiscoverCases.cmake
        ${PROJECT_SOURCE_DIR}/cmake/TestCosts.cmake ${HEDDLE_COSTS_FILE})
    # Only when what it reads has changed; a test that is listed again is not linked again.
    add_custom_command(OUTPUT ${script}
        COMMAND ${CMAKE_COMMAND} -D BINARY=$<TARGET_FILE:${target}> -D SETTINGS=${settings}
            -D OUTPUT=${script} -P ${PROJECT_SOURCE_DIR}/cmake/DiscoverCases.cmake
        DEPENDS ${target} ${settings} ${scripts} VERBATIM)
    add_custom_target(${target}_cases ALL DEPENDS ${script})
    if(label MATCHES "^(unit|softhca|endpoint|protocol|fi)$" AND NOT target IN_LIST HEDDLE_UNSANITIZED)
        set_property(GLOBAL APPEND PROPERTY HEDDLE_SANITIZED_SUITES ${target}_cases)
    endif()
    # Until the binary is built, one test says so.
    set(include ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
    file(WRITE ${include} "if(EXISTS \"${script}\")\n  include(\"${script}\")\nelse()\n"
        "  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()

function(heddle_suites_of variable)
    set(filter "")
    foreach(source IN LISTS ARGN)
        file(STRINGS ${source} tests REGEX "^(TYPED_)?TEST(_F|_P)?\\(")
        foreach(test IN LISTS tests)
            string(REGEX REPLACE "^[A-Z_]*\\(([A-Za-z0-9_]+).*" "\\1" suite "${test}")
            list(APPEND filter ${suite}.* */${suite}.* ${suite}/*.*)
        endforeach()
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    endforeach()
    list(REMOVE_DUPLICATES filter)
    list(JOIN filter ":" filter)
    set(${variable} "${filter}" PARENT_SCOPE)
endfunction()

function(heddle_test_target target)
    add_executable(${target} ${ARGN})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${HEDDLE_TEST_DIR})
    target_link_options(${target} PRIVATE -Wl,--as-needed)
    target_link_libraries(${target} PRIVATE Threads::Threads)
    heddle_compile_quickly(${target})
endfunction()

# The main() of GoogleTest binaries.
if(NOT HEDDLE_FUZZ)
    add_library(heddle_gtest_main OBJECT ${PROJECT_SOURCE_DIR}/tests/support/gtest_main.cc)
    heddle_compile_quickly(heddle_gtest_main)
endif()

function(heddle_unit_test target)
    heddle_test_target(${target} ${ARGN})
    target_link_libraries(${target} PRIVATE heddle_gtest_main GTest::gmock)
    heddle_discover(${target} unit "" "" "")
endfunction()

function(heddle_verbs_test target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SPLIT;EACH;SOURCES")
    heddle_test_target(${target} ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE
        heddle_gtest_main GTest::gmock ${IBVERBS_LIBRARY} ${MLX5_LIBRARY})
    heddle_discover(${target} ${arg_LABEL} TRUE "${arg_SPLIT}" "${arg_EACH}")
endfunction()

# A test of that name: cases of a test program on a device with these traits, and with a port of
# PORT (softhca run --port), with variables of ENVIRONMENT.
function(heddle_device_test name target traits cases)
    cmake_parse_arguments(PARSE_ARGV 4 arg "" "PORT" "ENVIRONMENT")
    string(REGEX MATCH "^[^.]+" label ${name})
    string(MD5 fabric ${name})
    set(port "")
    if(arg_PORT)
        set(port --port ${arg_PORT})
    endif()
    add_test(NAME ${name} COMMAND ${HEDDLE_TEST_LAUNCHER} ${SOFTHCA_COMMAND} run --device ${traits}
        ${port} --fabric ${HEDDLE_FABRIC_PREFIX}${fabric} -- $<TARGET_FILE:${target}>
        --gtest_filter=${cases})
    heddle_test_properties(${name} WRAPPED LABELS ${label})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT})
endfunction()

function(heddle_program target)
    heddle_test_target(${target} ${ARGN})
    target_link_libraries(${target} PRIVATE ${IBVERBS_LIBRARY} ${MLX5_LIBRARY})
endfunction()
