/* Packing the blocks of a message one behind another, and unpacking them; copying them from where
 * the sender has them. */
#include "runtime/execute/execution.h"

void lierne_execution_pack_segment(const lierne_execution *e, const lierne_segment *segment,
                                   char *staged, bool unpack) {
    const lierne_subroute *subroute = segment->subroute;
    const lierne_message *message = segment->message;
    int64_t offset = 0;
    for (size_t b = 0; b < message->blocks.count; b++) {
        const lierne_block *block = &message->blocks.at[b];
        lierne_block packed = lierne_block_packed(block, offset);
        if (unpack) {
            e->context->memory->copy(subroute->size, subroute->base[message->buffer], block, staged,
                                     &packed);
        } else {
            e->context->memory->copy(subroute->size, staged, &packed,
                                     lierne_execution_readable(subroute, message->buffer), block);
        }
        offset += lierne_block_elements(block);
    }
}

void lierne_execution_pack(const lierne_execution *e, const lierne_coalesced_message *m,
                           char *staged, bool unpack) {
    for (size_t i = m->first; i < m->first + m->count; i++) {
        lierne_execution_pack_segment(e, &e->segments.at[i], staged, unpack);
        staged += lierne_segment_bytes(&e->segments.at[i]);
    }
}

void lierne_execution_copy_segment(const lierne_execution *e, const lierne_segment *segment,
                                   const lierne_part *part) {
    const lierne_message *message = segment->message;
    e->context->memory->copy_blocks((size_t)e->cursor.arriving, segment->subroute->size,
                                    segment->subroute->base[message->buffer], message->blocks.at,
                                    message->blocks.count, part->base, part->blocks, part->nblocks);
}
