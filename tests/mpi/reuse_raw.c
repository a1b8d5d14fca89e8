// SPDX-License-Identifier: BSD-2-Clause
// reuse.c as a program whose allocator, and whose system calls for memory, are linked into it. So a
// library that wants to know what the program unmaps cannot interpose munmap(), mremap(), madvise()
// or free().
#define _GNU_SOURCE
#include <stdlib.h>

#include "raw_memory.h"
#include "support.h"

#define mmap raw_mmap
#define munmap raw_munmap
#define mremap raw_mremap
#define madvise raw_madvise
#define malloc raw_malloc
#define realloc raw_realloc
#define free raw_free

#include "reuse.c"
