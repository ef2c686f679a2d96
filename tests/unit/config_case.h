/* A configuration for tests of its reader. */
#ifndef CONFIG_CASE_H
#define CONFIG_CASE_H

#include "lierne/config.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

#include <string.h>

/* A file that uses every key of the format. */
static const char full[] =
    "{\"$schema\": \"x\", \"comment\": [1], \"source\": {\"a\": 1}, \"world_size\": 10,\n"
    " \"nodes\": [0,0,0,0,0,1,1,1,1,1], \"cover_world\": true,\n"
    " \"grids\": {\n"
    "  \"comment\": \"no grid\",\n"
    "  \"vision\": {\"order\": [\"tp\",\"dp\"], \"shape\": {\"tp\":2,\"dp\":4}, \"heads\": 16,\n"
    "    \"rank_offset\": 2},\n"
    "  \"llm\": {\"order\": [\"tp\",\"cp\",\"dp\"],\n"
    "    \"shape\": {\"tp\":2,\"comment\":\"no dim\",\"cp\":2,\"dp\":2},\n"
    "    \"views\": {\n"
    "      \"expert\": {\"order\": [\"ep\",\"edp\"], \"shape\": {\"ep\":4,\"edp\":2}},\n"
    "      \"fine\": {\"order\": [\"a\",\"b\",\"edp\"], \"shape\": {\"a\":2,\"b\":2,\"edp\":2},\n"
    "        \"shared\": [\"edp\"], \"with\": \"expert\"},\n"
    "      \"joined\": {\"order\": [\"tp\",\"dp\"], \"shape\": {\"tp\":2,\"dp\":4}}}}},\n"
    " \"bridges\": [\n"
    "  {\"name\": \"packed\", \"src\": \"vision\", \"dst\": \"llm\",\n"
    "   \"tensor\": {\"axes\": [\"s\",\"b\",\"h\"], \"shape\": {\"b\":4,\"s\":2,\"h\":3},\n"
    "     \"dtype\": \"f16\"}, \"batch\": \"b\", \"sequence\": \"s\",\n"
    "   \"gradient\": {\"owner\": \"rows\", \"storage\": \"compact\", \"rows\": "
    "[0,1,1,0,1,1,0,0]},\n"
    "   \"algorithm\": \"direct\", \"counts\": {\"src\": [0,1,2,1], \"dst\": [1,3]},\n"
    "   \"require_divisible\": false},\n"
    "  {\"name\": \"plain\", \"src\": \"vision\", \"dst\": \"vision\", \"batch\": \"b\",\n"
    "   \"tensor\": {\"axes\": [\"b\",\"h\"], \"shape\": {\"b\":8,\"h\":3}, \"dtype\": \"f32\"},\n"
    "   \"algorithm\": \"collective\", \"require_divisible\": true},\n"
    "  {\"name\": \"flat\", \"src\": \"vision\", \"dst\": \"llm\", \"dst_view\": \"joined\",\n"
    "   \"tensor\": {\"axes\": [\"h\",\"b\"], \"shape\": {\"b\":32,\"h\":4}, \"dtype\": \"i32\",\n"
    "     \"rows_per_sample\": 4, \"row_order\": \"sequence\"}, \"batch\": \"b\",\n"
    "   \"placements\": {\"src\": {\"tp\": {\"shard\": \"s\"}}, \"dst\": {\"tp\": {\"zigzag\": "
    "\"h\"}}}},\n"
    "  {\"name\": \"own\", \"src\": \"llm\", \"dst\": \"llm\", \"src_view\": \"base\", \"batch\": "
    "\"b\",\n"
    "   \"tensor\": {\"axes\": [\"b\",\"s\",\"h\"], \"shape\": {\"b\":4,\"s\":8,\"h\":2},\n"
    "     \"dtype\": \"f32\"}, \"sequence\": \"s\", \"output\": \"sharded\",\n"
    "   \"placements\": {\"comment\": 1, \"src\": {\"source\": 2, \"tp\": {\"shard\": \"h\"},\n"
    "     \"cp\": {\"zigzag\": \"s\", \"comment\": 3}}},\n"
    "   \"gradient\": {\"owner\": \"contiguous\"}}]}";

static inline lierne_config *parse(const char *text, lierne_status expected) {
    lierne_config *config;
    lierne_status status = lierne_config_parse(&config, text, strlen(text));
    cr_assert_eq(status, expected, "%s: %s", lierne_status_name(status), lierne_last_error());
    cr_assert_not_null(config);
    return config;
}

#endif
