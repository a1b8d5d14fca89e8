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

# No -DNDEBUG: assertions guard shared memory that other processes write, and are cheap.
foreach(language C CXX)
    set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g")
    set(CMAKE_${language}_FLAGS_DEBUG "-Og -g")
endforeach()
add_compile_options(-Wall -Wextra -fno-omit-frame-pointer
    $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
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

# Code that uses large libraries (GoogleTest, CLI11) compiles three times faster with these, in the
# sanitizer builds, where it is not what is examined.
function(heddle_compile_quickly target)
    if(HEDDLE_SANITIZE)
        target_compile_options(${target} PRIVATE -O1 -g1 -fno-sanitize=undefined)
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
