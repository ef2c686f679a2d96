/* The heap of memory that ranks register: 20,000 random takes and gives against a map of its bytes.
 */
#include "runtime/transport/heap.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>

#define UNIT   256
#define UNITS  64 /* of both chunks */
#define FIRST  40 /* of the first one */
#define BLOCKS 32

static unsigned state = 1;
static unsigned draw(unsigned n) {
    state = state * 1103515245u + 12345u;
    return (state >> 16) % n;
}

static _Alignas(UNIT) char chunks[2][UNITS * UNIT];

static void fill(lierne_heap *heap) {
    cr_assert_eq(lierne_heap_take(heap, 1), NULL, "nothing to take from");
    assert_ok(lierne_heap_add(heap, chunks[0], FIRST * UNIT));
    assert_ok(lierne_heap_add(heap, chunks[1], (UNITS - FIRST) * UNIT));
    cr_assert_eq(lierne_heap_bytes(heap), UNITS * UNIT);
}

/* The first gap of so many units in the map, within a chunk; -1: there is none. */
static int find(const bool *map, int units) {
    for (int at = 0; at + units <= UNITS; at++) {
        bool is_free = at >= FIRST || at + units <= FIRST;
        for (int i = 0; i < units; i++) {
            is_free &= !map[at + i];
        }
        if (is_free) {
            return at;
        }
    }
    return -1;
}

static void check_used(const lierne_heap *heap, const bool *map) {
    cr_assert_eq(lierne_heap_is_used(heap, &heap->chunks.at[0]), memchr(map, true, FIRST) != NULL);
    cr_assert_eq(lierne_heap_is_used(heap, &heap->chunks.at[1]),
                 memchr(map + FIRST, true, UNITS - FIRST) != NULL);
}

Test(heap, blocks_are_the_first_that_fit) {
    lierne_heap heap = {0};
    struct {
        char *at;
        int unit, units;
    } blocks[BLOCKS] = {0};
    bool map[UNITS] = {0};
    fill(&heap);
    for (int i = 0; i < 20000; i++) {
        unsigned b = draw(BLOCKS);
        if (blocks[b].at) {
            cr_assert(lierne_heap_give(&heap, blocks[b].at));
            cr_assert(!lierne_heap_give(&heap, blocks[b].at), "given back twice");
            memset(map + blocks[b].unit, 0, (size_t)blocks[b].units);
            blocks[b].at = NULL;
        } else {
            int bytes = 1 + (int)draw(8 * UNIT), units = (bytes + UNIT - 1) / UNIT;
            int unit = find(map, units);
            char *at = lierne_heap_take(&heap, bytes);
            cr_assert_eq(at == NULL, unit < 0);
            if (at) {
                cr_assert_eq(lierne_heap_place(&heap, at + 3), unit * UNIT + 3);
                cr_assert_eq(at, unit < FIRST ? chunks[0] + unit * UNIT
                                              : chunks[1] + (unit - FIRST) * UNIT);
                memset(map + unit, 1, (size_t)units);
                blocks[b].at = at;
                blocks[b].unit = unit;
                blocks[b].units = units;
            }
        }
        check_used(&heap, map);
    }
    lierne_heap_destroy(&heap);
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(heap, foreign_memory_is_in_no_chunk) {
    lierne_heap heap = {0};
    fill(&heap);
    cr_assert_eq(lierne_heap_place(&heap, (void *)((uintptr_t)chunks - 1)), -1);
    cr_assert_eq(lierne_heap_place(&heap, chunks[0] + FIRST * UNIT), -1);
    cr_assert_eq(lierne_heap_place(&heap, NULL), -1);
    cr_assert(!lierne_heap_give(&heap, NULL));
    cr_assert(!lierne_heap_give(&heap, chunks[0]), "not taken");
    lierne_heap_destroy(&heap);
}
