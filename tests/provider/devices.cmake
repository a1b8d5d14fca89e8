# SPDX-License-Identifier: BSD-2-Clause
# The provider on devices that are not the default one: with single freedoms of
# hardware, with an Ethernet port, or without something.
function(on_device name traits cases)
    string(REGEX MATCH "^[^.]+" label ${name})
    heddle_device_test(${name} ${label}_test ${traits} "${cases}" ${ARGN})
endfunction()

# An Ethernet port, whose first GID is one of RoCE v1, or none at all; by the GID that heddle chooses,
# and by one that the user names.
foreach(cases Transfers.TaggedMessages Seeds/Operations.LeaveNoTraceInEachOther/1_ring_tupleq Death.*
        Unreachable.InjectedOperationsEndWithAnEntryEach By/Tuples.BetweenAllPairs/tupleq)
    string(REGEX REPLACE "[.]\\*$" "" name "${cases}")
    string(REGEX REPLACE ".*[./]" "" name "${name}")
    on_device(fi.roce.${name} kind "${cases}" PORT roce)
endforeach()
on_device(fi.roce_v2.TaggedMessages no-roce-v1 Transfers.TaggedMessages PORT roce)
on_device(fi.roce_index.TaggedMessages kind Transfers.TaggedMessages PORT roce
    ENVIRONMENT FI_HEDDLE_GID_INDEX=0)

# Between processes of one host, through shared memory (fi_shm_test.cc has cases of its own).
foreach(cases Transfers.TaggedMessages Seeds/Operations.LeaveNoTraceInEachOther/1_ring_rget
        Seeds/Mixture.IsReadInOrder/1 RndvModes/Schedules.FollowTheRulesOfMatching/rget
        By/Closing.OfBothWithMessagesForEachOther/rget Death.SenderThatSleepsIsTold)
    string(REGEX REPLACE "^[A-Za-z]+/" "" name "${cases}")
    on_device(fi.shm.${name} kind "${cases}" ENVIRONMENT FI_HEDDLE_SHM=on)
endforeach()

# Without keepalive nothing but the device wakes a sleeper.
on_device(fi.device.arm arm SleepingReaders.*
    ENVIRONMENT FI_HEDDLE_POST=direct FI_HEDDLE_KEEPALIVE=0)
# Not under ThreadSanitizer: the software device reads a register that several threads' QPs share after its
# lock has been released, which an adapter cannot.
set(static_4 static_4)
if(HEDDLE_SANITIZE STREQUAL "thread")
    set(static_4 "")
endif()
# QPs of all domains, of the connector and of tuple queues on two uUARs: some are posted to directly.
foreach(category IN ITEMS ${static_4} mpi_everywhere_4 mpi_threads_4)
    on_device(fi.device.shared_uuar.${category} shared-uuar Categories/Threads.InARing/${category}
        ENVIRONMENT FI_HEDDLE_POST=direct MLX5_TOTAL_UUARS=2 MLX5_NUM_LOW_LAT_UUARS=0)
endforeach()
foreach(category IN ITEMS ${static_4} 2xdynamic_16)
    on_device(fi.device.no_blueflame.${category} no-blueflame Categories/Threads.InARing/${category}
        ENVIRONMENT FI_HEDDLE_POST=direct)
endforeach()

# Devices that lack something, and one that lacks it all.
set(lacking_all no-atomics,no-thread-domains,few-sges,small-inline)
foreach(traits no-atomics no-thread-domains few-sges small-inline ${lacking_all} ${lacking_all},no-xrc)
    foreach(case Transfers.TaggedMessages Injects.MessagesOfEverySize Injects.WritesOfEverySize
            Memory.WritesAndReads Seeds/Mixture.IsReadInOrder/1)
        string(REPLACE "," "+" name fi.${traits}.${case})
        on_device(${name} ${traits} ${case})
    endforeach()
endforeach()

# With a child, on a kernel whose fork() takes registered pages away.
foreach(way rget rput)
    on_device(fi.no-copy-on-fork.WhileAChildLives.${way} no-copy-on-fork
        By/Reuse.WhileAChildLives/${way})
endforeach()

# libmlx5's variables, which users may have set: messages by the direct path, and a reader that sleeps.
foreach(variable IN ITEMS MLX5_SHUT_UP_BF=1 MLX5_SINGLE_THREADED=1 MLX5_CQE_SIZE=128
        MLX5_SCATTER_TO_CQE=0 MLX5_POST_SEND_PREFER_BF=0 MLX5_TOTAL_UUARS=8 MLX5_STALL_CQ_POLL=1
        MLX5_FREEZE_ON_ERROR_CQE=1 MLX_QP_ALLOC_TYPE=PREFER_HUGE MLX_CQ_ALLOC_TYPE=PREFER_HUGE
        MLX_SRQ_ALLOC_TYPE=PREFER_CONTIG)
    string(REGEX REPLACE "=.*" "" name ${variable})
    on_device(fi.device.${name} kind Transfers.TaggedMessages:SleepingReaders.WokenByAMessage
        ENVIRONMENT FI_HEDDLE_POST=direct ${variable})
endforeach()
