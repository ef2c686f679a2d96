/* A search (lierne_search_int of src/base/sort.c) finds a number in an ascending list of up to 7
 * just if it is there.
 *
 * cbmc: src/base/sort.c --unwind 9 */
#include "base/base.h"
#include "proofs/proofs.h"

#define LIST 7

int main(void) {
    static int list[LIST];
    int n = any_int(0, LIST), number = nondet_int(), at = -1;
    for (int i = 0; i < LIST; i++) {
        list[i] = nondet_int();
        ASSUME(i == 0 || list[i - 1] < list[i]);
        at = i < n && list[i] == number ? i : at;
    }
    assert(lierne_search_int(list, n, number) == at);
}
