/* The hash by which ranks compare their arguments: FNV-1a, the same on every machine. */
#include "base/base.h"

uint64_t lierne_hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    hash = hash ? hash : 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}
