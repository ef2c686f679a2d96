/* The hash by which ranks compare their arguments: XXH3, the same on every machine. */
#include "base/base.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t lierne_hash(uint64_t hash, const void *data, size_t bytes) {
    return XXH3_64bits_withSeed(data, bytes, hash);
}
