/* The strict reader of JSON: what it accepts, what it rejects and where. The cases follow the
 * families of RFC 8259's grammar; each expected place was counted by hand. */
#include "unit/expect.h"
#include "json/json.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct json_case {
    const char *name;
    const char *text;
    int number; /* the finding; 0: accepted */
    int line, column;
    const char *pointer;
} json_case;

#define OK_CASE(name, text)                                                                        \
    { name, text, 0, 0, 0, "" }
#define N(name, text, finding, column, pointer)                                                    \
    { name, text, LIERNE_DIAGNOSTIC_##finding, 1, column, pointer }

static const json_case accepted[] = {
    OK_CASE("array_empty", "[]"),
    OK_CASE("array_empty_string", "[\"\"]"),
    OK_CASE("array_false", "[false]"),
    OK_CASE("array_heterogeneous", "[null, 1, \"1\", {}]"),
    OK_CASE("array_with_newline", "[1\n]"),
    OK_CASE("array_leading_space", " [1]"),
    OK_CASE("array_several_null", "[1,null,null,null,2]"),
    OK_CASE("array_trailing_space", "[2] "),
    OK_CASE("array_nested", "[[]   ]"),
    OK_CASE("number_plain", "[123e65]"),
    OK_CASE("number_0e1", "[0e+1]"),
    OK_CASE("number_0e_1", "[0e1]"),
    OK_CASE("number_after_space", "[ 4]"),
    OK_CASE("number_close_to_zero",
            "[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]"),
    OK_CASE(
        "number_long_integer",
        "[10000000000000000000000000000000000000000000000000000000000000000000000000000001, 2]"),
    OK_CASE("number_minus_zero", "[-0]"),
    OK_CASE("number_negative", "[-123]"),
    OK_CASE("number_capital_e", "[1E22]"),
    OK_CASE("number_capital_e_minus", "[1E-2]"),
    OK_CASE("number_fraction_exponent", "[123.456e78]"),
    OK_CASE("number_tiny", "[1e-999]"),
    OK_CASE("number_zero_large_exponent", "[0e999]"),
    OK_CASE("number_largest", "[9.99e307]"),
    OK_CASE("number_small_digits_large_exponent", "[0.0001e311]"),
    OK_CASE("object_basic", "{\"asd\":\"sdf\"}"),
    OK_CASE("object_empty", "{}"),
    OK_CASE("object_empty_key", "{\"\":0}"),
    OK_CASE("object_keys_differ_in_case", "{\"tp\":1,\"TP\":2}"),
    OK_CASE("object_same_key_in_two", "{\"a\":{\"b\":1},\"c\":{\"b\":1}}"),
    OK_CASE("object_key_after_same_value", "{\"a\":\"b\",\"b\":\"a\"}"),
    OK_CASE("object_with_newlines", "{\n\"a\": \"b\"\n}"),
    OK_CASE("object_crlf", "{\r\n\"a\":\t1\r\n}\r\n"),
    OK_CASE("string_escapes", "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]"),
    OK_CASE("string_two_byte", "[\"\\u0123\"]"),
    OK_CASE("string_surrogate_pair", "[\"\\uD801\\udc37\"]"),
    OK_CASE("string_two_pairs", "[\"\\ud83d\\ude39\\ud83d\\udc8d\"]"),
    OK_CASE("string_backslash_u_escaped", "[\"\\\\u0000\"]"),
    OK_CASE("string_delete", "[\"a\x7f\"]"),
    OK_CASE("string_utf8_bounds",
            "[\"\xe0\xa0\x80 \xed\x9f\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf\"]"),
    OK_CASE("string_utf8", "[\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"]"),
    OK_CASE("string_last_point", "[\"\xf4\x8f\xbf\xbf\"]"),
    OK_CASE("string_before_surrogates", "[\"\xed\x9f\xbf\"]"),
    OK_CASE("string_nonchar_escape", "[\"\\uFFFF\"]"),
    OK_CASE("string_bom_inside", "[\"\xef\xbb\xbf\"]"),
    OK_CASE("lonely_string", "\"asd\""),
    OK_CASE("lonely_integer", "42"),
    OK_CASE("lonely_null", "null"),
    OK_CASE("lonely_true", "true"),
    OK_CASE("white_space_around", " \t\r\n[] \n"),
};

static const json_case rejected[] = {
    N("empty", "", SYNTAX, 1, ""),
    N("only_space", "  ", SYNTAX, 3, ""),
    N("single_letter", "x", SYNTAX, 1, ""),
    N("array_comma_and_number", "[,1]", SYNTAX, 2, "/0"),
    N("array_colon", "[\"\": 1]", SYNTAX, 4, ""),
    N("array_comma_after_close", "[\"\"],", TRAILING, 5, ""),
    N("array_double_comma", "[1,,2]", SYNTAX, 4, "/1"),
    N("array_extra_close", "[\"x\"]]", TRAILING, 6, ""),
    N("array_extra_comma", "[\"\",]", SYNTAX, 5, "/1"),
    N("array_incomplete", "[\"x\"", SYNTAX, 5, ""),
    N("array_inner_array_no_comma", "[3[4]]", SYNTAX, 3, ""),
    N("array_items_by_semicolon", "[1:2]", SYNTAX, 3, ""),
    N("array_just_comma", "[,]", SYNTAX, 2, "/0"),
    N("array_just_minus", "[-]", NUMBER, 2, "/0"),
    N("array_missing_value", "[   , \"\"]", SYNTAX, 5, "/0"),
    N("array_star", "[*]", SYNTAX, 2, "/0"),
    N("array_unclosed", "[1", SYNTAX, 3, ""),
    N("array_unclosed_comma", "[1,", SYNTAX, 4, "/1"),
    N("array_unclosed_object", "[{}", SYNTAX, 4, ""),
    N("array_closed_by_brace", "[1}", SYNTAX, 3, ""),
    N("incomplete_false", "[fals]", SYNTAX, 2, "/0"),
    N("incomplete_null", "[nul]", SYNTAX, 2, "/0"),
    N("incomplete_true", "[tru]", SYNTAX, 2, "/0"),
    N("true_and_more", "[truex]", SYNTAX, 6, ""),
    N("capitalised_true", "[True]", SYNTAX, 2, "/0"),
    N("nan", "[NaN]", SYNTAX, 2, "/0"),
    N("infinity", "[Infinity]", SYNTAX, 2, "/0"),
    N("minus_infinity", "[-Infinity]", NUMBER, 2, "/0"),
    N("number_plus", "[+1]", NUMBER, 2, "/0"),
    N("number_double_minus", "[--1.]", NUMBER, 2, "/0"),
    N("number_leading_zero", "[007]", NUMBER, 2, "/0"),
    N("number_minus_leading_zero", "[-01]", NUMBER, 2, "/0"),
    N("number_no_fraction", "[1.]", NUMBER, 2, "/0"),
    N("number_no_fraction_e", "[2.e3]", NUMBER, 2, "/0"),
    N("number_no_integer", "[.5]", NUMBER, 2, "/0"),
    N("number_minus_no_integer", "[-.5]", NUMBER, 2, "/0"),
    N("number_no_exponent", "[1e]", NUMBER, 2, "/0"),
    N("number_no_exponent_plus", "[1e+]", NUMBER, 2, "/0"),
    N("number_double_exponent", "[1ee2]", NUMBER, 2, "/0"),
    N("number_too_large", "[1e999]", NUMBER, 2, "/0"),
    N("number_too_large_digits", "[100e306]", NUMBER, 2, "/0"),
    N("number_just_too_large", "[-1e308]", NUMBER, 2, "/0"),
    N("number_exponent_past_long", "[1e99999999999999999999]", NUMBER, 2, "/0"),
    N("number_hex", "[0x1]", SYNTAX, 3, ""),
    N("number_letter", "[1a]", SYNTAX, 3, ""),
    N("number_two_points", "[1.2.3]", SYNTAX, 5, ""),
    N("number_underscore", "[1_000]", SYNTAX, 3, ""),
    N("number_leading_zero_first_finding", "[1, 02]", NUMBER, 5, "/1"),
    N("object_bad_value", "{\"x\": truth}", SYNTAX, 7, "/x"),
    N("object_bracket_key", "{[: 1}", SYNTAX, 2, ""),
    N("object_comma_instead_of_colon", "{\"x\", 1}", SYNTAX, 5, ""),
    N("object_double_colon", "{\"x\"::1}", SYNTAX, 6, "/x"),
    N("object_missing_colon", "{\"a\" 1}", SYNTAX, 6, ""),
    N("object_missing_key", "{:1}", SYNTAX, 2, ""),
    N("object_missing_value", "{\"a\":", SYNTAX, 6, "/a"),
    N("object_unquoted_key", "{a:1}", SYNTAX, 2, ""),
    N("object_single_quote", "{'a':0}", SYNTAX, 2, ""),
    N("object_trailing_comma", "{\"id\":0,}", SYNTAX, 9, ""),
    N("object_two_commas", "{\"a\":0,,\"b\":1}", SYNTAX, 8, ""),
    N("object_trailing_comment", "{}/**/", TRAILING, 3, ""),
    N("object_trailing_hash", "{} #", TRAILING, 4, ""),
    N("object_comment_inside", "{/*x*/}", SYNTAX, 2, ""),
    N("object_closed_by_bracket", "{\"a\":0]", SYNTAX, 7, ""),
    N("object_key_only", "{\"a\"", SYNTAX, 5, ""),
    N("object_deep_pointer", "{\"a\":[{\"b~/\":01}]}", NUMBER, 14, "/a/0/b~0~1"),
    N("text_after_value", "{\"tp\":2}}}x", TRAILING, 9, ""),
    N("two_values", "1 2", TRAILING, 3, ""),
    N("string_raw_tab", "[\"\t\"]", CONTROL, 3, "/0"),
    N("string_raw_newline", "[\"a\nb\"]", CONTROL, 4, "/0"),
    N("string_bad_escape", "[\"\\x00\"]", ESCAPE, 3, "/0"),
    N("string_escape_quote", "[\"\\'\"]", ESCAPE, 3, "/0"),
    N("string_short_hex", "[\"\\u00A\"]", ESCAPE, 3, "/0"),
    N("string_hex_letter", "[\"\\u00G0\"]", ESCAPE, 3, "/0"),
    N("string_ends_in_escape", "[\"\\", ESCAPE, 3, "/0"),
    N("string_ends_in_hex", "[\"\\u12", ESCAPE, 3, "/0"),
    N("string_nul_escape", "[\"a\\u0000b\"]", NUL, 4, "/0"),
    N("string_high_alone", "[\"\\uD800\"]", SURROGATE, 3, "/0"),
    N("string_high_and_letter", "[\"\\uD800x\"]", SURROGATE, 3, "/0"),
    N("string_high_and_high", "[\"\\uD800\\uD800\"]", SURROGATE, 3, "/0"),
    N("string_high_and_escape", "[\"\\uD800\\n\"]", SURROGATE, 3, "/0"),
    N("string_low_alone", "[\"ab\\uDC00\"]", SURROGATE, 5, "/0"),
    N("string_unclosed", "[\"asd]", SYNTAX, 7, "/0"),
    N("string_single_quotes", "['a']", SYNTAX, 2, "/0"),
    N("string_latin1", "[\"\xe9\"]", UTF8, 3, "/0"),
    N("string_continuation_alone", "[\"\x81\"]", UTF8, 3, "/0"),
    N("string_overlong_two", "[\"\xc0\xaf\"]", UTF8, 3, "/0"),
    N("string_overlong_three", "[\"\xe0\x80\xaf\"]", UTF8, 3, "/0"),
    N("string_overlong_four", "[\"\xf0\x80\x80\xaf\"]", UTF8, 3, "/0"),
    N("string_utf8_surrogate", "[\"\xed\xa0\x80\"]", UTF8, 3, "/0"),
    N("string_past_last_point", "[\"\xf4\x90\x80\x80\"]", UTF8, 3, "/0"),
    N("string_truncated_sequence", "[\"\xe2\x82\"]", UTF8, 3, "/0"),
    N("string_truncated_four", "[\"ab\xf0\x9f\x98\"]", UTF8, 5, "/0"),
    N("byte_order_mark", "\xef\xbb\xbf{}", BYTE_ORDER_MARK, 1, ""),
    N("half_byte_order_mark", "\xef\xbb{}", SYNTAX, 1, ""),
    N("form_feed", "[\f]", SYNTAX, 2, "/0"),
    N("no_break_space", "[\xc2\xa0]", SYNTAX, 2, "/0"),
    N("key_raw_control", "{\"a\x01\":1}", CONTROL, 4, ""),
    N("key_bad_utf8", "{\"\xff\":1}", UTF8, 3, ""),
    {"second_line", "{\n  \"a\": 1,\n  \"b\": 02\n}", LIERNE_DIAGNOSTIC_NUMBER, 3, 8, "/b"},
    {"end_of_lines", "[\r\n1\r\n", LIERNE_DIAGNOSTIC_SYNTAX, 3, 1, ""},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void check_pointer(const lierne_json *doc, int node, const char *expected,
                          const char *name) {
    lierne_text text = {0};
    lierne_json_pointer(doc, node, &text);
    cr_assert_str_eq(text.data ? text.data : "", expected, "%s: pointer '%s'", name, text.data);
    lierne_text_clear(&text);
}

Test(json, accepts) {
    for (size_t i = 0; i < COUNT(accepted); i++) {
        lierne_json doc;
        lierne_status status = lierne_json_parse(&doc, accepted[i].text, strlen(accepted[i].text));
        cr_expect_eq(status, LIERNE_OK, "%s: %s", accepted[i].name, lierne_last_error());
        lierne_json_destroy(&doc);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

Test(json, rejects) {
    for (size_t i = 0; i < COUNT(rejected); i++) {
        const json_case *c = &rejected[i];
        lierne_json doc;
        cr_assert_eq(lierne_json_parse(&doc, c->text, strlen(c->text)), LIERNE_ERR_SYNTAX, "%s",
                     c->name);
        cr_expect_eq(doc.fault.number, c->number, "%s: number %d", c->name, doc.fault.number);
        cr_expect(doc.fault.place.line == c->line && doc.fault.place.column == c->column,
                  "%s: at %d:%d", c->name, doc.fault.place.line, doc.fault.place.column);
        check_pointer(&doc, doc.fault.node, c->pointer, c->name);
        lierne_json_destroy(&doc);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

/* A byte that is no printable character is told by its number. */
Test(json, tells_the_byte_that_it_found) {
    static const char *const cases[][2] = {
        {"[!]", "found '!'"},          {"[~]", "found '~'"},          {"[\x7f]", "found byte 0x7F"},
        {"[\x1f]", "found byte 0x1F"}, {"[\xc3]", "found byte 0xC3"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        lierne_json doc;
        cr_assert_eq(lierne_json_parse(&doc, cases[i][0], 3), LIERNE_ERR_SYNTAX);
        cr_expect(strstr(doc.fault.message, cases[i][1]), "%s", doc.fault.message);
        lierne_json_destroy(&doc);
    }
}

/* A zero byte is no end of text. */
Test(json, rejects_zero_bytes) {
    static const struct {
        const char *text;
        size_t length;
        int number, column;
    } cases[] = {
        {"[1]\0", 4, LIERNE_DIAGNOSTIC_TRAILING, 4},
        {"[\"a\0b\"]", 7, LIERNE_DIAGNOSTIC_CONTROL, 4},
        {"[\0]", 3, LIERNE_DIAGNOSTIC_SYNTAX, 2},
        {"[\"\xe2\0", 4, LIERNE_DIAGNOSTIC_UTF8, 3},
        {"\0", 1, LIERNE_DIAGNOSTIC_SYNTAX, 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        lierne_json doc;
        cr_assert_eq(lierne_json_parse(&doc, cases[i].text, cases[i].length), LIERNE_ERR_SYNTAX);
        cr_expect_eq(doc.fault.number, cases[i].number, "case %zu", i);
        cr_expect_eq(doc.fault.place.column, cases[i].column, "case %zu", i);
        lierne_json_destroy(&doc);
    }
}

/* Text beyond the length given is not read, whatever it is. */
Test(json, reads_no_further_than_length) {
    lierne_json doc;
    assert_ok(lierne_json_parse(&doc, "[1]]]]", 3));
    lierne_json_destroy(&doc);
    cr_assert_eq(lierne_json_parse(&doc, NULL, 0), LIERNE_ERR_SYNTAX);
    lierne_json_destroy(&doc);
}

static void check_duplicate(const lierne_json *doc, size_t i, int line, int column,
                            const char *pointer, int first_column) {
    const lierne_json_duplicate *d = &doc->duplicates.at[i];
    const lierne_json_node *node = &doc->nodes.at[d->node], *first = &doc->nodes.at[d->first];
    cr_expect(node->key_place.line == line && node->key_place.column == column, "%zu: %d:%d", i,
              node->key_place.line, node->key_place.column);
    cr_expect_eq(first->key_place.column, first_column, "%zu", i);
    check_pointer(doc, d->node, pointer, "duplicate");
}

Test(json, finds_all_duplicate_keys) {
    const char *text = "{\"a\":1,\"\\u0061\":{\"x\":1,\"y\":2,\"x\":3},\n"
                       "\"\xc3\xa9\":1,\"a\":2,\"\\u00e9\":3,\"A\":4}";
    lierne_json doc;
    cr_assert_eq(lierne_json_parse(&doc, text, strlen(text)), LIERNE_ERR_SYNTAX);
    cr_assert_eq(doc.fault.number, 0);
    cr_assert_eq(doc.duplicates.count, 4);
    check_duplicate(&doc, 0, 1, 8, "/a", 2);
    check_duplicate(&doc, 1, 2, 8, "/a", 2);
    check_duplicate(&doc, 2, 2, 14, "/\xc3\xa9", 1);
    check_duplicate(&doc, 3, 1, 30, "/a/x", 18);
    lierne_json_destroy(&doc);
}

/* Outside the first plane a code point is one sequence of four bytes or two escapes. */
Test(json, surrogate_pairs_are_one_point) {
    const char *text = "{\"\xf0\x9f\x98\x80\":1,\"\\uD83D\\uDE00\":2,\"\\uDBFF\\uDFFF\":3}";
    lierne_json doc;
    cr_assert_eq(lierne_json_parse(&doc, text, strlen(text)), LIERNE_ERR_SYNTAX);
    cr_assert_eq(doc.duplicates.count, 1);
    check_duplicate(&doc, 0, 1, 11, "/\xf0\x9f\x98\x80", 2);
    check_pointer(&doc, 3, "/\xf4\x8f\xbf\xbf", "escaped");
    lierne_json_destroy(&doc);
}

Test(json, finds_duplicates_before_a_fault) {
    const char *text = "{\"a\":1,\"a\":[{\"b\":1,\"b\":02";
    lierne_json doc;
    cr_assert_eq(lierne_json_parse(&doc, text, strlen(text)), LIERNE_ERR_SYNTAX);
    cr_assert_eq(doc.fault.number, LIERNE_DIAGNOSTIC_NUMBER);
    cr_assert_eq(doc.duplicates.count, 2);
    check_duplicate(&doc, 0, 1, 8, "/a", 2);
    check_duplicate(&doc, 1, 1, 20, "/a/0/b", 14);
    lierne_json_destroy(&doc);
}

/* Member of an object by its exact key, NULL if there is none. */
static const lierne_json_node *member(const lierne_json *doc, const lierne_json_node *node,
                                      const char *key) {
    const lierne_json_node *m = lierne_json_first(node);
    while (m && strcmp(lierne_json_key(m), key) != 0) {
        m = lierne_json_next(doc, m);
    }
    return m;
}

Test(json, tree_has_places_and_values) {
    const char *text = "{ \"shape\": {\"tp\": 2,\n  \"dp\": -9223372036854775808},\n"
                       " \"list\": [true, 1.0, 9223372036854775808, 1e2, \"\\u00e9\", -0] }";
    lierne_json doc;
    assert_ok(lierne_json_parse(&doc, text, strlen(text)));
    const lierne_json_node *shape = member(&doc, &doc.nodes.at[0], "shape");
    const lierne_json_node *tp = lierne_json_first(shape), *dp = lierne_json_next(&doc, tp);
    cr_expect(tp->integer && tp->value == 2 && tp->key_place.column == 13 &&
              tp->place.column == 19);
    cr_expect(dp->integer && dp->value == INT64_MIN && dp->place.line == 2);
    cr_expect_eq(dp->place.column, 9);
    cr_expect_null(lierne_json_next(&doc, dp));
    cr_expect_null(member(&doc, shape, "TP"));
    const lierne_json_node *n = lierne_json_first(lierne_json_next(&doc, shape));
    cr_expect(n->type == LIERNE_JSON_BOOLEAN && n->value == 1 && n->place.column == 11);
    for (int i = 0; i < 3; i++) {
        n = lierne_json_next(&doc, n);
        cr_expect(n->type == LIERNE_JSON_NUMBER && !n->integer, "element %d", n->index);
    }
    n = lierne_json_next(&doc, n);
    cr_expect_str_eq(lierne_json_string(n), "\xc3\xa9");
    n = lierne_json_next(&doc, n);
    cr_expect(n->integer && n->value == 0);
    lierne_json_destroy(&doc);
}

/* Long numbers are read although not every cJSON can: it is given blanks in their place. */
Test(json, long_numbers_keep_the_tree) {
    char text[400] = "[0.";
    memset(text + 3, '1', 200);
    strcpy(text + 203, ",[7],\"x\"]");
    lierne_json doc;
    assert_ok(lierne_json_parse(&doc, text, strlen(text)));
    const lierne_json_node *n = lierne_json_next(&doc, lierne_json_first(&doc.nodes.at[0]));
    cr_expect_eq(lierne_json_first(n)->value, 7);
    cr_expect_str_eq(lierne_json_string(lierne_json_next(&doc, n)), "x");
    cr_expect_eq(strncmp(doc.text, "[0   ", 5), 0);
    lierne_json_destroy(&doc);
}

/* count times a, then b, then count times c. */
static char *build(const char *a, const char *b, const char *c, size_t count) {
    size_t la = strlen(a), lb = strlen(b), lc = strlen(c);
    char *text = malloc(count * (la + lc) + lb + 1), *p = text;
    for (size_t i = 0; i < count; i++, p += la) {
        memcpy(p, a, la);
    }
    memcpy(p, b, lb);
    p += lb;
    for (size_t i = 0; i < count; i++, p += lc) {
        memcpy(p, c, lc);
    }
    *p = '\0';
    return text;
}

static void check_bound(char *text, int number, int column) {
    lierne_json doc;
    lierne_status status = lierne_json_parse(&doc, text, strlen(text));
    cr_expect_eq(status, number ? LIERNE_ERR_SYNTAX : LIERNE_OK, "%s", lierne_last_error());
    cr_expect_eq(doc.fault.number, number);
    cr_expect_eq(doc.fault.place.column, column);
    lierne_json_destroy(&doc);
    free(text);
}

Test(json, bounds_are_exact) {
    check_bound(build("[", "", "]", 64), 0, 0);
    check_bound(build("[", "", "]", 65), LIERNE_DIAGNOSTIC_DEPTH, 65);
    check_bound(build("{\"a\":", "1", "}", 64), 0, 0);
    check_bound(build("{\"a\":", "1", "}", 65), LIERNE_DIAGNOSTIC_DEPTH, 64 * 5 + 1);
    check_bound(build("[", "", "", 1000000), LIERNE_DIAGNOSTIC_DEPTH, 65);
    check_bound(build("", "[1", ",1", 999998), LIERNE_DIAGNOSTIC_SYNTAX, 999998 * 2 + 3);
    check_bound(build("", "[1", ",1", 999999), LIERNE_DIAGNOSTIC_VALUES, 999999 * 2 + 2);
    check_bound(build(" ", "1", "", LIERNE_JSON_MAX_SIZE - 1), 0, 0);
    check_bound(build(" ", "1", "", LIERNE_JSON_MAX_SIZE), LIERNE_DIAGNOSTIC_SIZE, 1);
}

static char *long_string(const char *before, size_t length, const char *after) {
    char *text = malloc(length + strlen(before) + strlen(after) + 1);
    strcpy(text, before);
    memset(text + strlen(before), 'x', length);
    strcpy(text + strlen(before) + length, after);
    return text;
}

Test(json, string_bounds_are_exact) {
    check_bound(long_string("[\"", 65536, "\"]"), 0, 0);
    check_bound(long_string("[\"", 65537, "\"]"), LIERNE_DIAGNOSTIC_LENGTH, 2);
    check_bound(long_string("{\"", 65536, "\":1}"), 0, 0);
    check_bound(long_string("{\"", 65537, "\":1}"), LIERNE_DIAGNOSTIC_LENGTH, 2);
}

/* Inputs that make a careless reader quadratic must stay quick: these take well under a second
 * when linear and hours when not. */
Test(json, hostile_texts_take_linear_time, .timeout = 200) {
    char *text = malloc((size_t)15 << 20), *p = text;
    *p++ = '{';
    for (int i = 0; i < 400000; i++) {
        p += sprintf(p, "%s\"%d\":0", i ? "," : "", i % 100 * 4000 + i / 100);
    }
    strcpy(p, "}");
    check_bound(text, 0, 0);
    text = malloc((size_t)15 << 20);
    p = text;
    *p++ = '{';
    for (int i = 0; i < 400000; i++) {
        p += sprintf(p, "%s\"a\":0", i ? "," : "");
    }
    strcpy(p, "}");
    lierne_json doc;
    cr_assert_eq(lierne_json_parse(&doc, text, strlen(text)), LIERNE_ERR_SYNTAX);
    cr_expect_eq(doc.duplicates.count, 399999);
    lierne_json_destroy(&doc);
    free(text);
}

Test(json, every_failed_allocation_is_reported) {
    const char *text = "{\"a\":[1,2,{\"b\":\"c\"}],\"d\":{\"e\":[[],[],[]]}, \"a\":1, \"a\":2}";
    size_t k = 1;
    lierne_status status;
    do {
        lierne_json doc;
        lierne_mem_fail_at(k);
        status = lierne_json_parse(&doc, text, strlen(text));
        lierne_mem_fail_at(0);
        lierne_json_destroy(&doc);
        cr_assert_eq(lierne_mem_live(), 0, "allocation %zu leaks", k);
        k++;
    } while (status == LIERNE_ERR_NO_MEMORY);
    cr_expect_eq(status, LIERNE_ERR_SYNTAX);
    cr_expect_gt(k, 4);
}

/* Each prefix of a text, and each with a byte changed, is read or rejected, never worse. */
Test(json, broken_texts_never_crash) {
    const char *good =
        "{\"a\":[1,-2.5e3,\"\\ud83d\\ude00\xc3\xa9\",true,null],\"b\":{\"c\":\"\\n\"}}";
    static const char bytes[] = {'\0', '"', '\\', 'u', '{', ']', ',', '0', '-', '\x80', '\xff'};
    size_t length = strlen(good), accepted_count = 0;
    for (size_t i = 0; i < length; i++) {
        char *text = malloc(length);
        lierne_json doc;
        memcpy(text, good, length);
        cr_expect_eq(lierne_json_parse(&doc, text, i), LIERNE_ERR_SYNTAX, "prefix %zu", i);
        lierne_json_destroy(&doc);
        for (size_t b = 0; b < sizeof bytes; b++) {
            text[i] = bytes[b];
            accepted_count += lierne_json_parse(&doc, text, length) == LIERNE_OK;
            lierne_json_destroy(&doc);
        }
        free(text);
    }
    cr_expect_gt(accepted_count, 0);
    cr_assert_eq(lierne_mem_live(), 0);
}
