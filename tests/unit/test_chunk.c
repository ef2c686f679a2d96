/* Long messages are cut into pieces that lie in one piece at one end: where, and the walk over
 * them. Expected values are worked out by hand. */
#include "plan/redistribute/chunk.h"

#include <criterion/criterion.h>

/* A box of 2 x 3 x 4 in buffers whose last axes it fills, or does not. */
static const int64_t size[3] = {2, 3, 4};

Test(chunk, at_the_end_where_pieces_are_longer) {
    const int64_t row[3] = {9, 9, 4}, plane[3] = {9, 3, 4}, run[3] = {9, 9, 9};
    lierne_chunking cut = lierne_chunking_of(3, size, row, run, 100);
    cr_expect(cut.axis == 1 && cut.elements == 12 && cut.lines == 3);
    cut = lierne_chunking_of(3, size, run, run, 100);
    cr_expect(cut.axis == 2 && cut.elements == 4 && cut.lines == 4);
    cut = lierne_chunking_of(3, size, run, plane, 100);
    cr_expect(cut.axis == 0 && cut.elements == 24 && cut.lines == 2);
    cut = lierne_chunking_of(3, size, plane, run, 100);
    cr_expect(cut.axis == 0 && cut.lines == 2);
}

/* Only what one end must pack is cut further, into windows of whole lines. */
Test(chunk, into_windows_where_one_end_packs) {
    const int64_t row[3] = {9, 9, 4}, plane[3] = {9, 3, 4}, run[3] = {9, 9, 9};
    const int64_t tall[3] = {7, 3, 4};
    cr_expect_eq(lierne_chunking_of(3, tall, plane, run, 30).lines, 2);
    cr_expect_eq(lierne_chunking_of(3, tall, run, plane, 5).lines, 1);
    cr_expect_eq(lierne_chunking_of(3, tall, plane, plane, 30).lines, 7);
    cr_expect_eq(lierne_chunking_of(3, tall, plane, run, 42).lines, 7);
    cr_expect_eq(lierne_chunking_of(3, tall, row, row, 1).lines, 3);
}

Test(chunk, windows_cover_a_box_in_order) {
    const lierne_overlap box = {.start = {10, 20, 30},
                                .size = {2, 7, 4},
                                .local_a = {1, 2, 3},
                                .local_b = {5, 6, 7}};
    const lierne_chunking cut = {.axis = 1, .lines = 3};
    static const int64_t first[] = {0, 3, 6}, lines[] = {3, 3, 1};
    lierne_overlap piece = lierne_chunking_first(&box, &cut);
    int n = 0;
    do {
        int i = n / 3, j = n % 3;
        cr_expect(piece.size[0] == 1 && piece.size[1] == lines[j] && piece.size[2] == 4);
        cr_expect(piece.start[0] == 10 + i && piece.start[1] == 20 + first[j]);
        cr_expect(piece.local_a[0] == 1 + i && piece.local_a[1] == 2 + first[j]);
        cr_expect(piece.local_b[0] == 5 + i && piece.local_b[1] == 6 + first[j]);
        n++;
    } while (lierne_chunking_next(&piece, &box, &cut));
    cr_expect_eq(n, 6);
}

Test(chunk, pieces_cover_a_box_in_order) {
    const lierne_overlap box = {.start = {10, 20, 30},
                                .size = {2, 3, 4},
                                .local_a = {1, 2, 3},
                                .local_b = {5, 6, 7}};
    const lierne_chunking cut = {.axis = 2, .lines = 4};
    lierne_overlap piece = lierne_chunking_first(&box, &cut);
    int n = 0;
    do {
        int i = n / 3, j = n % 3;
        cr_expect(piece.size[0] == 1 && piece.size[1] == 1 && piece.size[2] == 4);
        cr_expect(piece.start[0] == 10 + i && piece.start[1] == 20 + j && piece.start[2] == 30);
        cr_expect(piece.local_a[0] == 1 + i && piece.local_a[1] == 2 + j && piece.local_a[2] == 3);
        cr_expect(piece.local_b[0] == 5 + i && piece.local_b[1] == 6 + j && piece.local_b[2] == 7);
        n++;
    } while (lierne_chunking_next(&piece, &box, &cut));
    cr_expect_eq(n, 6);
}

Test(chunk, the_whole_box_is_one_piece_at_the_first_axis) {
    const lierne_overlap box = {.size = {2, 3, 4}};
    const lierne_chunking cut = {.axis = 0, .lines = 2};
    lierne_overlap piece = lierne_chunking_first(&box, &cut);
    cr_expect(piece.size[0] == 2 && piece.size[1] == 3 && piece.size[2] == 4);
    cr_expect_not(lierne_chunking_next(&piece, &box, &cut));
}
