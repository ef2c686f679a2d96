/* Lengths of samples that look like those of jobs, drawn as tests/golden/samples.json has them: the
 * same numbers on every machine. */
#ifndef LIERNE_TESTS_LENGTHS_H
#define LIERNE_TESTS_LENGTHS_H

#include <stdint.h>

/* The next number of a sequence, below 2^31; *x is its seed, and then its state. */
uint64_t draw_number(uint64_t *x);

/* The next length. kind: "bell" (lognormal, near 500), "bimodal" (texts, and 5 % videos), "octave"
 * (as many from 64 to 127 as above, and so on), "uniform" (1 to 1000) or "equal" (1024). */
int64_t draw_length(const char *kind, uint64_t *x);

#endif
