# SPDX-License-Identifier: BSD-2-Clause
# Registers the scripts of this folder with ctest: each once with its short set and once, labelled
# `long`, with the whole matrix. See README.md.
set(third_party ${CMAKE_CURRENT_LIST_DIR})
set(third_party_scratch ${PROJECT_BINARY_DIR}/third_party)

foreach(script ibv perftest pyverbs ucx mpich allocators kill rdma_core rdmacm libfabric ports clients)
    foreach(length short full)
        set(name third_party.${script})
        set(labels third_party foreign)
        set(timeout "")
        if(length STREQUAL "full")
            string(APPEND name .full)
            list(APPEND labels long)
            set(timeout 5400)
        endif()
        add_test(NAME ${name} COMMAND /usr/bin/python3 ${third_party}/run_${script}.py --${length}
            --softhca ${SOFTHCA_COMMAND} --scratch ${third_party_scratch}/${length})
        heddle_test_properties(${name} LABELS ${labels} TIMEOUT ${timeout})
        if(length STREQUAL "full")
            set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
        endif()
    endforeach()
endforeach()

# Both are long: they build libfabric first, in the folder of provider.fabtests.full. Serial, as
# fabtests' processes meet at fixed TCP ports.
foreach(length short full)
    set(name third_party.fabtests)
    if(length STREQUAL "full")
        string(APPEND name .full)
    endif()
    add_test(NAME ${name} COMMAND /usr/bin/python3 ${third_party}/run_fabtests.py --${length}
        --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/fabtests)
    heddle_test_properties(${name} LABELS third_party foreign long TIMEOUT 30000)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
endforeach()

# Both are long: they build UCX first, from the folder that SOFTHCA_UCX_SOURCE names. Without one they
# are skipped.
foreach(length short full)
    set(name third_party.ucx_gtest)
    if(length STREQUAL "full")
        string(APPEND name .full)
    endif()
    add_test(NAME ${name} COMMAND /usr/bin/python3 ${third_party}/run_ucx_gtest.py --${length}
        --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/ucx_gtest)
    heddle_test_properties(${name} LABELS third_party foreign long TIMEOUT 30000)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
endforeach()
