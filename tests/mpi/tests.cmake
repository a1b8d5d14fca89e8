# SPDX-License-Identifier: BSD-2-Clause
# Registers the scripts of this folder with ctest, each with its short set and, labelled `long`, with
# the whole matrix. See README.md.
set(mpi_tests ${CMAKE_CURRENT_LIST_DIR})
foreach(length short full)
    set(suffix "")
    set(labels mpi foreign)
    set(timeout "")
    if(length STREQUAL "full")
        set(suffix .full)
        list(APPEND labels long)
        set(timeout 40000)
    endif()
    foreach(mpi mpich openmpi impi openmpi-debian)
        set(name mpi.${mpi}${suffix})
        add_test(NAME ${name} COMMAND ${HEDDLE_PYTHON} ${mpi_tests}/run_mpi.py --${length}
            --mpi ${mpi} --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/mpi
            --venvs ${PROJECT_BINARY_DIR}/venvs)
        # Every day MPICH, which asks the most of a provider; the others in `make test-long`.
        set(labels_here ${labels})
        if(NOT mpi STREQUAL "mpich")
            list(APPEND labels_here long)
        endif()
        heddle_test_properties(${name} LABELS ${labels_here} TIMEOUT ${timeout})
        # The short set on a device as harsh as hardware, the whole matrix on the kind one.
        if(length STREQUAL "short")
            set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
                SOFTHCA_DEVICE=${HEDDLE_TEST_DEVICE})
        endif()
        if(length STREQUAL "full" OR NOT mpi STREQUAL "mpich")
            set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
        endif()
    endforeach()
endforeach()

# Jobs on several hosts, by ssh and by a private Slurm; those are skipped where it is not installed.
add_test(NAME mpi.hosts COMMAND ${HEDDLE_PYTHON} ${mpi_tests}/run_hosts.py
    --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/mpi
    --venvs ${PROJECT_BINARY_DIR}/venvs)
heddle_test_properties(mpi.hosts LABELS mpi foreign)

# Longer ones, which are not in `make test`: mpi4py's own tests at one to four ranks, over heddle and
# over tcp; LAMMPS and hypre, likewise; libfabric's tests, which are fetched and built.
add_test(NAME mpi.mpi4py.full COMMAND ${HEDDLE_PYTHON} ${mpi_tests}/run_mpi4py.py --full
    --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/mpi
    --venvs ${PROJECT_BINARY_DIR}/venvs)
add_test(NAME mpi.programs.full COMMAND ${HEDDLE_PYTHON} ${mpi_tests}/run_programs.py --full
    --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/mpi
    --venvs ${PROJECT_BINARY_DIR}/venvs)
add_test(NAME provider.fabtests.full COMMAND ${HEDDLE_PYTHON}
    ${CMAKE_CURRENT_LIST_DIR}/../provider/run_fabtests.py --full
    --softhca ${SOFTHCA_COMMAND} --scratch ${PROJECT_BINARY_DIR}/fabtests)
foreach(name mpi.mpi4py.full mpi.programs.full provider.fabtests.full)
    heddle_test_properties(${name} LABELS mpi foreign long TIMEOUT 20000)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
endforeach()
