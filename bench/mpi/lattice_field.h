// SPDX-License-Identifier: BSD-2-Clause
// A 4-dimensional periodic lattice of colour vectors over a grid of ranks, and the difference
// operator of staggered fermions on it. lattice.c solves systems with it.
#pragma once

#include <mpi.h>
#include <stddef.h>

enum { kDimensions = 4, kColours = 3, kReals = 2 * kColours };

// Three complex numbers, as real and imaginary parts.
struct vector {
    double v[kReals];
};
struct matrix {
    double m[kColours][kReals];
};

// What a rank has of the lattice.
struct lattice {
    MPI_Comm grid;
    int extent[kDimensions];             // of the whole lattice
    int ranks[kDimensions];              // of the grid
    int local[kDimensions];              // this rank's part
    int origin[kDimensions];             // its first site
    int neighbour[kDimensions][2];       // previous and next ranks
    int sites;                           // this rank's
    int surface[kDimensions];            // sites of its part with one value of a coordinate
    int* beside[kDimensions][2];         // site -> the previous, next one; -1 - n: n-th of the halo
    int* edge[kDimensions][2];           // the sites of the first, the last surface, in one order
    struct matrix* links[kDimensions];   // from a site to the next one
    struct vector* turned[kDimensions];  // links' adjoint times a field
};

// Extents and ranks have to fit: see lattice_refusal(). Aborts without memory.
struct lattice make_lattice(const int extent[kDimensions], int ranks);
void free_lattice(struct lattice* a);

// Why there is no such lattice over so many ranks; NULL: there is.
const char* lattice_refusal(const int extent[kDimensions], int ranks);

// out = D in, where (D f)(x) = sum over mu of U_mu(x) f(x + mu) - U_mu(x - mu)^+ f(x - mu), half of
// it. All ranks call it. D is anti-Hermitian.
void difference(struct lattice* a, const struct vector* in, struct vector* out);

// A field that all ranks know without messages, and (mass^2 - D^2) times it, also without.
void known_field(const struct lattice* a, int seed, struct vector* out);
void known_product(const struct lattice* a, int seed, double mass, struct vector* out);

void* allocate(size_t count, size_t size);
