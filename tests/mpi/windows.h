// SPDX-License-Identifier: BSD-2-Clause
// Windows of the three kinds behind one interface: memory of MPI's own (allocate), of ours
// (create), and attached to a window without memory (dynamic), where targets are named by address.
#pragma once

#include "support.h"

enum window_kind { kAllocated, kCreated, kDynamic, kWindowKinds };
extern const char* const kWindowNames[kWindowKinds];

struct window {
    enum window_kind kind;
    MPI_Win win;
    unsigned char* base;  // this rank's part, all bytes 0xee at first
    MPI_Aint* places;     // each rank's displacement of byte 0
};

// Collective over MPI_COMM_WORLD; all ranks have the same size.
struct window window_make(enum window_kind kind, size_t size);
void window_free(struct window* window);

// The displacement of this byte in the window of rank `target`.
MPI_Aint place_of(const struct window* window, int target, size_t byte);
