# SPDX-License-Identifier: BSD-2-Clause
# Language level, warnings and sanitizers, for every target of the project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON) # GNU libc interfaces: memfd_create, process_vm_readv, OFD locks
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# Assertions: HEDDLE_ASSERT and SOFTHCA_ASSERT are always on. HEDDLE_DEBUG_ASSERT and
# SOFTHCA_DEBUG_ASSERT are on in debug builds and, by the headers themselves, under sanitizers.
# No -DNDEBUG either: libraries whose headers use assert() check us, too.
# -g1: a backtrace has functions, files and lines; a debugger that wants variables takes the preset
# `dev`. With -g the provider's DSO has 27 MB and compiling takes a quarter longer.
foreach(language C CXX)
    set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g1")
    set(CMAKE_${language}_FLAGS_DEBUG "-Og -g")
endforeach()
add_compile_definitions(
    $<$<CONFIG:Debug>:HEDDLE_DEBUG_ASSERTIONS=1> $<$<CONFIG:Debug>:SOFTHCA_DEBUG_ASSERTIONS=1>)
if(HEDDLE_SANITIZE)
    # What a sanitizer adds is most of the code, and nobody measures its speed.
    foreach(language C CXX)
        set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O1 -g1")
    endforeach()
endif()

# Several sources are compiled as one, since most of a source's time goes into the headers and the
# inline functions that it shares with its neighbours. A source must still compile by itself, which
# the preset `dev` and `make tidy` check; names in unnamed namespaces are unique in their target.
set(CMAKE_UNITY_BUILD ${HEDDLE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

# For sources with a function that is [[gnu::flatten]]: it would take in all of the target's functions.
function(heddle_compile_alone)
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Used when they are installed; neither is needed.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND HEDDLE_UNITY)  # without unity there is link-time optimisation, which is ld's
    add_link_options(-fuse-ld=mold)
endif()
add_compile_options(-Wall -Wextra -fno-omit-frame-pointer
    $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(HEDDLE_UNITY)
    # It takes a source that a unity file includes for a header, which should not use unnamed namespaces.
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
if(HEDDLE_WERROR)
    add_compile_options(-Werror)
endif()

if(HEDDLE_SANITIZE AND NOT HEDDLE_SANITIZE MATCHES "^(address,undefined|thread)$")
    message(FATAL_ERROR
        "HEDDLE_SANITIZE is '${HEDDLE_SANITIZE}'; possible are '', 'address,undefined' and 'thread'")
endif()
if(HEDDLE_SANITIZE)
    if(NOT HEDDLE_FUZZ AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # gcc links the shared runtime, which an LD_PRELOAD library can share with the program
        # under test; clang's default is a static one in the executable.
        message(FATAL_ERROR "the sanitizer builds need g++")
    endif()
    # vptr checks need type information of classes that live in the other side of a preload.
    add_compile_options(-fsanitize=${HEDDLE_SANITIZE} -fno-sanitize-recover=undefined
        -fno-sanitize=vptr)
    add_link_options(-fsanitize=${HEDDLE_SANITIZE})
    if(HEDDLE_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # Fences, which ThreadSanitizer does not follow: what they order is atomic, too.
        add_compile_options(-Wno-tsan)
    endif()
endif()

# What distributions build with, given here so that it does not depend on the compiler's defaults;
# tests/cli/packaging_test.py reads it from the files that are installed. Sanitizers check more, and
# do not go together with _FORTIFY_SOURCE. Level 2, not 3: 3 computes sizes at run time, on every copy.
if(NOT HEDDLE_SANITIZE AND NOT HEDDLE_FUZZ AND NOT HEDDLE_COVERAGE)
    include(CheckPIESupported)
    check_pie_supported(LANGUAGES C CXX)
    add_compile_options(-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
        add_compile_options(-fcf-protection=full)
    else()
        add_compile_options(-mbranch-protection=standard)
    endif()
    add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()

if(HEDDLE_COVERAGE)
    # Several threads and processes count; what they do not use is optimised away with the rest.
    add_compile_options(--coverage -fprofile-update=atomic -O1)
    add_link_options(--coverage)
endif()

# For tests and commands, whose own speed nobody measures and which use large libraries
# (GoogleTest, CLI11, nlohmann-json).
function(heddle_compile_quickly target)
    if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
        target_compile_options(${target} PRIVATE -Og -g1)
    endif()
    if(HEDDLE_SANITIZE)
        target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
    endif()
endfunction()

if(HEDDLE_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "HEDDLE_FUZZ needs clang (libFuzzer); the compiler is "
            "${CMAKE_CXX_COMPILER_ID}: use `make fuzz` or -DCMAKE_CXX_COMPILER=clang++")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link,address,undefined
        -fno-sanitize-recover=undefined -fno-sanitize=vptr,function)
    add_link_options(-fsanitize=address,undefined)
endif()
