// SPDX-License-Identifier: BSD-2-Clause
// What the targets wqe_fuzz and segment_fuzz have the engine do: post, receive, complete, fail, and
// write anything into rings, receive lists, doorbell records and completion queues.
#pragma once

#include "softhca/engine/requester.h"
#include "wqe_world.h"

namespace softhca::fuzz {

void one_operation(World& w, Input& input);

// Gives up to `most` queue pairs that wait a turn.
void run_listed(World& w, engine::Runner who, unsigned most);
// What waits for a timer of some microseconds has its turn, and what was never run.
void run_all_listed(World& w);

// Undoes the damage that operations did to words of the segment's records, and to its regions.
void restore_words();
void restore_regions();

}  // namespace softhca::fuzz
