/* Reading is for the files of tests/structures: at most nine elements, "Direct" coordinates.
 * Neighbours are searched among all pairs and the 27 nearest images: slow, and obviously right. */
#include "mpi/crystal.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 9 };

/* Lines up to the coordinates. Returns the number of elements, 0 if something else stands there. */
static int read_head(FILE *file, crystal *c, int64_t *counts) {
    char line[256];
    double scale;
    int n = 0, used, at = 0;
    if (!fgets(line, sizeof line, file) || fscanf(file, "%lf", &scale) != 1) {
        return 0;
    }
    for (int i = 0; i < 9; i++) {
        if (fscanf(file, "%lf", &c->cell[i / 3][i % 3]) != 1) {
            return 0;
        }
        c->cell[i / 3][i % 3] *= scale;
    }
    if (fscanf(file, " %255[^\n]", line) != 1 || fscanf(file, " %255[^\n]", line) != 1) {
        return 0;
    }
    while (n < MAX_ELEMENTS && sscanf(line + at, "%" SCNd64 "%n", &counts[n], &used) == 1) {
        at += used;
        n++;
    }
    return fscanf(file, " %255[^\n]", line) == 1 && strncmp(line, "Direct", 6) == 0 ? n : 0;
}

static void place(crystal *c, int64_t atom, int element, const double *fraction) {
    for (int d = 0; d < 3; d++) {
        c->at[atom][d] = 0;
        for (int v = 0; v < 3; v++) {
            c->at[atom][d] += fraction[v] * c->cell[v][d];
        }
    }
    c->element[atom] = element;
}

/* The atoms of the file in each of the repeated cells. */
static bool read_atoms(FILE *file, crystal *c, const int64_t *counts, int elements, int times) {
    for (int e = 0; e < elements; e++) {
        for (int64_t i = 0; i < counts[e]; i++) {
            double f[3];
            if (fscanf(file, "%lf %lf %lf", &f[0], &f[1], &f[2]) != 3) {
                return false;
            }
            for (int k = 0; k < times * times * times; k++) {
                double moved[3] = {f[0] + k % times, f[1] + k / times % times,
                                   f[2] + k / times / times};
                place(c, c->natoms++, e, moved);
            }
        }
    }
    return true;
}

crystal crystal_read(const char *path, int times) {
    crystal c = {.natoms = 0};
    int64_t counts[MAX_ELEMENTS], total = 0;
    FILE *file = fopen(path, "r");
    int elements = file ? read_head(file, &c, counts) : 0;
    for (int e = 0; e < elements; e++) {
        total += counts[e] * times * times * times;
    }
    c.element = calloc((size_t)total + 1, sizeof *c.element);
    c.at = calloc((size_t)total + 1, sizeof *c.at);
    if (elements && !read_atoms(file, &c, counts, elements, times)) {
        c.natoms = 0;
    }
    for (int i = 0; i < 9; i++) {
        c.cell[i / 3][i % 3] *= times;
    }
    if (file) {
        fclose(file);
    }
    return c;
}

void crystal_free(crystal *c) {
    free(c->element), free(c->at);
}

static double distance(const crystal *c, int64_t a, int64_t b, int image) {
    double square = 0;
    int by[3] = {image % 3 - 1, image / 3 % 3 - 1, image / 9 - 1};
    for (int d = 0; d < 3; d++) {
        double x = c->at[a][d] - c->at[b][d];
        for (int v = 0; v < 3; v++) {
            x += by[v] * c->cell[v][d];
        }
        square += x * x;
    }
    return sqrt(square);
}

bonds crystal_bonds(const crystal *c, double radius) {
    bonds b = {.n = 0};
    int64_t capacity = 0;
    for (int64_t i = 0; i < c->natoms * c->natoms * 27; i++) {
        int64_t from = i / 27 / c->natoms, to = i / 27 % c->natoms;
        double length = distance(c, from, to, (int)(i % 27));
        if (length > radius || (from == to && i % 27 == 13)) {
            continue;
        }
        if (b.n == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            b.source = realloc(b.source, (size_t)capacity * sizeof *b.source);
            b.target = realloc(b.target, (size_t)capacity * sizeof *b.target);
            b.length = realloc(b.length, (size_t)capacity * sizeof *b.length);
        }
        b.source[b.n] = from;
        b.target[b.n] = to;
        b.length[b.n++] = length;
    }
    return b;
}

void bonds_free(bonds *b) {
    free(b->source), free(b->target), free(b->length);
}
