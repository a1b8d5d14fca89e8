# SPDX-License-Identifier: BSD-2-Clause
# Registers run_cluster.py with ctest, with its short set, with all cases, and with whole suites. All
# are long: guests compute slowly, and a machine that is busy with other tests makes them late. See
# README.md.
foreach(length short full suites)
    set(name cluster.rxe)
    if(NOT length STREQUAL "short")
        string(APPEND name .${length})
    endif()
    add_test(NAME ${name} COMMAND ${HEDDLE_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/run_cluster.py
        --${length} --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/cluster
        --venvs ${PROJECT_BINARY_DIR}/venvs)
    heddle_test_properties(${name} LABELS cluster foreign long TIMEOUT 7200)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
endforeach()
