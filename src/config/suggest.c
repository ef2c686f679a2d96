/* Hints for a word that is not known: what other tools call the same, or the candidate that is
 * nearest to it (by insertions, deletions, replacements and swaps of neighbours, capitals aside),
 * and the candidates. A far one is not suggested: a wrong guess costs more than none. */
#include "config/read.h"

#include <string.h>

enum { LONGEST = 32, LISTED = 12 };

static const struct {
    const char *word, *meant;
} aliases[] = {
    {"float64", "f64"},
    {"double", "f64"},
    {"fp64", "f64"},
    {"float32", "f32"},
    {"float", "f32"},
    {"fp32", "f32"},
    {"single", "f32"},
    {"bfloat16", "bf16"},
    {"float16", "f16"},
    {"half", "f16"},
    {"fp16", "f16"},
    {"int64", "i64"},
    {"long", "i64"},
    {"int32", "i32"},
    {"int", "i32"},
    {"int8", "i8"},
    {"char", "i8"},
    {"uint8", "u8"},
    {"byte", "u8"},
    {"dims", "order"},
    {"sizes", "shape"},
    {"dim_names", "order"},
    {"offset", "rank_offset"},
    {"target", "dst"},
    {"destination", "dst"},
};

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Changes that make one word of the other; LONGEST for words that are longer than that. */
static int distance(const char *a, const char *b) {
    int row[3][LONGEST + 1];
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST || n > LONGEST) {
        return LONGEST;
    }
    for (size_t i = 0; i <= m; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            now[j] = now[j - 1] + 1;
            if (i > 0) {
                int differs = lower(a[i - 1]) != lower(b[j - 1]);
                now[j] = least(least(now[j], before[j] + 1), before[j - 1] + differs);
            }
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1])) {
                now[j] = least(now[j], earlier[j - 2] + 1);
            }
        }
    }
    return row[m % 3][n];
}

static const char *nearest(const char *word, const lierne_config_words *words) {
    const char *found = NULL;
    int best = (int)strlen(word) / 3 + 1;
    for (int i = 0; i < words->n; i++) {
        int d = distance(word, words->at[i]);
        if (d < best) {
            best = d;
            found = words->at[i];
        }
    }
    return found;
}

static const char *alias(const char *word, const lierne_config_words *words) {
    for (size_t a = 0; a < sizeof aliases / sizeof *aliases; a++) {
        for (int i = 0; i < words->n && strcmp(aliases[a].word, word) == 0; i++) {
            if (strcmp(words->at[i], aliases[a].meant) == 0) {
                return aliases[a].meant;
            }
        }
    }
    return NULL;
}

void lierne_config_suggest(lierne_text *hint, const char *word, const char *intro,
                           const lierne_config_words *words) {
    const char *meant = alias(word, words), *close = nearest(word, words);
    if (meant) {
        lierne_text_add(hint, "write %s; ", lierne_quote(meant).text);
    } else if (close) {
        lierne_text_add(hint, "did you mean %s? ", lierne_quote(close).text);
    }
    lierne_text_add(hint, "%s", intro);
    for (int i = 0; i < words->n && i < LISTED; i++) {
        lierne_text_add(hint, "%s%s", i ? ", " : "", words->at[i]);
    }
    if (words->n > LISTED) {
        lierne_text_add(hint, ", ... %d more", words->n - LISTED);
    }
}
