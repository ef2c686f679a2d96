/* Long messages are cut into pieces that lie in one piece at one end: where, and the walk over
 * them. Expected values are worked out by hand. */
#include "build/cut.h"

#include <criterion/criterion.h>

/* A box of 2 x 3 x 4 in buffers whose last axes it fills, or does not. */
static const int64_t size[3] = {2, 3, 4};

Test(cut, at_the_end_where_pieces_are_longer) {
    const int64_t row[3] = {9, 9, 4}, plane[3] = {9, 3, 4}, run[3] = {9, 9, 9};
    int64_t elements;
    cr_expect_eq(lierne_cut_axis(3, size, row, run, &elements), 1);
    cr_expect_eq(elements, 12);
    cr_expect_eq(lierne_cut_axis(3, size, run, run, &elements), 2);
    cr_expect_eq(elements, 4);
    cr_expect_eq(lierne_cut_axis(3, size, run, plane, &elements), 0);
    cr_expect_eq(elements, 24);
    cr_expect_eq(lierne_cut_axis(3, size, plane, run, &elements), 0);
}

Test(cut, pieces_cover_a_box_in_order) {
    const lierne_overlap box = {.start = {10, 20, 30},
                                .size = {2, 3, 4},
                                .local_a = {1, 2, 3},
                                .local_b = {5, 6, 7}};
    lierne_overlap piece = lierne_cut_first(&box, 2);
    int n = 0;
    do {
        int i = n / 3, j = n % 3;
        cr_expect(piece.size[0] == 1 && piece.size[1] == 1 && piece.size[2] == 4);
        cr_expect(piece.start[0] == 10 + i && piece.start[1] == 20 + j && piece.start[2] == 30);
        cr_expect(piece.local_a[0] == 1 + i && piece.local_a[1] == 2 + j && piece.local_a[2] == 3);
        cr_expect(piece.local_b[0] == 5 + i && piece.local_b[1] == 6 + j && piece.local_b[2] == 7);
        n++;
    } while (lierne_cut_next(&piece, &box, 2));
    cr_expect_eq(n, 6);
}

Test(cut, the_whole_box_is_one_piece_at_the_first_axis) {
    const lierne_overlap box = {.size = {2, 3, 4}};
    lierne_overlap piece = lierne_cut_first(&box, 0);
    cr_expect(piece.size[0] == 2 && piece.size[1] == 3 && piece.size[2] == 4);
    cr_expect_not(lierne_cut_next(&piece, &box, 0));
}
