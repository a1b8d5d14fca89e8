// SPDX-License-Identifier: BSD-2-Clause
#include "lattice_field.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPrevious, kNext };

void* allocate(size_t count, size_t size) {
    void* memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "lattice: no memory for %zu times %zu bytes\n", count, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// The last dimensions are cut first, as their surfaces are contiguous. False: ranks do not fit.
static int cut(const int extent[kDimensions], int ranks, int grid[kDimensions]) {
    for (int d = 0; d < kDimensions; ++d)
        grid[d] = 1;
    for (int prime = 2; ranks > 1;) {
        if (ranks % prime != 0) {
            ++prime;
            continue;
        }
        int best = -1;
        for (int d = kDimensions - 1; d >= 0; --d) {
            const int left = extent[d] / grid[d];
            if (left % prime == 0 && left / prime >= 2 &&
                (best < 0 || left > extent[best] / grid[best]))
                best = d;
        }
        if (best < 0) return 0;
        grid[best] *= prime;
        ranks /= prime;
    }
    return 1;
}

const char* lattice_refusal(const int extent[kDimensions], int ranks) {
    int grid[kDimensions];
    for (int d = 0; d < kDimensions; ++d)
        if (extent[d] < 2 || extent[d] > 256) return "needs extents from 2 to 256";
    return cut(extent, ranks, grid) ? NULL : "cannot be cut into as many equal parts, 2 sites wide";
}

// Numbers from -1/2 to 1/2 that depend on the words alone, by the mixer of splitmix64.
static double hashed(const int* words, int count) {
    uint64_t x = 0;
    for (int i = 0; i < count; ++i) {
        x += (uint64_t)(unsigned)words[i] + 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return (double)(x >> 11) / (double)(1ull << 53) - 0.5;
}

static struct matrix link_at(const int at[kDimensions], int direction) {
    struct matrix u;
    for (int i = 0; i < kColours; ++i)
        for (int j = 0; j < kReals; ++j)
            u.m[i][j] = hashed((int[]){at[0], at[1], at[2], at[3], direction, i, j}, 7);
    return u;
}

static struct vector known_at(const int at[kDimensions], int seed) {
    struct vector f;
    for (int i = 0; i < kReals; ++i)
        f.v[i] = hashed((int[]){at[0], at[1], at[2], at[3], -1 - seed, i}, 6);
    return f;
}

static void add_product(struct vector* out, const struct matrix* u, const struct vector* f) {
    for (int i = 0; i < kColours; ++i)
        for (int j = 0; j < kColours; ++j) {
            const double re = u->m[i][2 * j], im = u->m[i][2 * j + 1];
            out->v[2 * i] += 0.5 * (re * f->v[2 * j] - im * f->v[2 * j + 1]);
            out->v[2 * i + 1] += 0.5 * (re * f->v[2 * j + 1] + im * f->v[2 * j]);
        }
}

// The adjoint's product.
static struct vector turned_by(const struct matrix* u, const struct vector* f) {
    struct vector out = {{0}};
    for (int i = 0; i < kColours; ++i)
        for (int j = 0; j < kColours; ++j) {
            const double re = u->m[j][2 * i], im = -u->m[j][2 * i + 1];
            out.v[2 * i] += re * f->v[2 * j] - im * f->v[2 * j + 1];
            out.v[2 * i + 1] += re * f->v[2 * j + 1] + im * f->v[2 * j];
        }
    return out;
}

static void subtract_half(struct vector* out, const struct vector* f) {
    for (int i = 0; i < kReals; ++i)
        out->v[i] -= 0.5 * f->v[i];
}

static void coordinates(const int size[kDimensions], int number, int at[kDimensions]) {
    for (int d = kDimensions - 1; d >= 0; --d) {
        at[d] = number % size[d];
        number /= size[d];
    }
}

static int number_of(const int size[kDimensions], const int at[kDimensions]) {
    int number = 0;
    for (int d = 0; d < kDimensions; ++d)
        number = number * size[d] + at[d];
    return number;
}

// A site's place in a surface that is normal to d: a number without its coordinate d.
static int place_in_surface(const int size[kDimensions], const int at[kDimensions], int d) {
    int number = 0;
    for (int e = 0; e < kDimensions; ++e)
        if (e != d) number = number * size[e] + at[e];
    return number;
}

static void find_neighbours(struct lattice* a, int d) {
    a->surface[d] = a->sites / a->local[d];
    for (int side = kPrevious; side <= kNext; ++side) {
        a->beside[d][side] = allocate((size_t)a->sites, sizeof(int));
        a->edge[d][side] = allocate((size_t)a->surface[d], sizeof(int));
    }
    for (int site = 0; site < a->sites; ++site) {
        int at[kDimensions];
        coordinates(a->local, site, at);
        const int place = place_in_surface(a->local, at, d);
        for (int side = kPrevious; side <= kNext; ++side) {
            const int end = side == kPrevious ? 0 : a->local[d] - 1;
            int there[kDimensions];
            memcpy(there, at, sizeof there);
            there[d] = (at[d] + (side == kPrevious ? a->local[d] - 1 : 1)) % a->local[d];
            if (at[d] == end) a->edge[d][side][place] = site;
            a->beside[d][side][site] =
                at[d] == end && a->ranks[d] > 1 ? -1 - place : number_of(a->local, there);
        }
    }
}

struct lattice make_lattice(const int extent[kDimensions], int ranks) {
    struct lattice a = {.sites = 1};
    int periodic[kDimensions] = {1, 1, 1, 1}, self, place[kDimensions];
    memcpy(a.extent, extent, sizeof a.extent);
    cut(extent, ranks, a.ranks);
    MPI_Cart_create(MPI_COMM_WORLD, kDimensions, a.ranks, periodic, 0, &a.grid);
    MPI_Comm_rank(a.grid, &self);
    MPI_Cart_coords(a.grid, self, kDimensions, place);
    for (int d = 0; d < kDimensions; ++d) {
        a.local[d] = extent[d] / a.ranks[d];
        a.origin[d] = place[d] * a.local[d];
        a.sites *= a.local[d];
        MPI_Cart_shift(a.grid, d, 1, &a.neighbour[d][kPrevious], &a.neighbour[d][kNext]);
    }
    for (int d = 0; d < kDimensions; ++d) {
        find_neighbours(&a, d);
        a.links[d] = allocate((size_t)a.sites, sizeof(struct matrix));
        a.turned[d] = allocate((size_t)a.sites, sizeof(struct vector));
        for (int site = 0; site < a.sites; ++site) {
            int at[kDimensions];
            coordinates(a.local, site, at);
            for (int e = 0; e < kDimensions; ++e)
                at[e] += a.origin[e];
            a.links[d][site] = link_at(at, d);
        }
    }
    return a;
}

void free_lattice(struct lattice* a) {
    for (int d = 0; d < kDimensions; ++d) {
        for (int side = kPrevious; side <= kNext; ++side) {
            free(a->beside[d][side]);
            free(a->edge[d][side]);
        }
        free(a->links[d]);
        free(a->turned[d]);
    }
    MPI_Comm_free(&a->grid);
}

// A surface of a neighbour's field that is on its way, as MILC gathers it: with buffers that are
// allocated for each gather, and freed once it has been used.
struct gather {
    MPI_Request requests[2];
    struct vector *out, *halo;
};

// Begins to fetch the surface beyond this rank's part on a side; its own goes the other way. Not
// where a dimension has one rank.
static struct gather begin_gather(const struct lattice* a, const struct vector* field, int d,
                                  int side) {
    struct gather g = {.out = NULL};
    if (a->ranks[d] == 1) return g;
    const int count = a->surface[d], opposite = 1 - side, tag = 2 * d + side;
    g.out = allocate((size_t)count, sizeof *g.out);
    g.halo = allocate((size_t)count, sizeof *g.halo);
    for (int i = 0; i < count; ++i)
        g.out[i] = field[a->edge[d][opposite][i]];
    MPI_Irecv(g.halo, count * kReals, MPI_DOUBLE, a->neighbour[d][side], tag, a->grid,
              &g.requests[0]);
    MPI_Isend(g.out, count * kReals, MPI_DOUBLE, a->neighbour[d][opposite], tag, a->grid,
              &g.requests[1]);
    return g;
}

static void end_gather(struct gather* g) {
    if (g->out == NULL) return;
    MPI_Waitall(2, g->requests, MPI_STATUSES_IGNORE);
    free(g->out);
}

static const struct vector* at_side(const struct lattice* a, const struct vector* field,
                                    const struct gather* g, int d, int side, int site) {
    const int other = a->beside[d][side][site];
    return other >= 0 ? &field[other] : &g->halo[-1 - other];
}

void difference(struct lattice* a, const struct vector* in, struct vector* out) {
    struct gather gathers[kDimensions][2];
    for (int d = 0; d < kDimensions; ++d)
        gathers[d][kNext] = begin_gather(a, in, d, kNext);
    for (int d = 0; d < kDimensions; ++d) {
        for (int site = 0; site < a->sites; ++site)
            a->turned[d][site] = turned_by(&a->links[d][site], &in[site]);
        gathers[d][kPrevious] = begin_gather(a, a->turned[d], d, kPrevious);
    }
    memset(out, 0, (size_t)a->sites * sizeof *out);
    for (int d = 0; d < kDimensions; ++d) {
        for (int side = kPrevious; side <= kNext; ++side)
            end_gather(&gathers[d][side]);
        for (int site = 0; site < a->sites; ++site) {
            add_product(&out[site], &a->links[d][site],
                        at_side(a, in, &gathers[d][kNext], d, kNext, site));
            subtract_half(&out[site],
                          at_side(a, a->turned[d], &gathers[d][kPrevious], d, kPrevious, site));
        }
        for (int side = kPrevious; side <= kNext; ++side)
            if (gathers[d][side].out != NULL) free(gathers[d][side].halo);
    }
}

// The site `steps` further in a direction of the whole lattice.
static void step(const struct lattice* a, const int at[kDimensions], int d, int steps,
                 int there[kDimensions]) {
    memcpy(there, at, kDimensions * sizeof *there);
    there[d] = (at[d] + steps + a->extent[d]) % a->extent[d];
}

// (D f)(at) of a field that is a function of the site.
static struct vector known_difference(const struct lattice* a, const int at[kDimensions], int seed,
                                      int order) {
    if (order == 0) return known_at(at, seed);
    struct vector out = {{0}};
    for (int d = 0; d < kDimensions; ++d) {
        int there[kDimensions];
        step(a, at, d, 1, there);
        const struct vector next = known_difference(a, there, seed, order - 1);
        const struct matrix u = link_at(at, d);
        add_product(&out, &u, &next);
        step(a, at, d, -1, there);
        const struct vector previous = known_difference(a, there, seed, order - 1);
        const struct matrix back = link_at(there, d);
        const struct vector turned = turned_by(&back, &previous);
        subtract_half(&out, &turned);
    }
    return out;
}

static void on_all_sites(const struct lattice* a, int seed, double mass, int is_product,
                         struct vector* out) {
    for (int site = 0; site < a->sites; ++site) {
        int at[kDimensions];
        coordinates(a->local, site, at);
        for (int d = 0; d < kDimensions; ++d)
            at[d] += a->origin[d];
        out[site] = known_at(at, seed);
        if (!is_product) continue;
        const struct vector twice = known_difference(a, at, seed, 2);
        for (int i = 0; i < kReals; ++i)
            out[site].v[i] = mass * mass * out[site].v[i] - twice.v[i];
    }
}

void known_field(const struct lattice* a, int seed, struct vector* out) {
    on_all_sites(a, seed, 0, 0, out);
}

void known_product(const struct lattice* a, int seed, double mass, struct vector* out) {
    on_all_sites(a, seed, mass, 1, out);
}
