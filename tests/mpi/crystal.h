/* Atoms of a crystal and which of them are near one another. */
#ifndef TESTS_MPI_CRYSTAL_H
#define TESTS_MPI_CRYSTAL_H

#include <stdint.h>

typedef struct crystal {
    double cell[3][3]; /* a vector each */
    int64_t natoms;
    int *element; /* of each atom, by its place in the file's list */
    double (*at)[3];
} crystal;

/* An edge per neighbour: source -> target, of all atoms within the radius, images too. */
typedef struct bonds {
    int64_t n;
    int64_t *source, *target;
    double *length;
} bonds;

/* A POSCAR file's, repeated `times` times along each vector; natoms 0 where it cannot be read. */
crystal crystal_read(const char *path, int times);
void crystal_free(crystal *c);
/* radius: less than what the cell is wide, so that an atom is at most one image away. */
bonds crystal_bonds(const crystal *c, double radius);
void bonds_free(bonds *b);

#endif
