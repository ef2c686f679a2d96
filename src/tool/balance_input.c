/* Where items come from. A formula draws lengths from a generator that is written down in
 * docs/command.md, so that a mixture of samples is a line of text, and the same one everywhere. */
#include "tool/balance_input.h"

#include "tool/import.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 3 };

/* Numbers of a line, as many as there are, -1: something else is there too. */
static int read_numbers(int64_t *to, const char *line) {
    int n = 0;
    while (*line && *line != '\n') {
        char *end;
        errno = 0;
        int64_t value = strtoll(line, &end, 10);
        if (end == line || n == COLUMNS || errno || value < 0) {
            return -1;
        }
        to[n++] = value;
        line = end + strspn(end, " \t,;\r");
    }
    return n;
}

bool balance_parse_number(int64_t *to, const char *text) {
    int64_t numbers[COLUMNS];
    bool good = read_numbers(numbers, text) == 1 && !text[strspn(text, "0123456789")];
    *to = good ? numbers[0] : *to;
    return good;
}

static int no_memory(char **argv, const balance_table *t) {
    tool_say(argv, "no memory for %lld items", (long long)t->n);
    return TOOL_USAGE;
}

static bool add_entry(balance_table *t, int64_t rank, int64_t cost, int64_t rows) {
    if (t->n == t->capacity) {
        int64_t capacity = t->capacity ? 2 * t->capacity : 1024;
        balance_entry *grown = realloc(t->at, (size_t)capacity * sizeof *grown);
        if (!grown) {
            return false;
        }
        t->at = grown, t->capacity = capacity;
    }
    t->at[t->n] = (balance_entry){rank, cost, rows, t->n};
    t->n++;
    t->highest = rank > t->highest ? rank : t->highest;
    return true;
}

static int read_lines(balance_table *t, char **argv, const char *path, const char *text) {
    for (int64_t number = 1; *text; number++) {
        const char *line = text + strspn(text, " \t\r");
        int64_t numbers[COLUMNS];
        bool heading = number == 1 && *line && !strchr("+-.0123456789#\n", *line);
        int n = *line == '#' || heading ? 0 : read_numbers(numbers, line);
        if (n < 0 || n == 1 || (n > 1 && numbers[0] >= LIERNE_MAX_RANKS)) {
            tool_say(argv, "%s:%lld: must be a rank below %d, a cost and maybe rows, at least 0",
                     path, (long long)number, LIERNE_MAX_RANKS);
            return TOOL_USAGE;
        }
        if (n > 1 && !add_entry(t, numbers[0], numbers[1], numbers[n - 1])) {
            return no_memory(argv, t);
        }
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return -1;
}

static int reject(char **argv, const char *path, const char *key, const char *must) {
    tool_say(argv, "%s: %s must be %s", path, key, must);
    return TOOL_USAGE;
}

static uint64_t draw(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static uint64_t draw_bell(uint64_t *x) {
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++) {
        sum += draw(x) % 8;
    }
    uint64_t base = (uint64_t)16 << sum / 8;
    return base + base * (sum % 8) / 8 + draw(x) % (base / 8);
}

static uint64_t draw_bimodal(uint64_t *x) {
    return draw(x) % 20 == 0 ? 4000 + draw(x) % 16001 : 32 + draw(x) % 569;
}

static uint64_t draw_octave(uint64_t *x) {
    uint64_t base = 64;
    while (base < (uint64_t)64 << 9 && draw(x) % 2 == 1) {
        base *= 2;
    }
    return base + draw(x) % base;
}

static uint64_t draw_uniform(uint64_t *x) {
    return 1 + draw(x) % 1000;
}

static uint64_t draw_equal(uint64_t *x) {
    (void)x;
    return 1024;
}

/* The place of a text of an object in a list that ends with NULL; the first one without the key,
 * -1: another text. */
static int find_word(const cJSON *object, const char *key, const char *const *words) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    const char *text = cJSON_GetStringValue(item);
    for (int i = 0; words[i]; i++) {
        if (!item || (text && strcmp(text, words[i]) == 0)) {
            return i;
        }
    }
    return -1;
}

static int draw_items(balance_table *t, char **argv, const char *path, const cJSON *formula) {
    static const char *const costs[] = {"rows", "square", "mixed", NULL};
    static const char *const homes[] = {"even", "front", NULL};
    static const char *const lengths[] = {"bell", "bimodal", "octave", "uniform", "equal", NULL};
    static uint64_t (*const draws[])(uint64_t * x) = {draw_bell, draw_bimodal, draw_octave,
                                                      draw_uniform, draw_equal};
    int kind = find_word(formula, "lengths", lengths), cost = find_word(formula, "cost", costs);
    int home = find_word(formula, "home", homes);
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(formula, "seed");
    int64_t n, seed = 0;
    if (kind < 0 || cost < 0 || home < 0) {
        return kind < 0   ? reject(argv, path, "lengths", "bell, bimodal, octave, uniform or equal")
               : cost < 0 ? reject(argv, path, "cost", "rows, square or mixed")
                          : reject(argv, path, "home", "even or front");
    }
    if (!import_whole(&n, cJSON_GetObjectItemCaseSensitive(formula, "items"), 0, 100000000)) {
        return reject(argv, path, "items", "a number from 0 to 100000000");
    }
    if (given && !import_whole(&seed, given, 0, (int64_t)1 << 53)) {
        return reject(argv, path, "seed", "a number from 0 to 2^53");
    }
    uint64_t x = (uint64_t)seed;
    for (int64_t j = 0; j < n; j++) {
        int64_t rows = (int64_t)draws[kind](&x);
        int64_t rank = home ? (int64_t)((__int128)j * j * t->nranks / n / n) : j * t->nranks / n;
        int64_t by[] = {rows, rows * rows, 24576 * rows + rows * rows};
        if (!add_entry(t, rank, by[cost], rows)) {
            return no_memory(argv, t);
        }
    }
    return -1;
}

/* cost, rows and home_items: the items in the order of ranks. */
static int read_arrays(balance_table *t, char **argv, const char *path, const cJSON *all) {
    const cJSON *homes = cJSON_GetObjectItemCaseSensitive(all, "home_items");
    const cJSON *costs = cJSON_GetObjectItemCaseSensitive(all, "cost");
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(all, "rows"), *row, *cost, *home;
    int64_t left = 0, rank = -1, numbers[2];
    if (!cJSON_IsArray(homes) || !cJSON_IsArray(costs) || (rows && !cJSON_IsArray(rows))) {
        return reject(argv, path, "home_items, cost and rows", "lists; rows may be left out");
    }
    row = rows ? rows->child : costs->child;
    home = homes->child;
    cJSON_ArrayForEach(cost, costs) {
        for (; left == 0 && home; home = home->next, rank++) {
            if (!import_whole(&left, home, 0, INT32_MAX)) {
                return reject(argv, path, "home_items", "numbers of items, at least 0");
            }
        }
        if (left == 0 || !row) {
            break;
        }
        if (!import_whole(&numbers[0], cost, 0, (int64_t)1 << 53) ||
            !import_whole(&numbers[1], row, 0, INT32_MAX)) {
            return reject(argv, path, "cost and rows", "whole numbers, at least 0");
        }
        if (!add_entry(t, rank, numbers[0], numbers[1])) {
            return no_memory(argv, t);
        }
        left--;
        row = row->next;
    }
    for (; left == 0 && home; home = home->next) {
        left = cJSON_IsNumber(home) && home->valuedouble == 0 ? 0 : 1;
    }
    t->nranks = t->nranks ? t->nranks : cJSON_GetArraySize(homes);
    return cost || row || left > 0
               ? reject(argv, path, "home_items, cost and rows", "of as many items each")
               : -1;
}

static int read_object(balance_table *t, char **argv, const char *path, const cJSON *all) {
    static const char *const keys[] = {"ranks", "formula", "home_items", "cost", "rows", NULL};
    const cJSON *item, *formula = cJSON_GetObjectItemCaseSensitive(all, "formula");
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(all, "ranks");
    cJSON_ArrayForEach(item, all) {
        int k = 0;
        while (keys[k] && strcmp(keys[k], item->string) != 0) {
            k++;
        }
        if (!keys[k] || (formula && k > 1)) {
            return reject(argv, path, "its keys",
                          "ranks and formula, or ranks, home_items, cost and rows");
        }
    }
    if ((ranks || formula) && !import_whole(&t->nranks, ranks, 1, LIERNE_MAX_RANKS)) {
        return reject(argv, path, "ranks", "a number from 1 to 16777216");
    }
    return formula ? draw_items(t, argv, path, formula) : read_arrays(t, argv, path, all);
}

static int read_json(balance_table *t, char **argv, const char *path, const char *text) {
    cJSON *all = cJSON_ParseWithOpts(text, NULL, 1);
    int status = all ? read_object(t, argv, path, all) : reject(argv, path, "it", "valid JSON");
    cJSON_Delete(all);
    return status;
}

/* Spreadsheets begin their files with a byte order mark, which is part of no line. */
int balance_read(balance_table *t, char **argv, const char *path) {
    static const char mark[] = "\xef\xbb\xbf";
    const import_world world = {.argv = argv};
    char *text = import_read(&world, path);
    const char *from = text && strncmp(text, mark, strlen(mark)) == 0 ? text + strlen(mark) : text;
    int status = !text            ? TOOL_USAGE
                 : from[0] == '{' ? read_json(t, argv, path, from)
                                  : read_lines(t, argv, path, from);
    free(text);
    return status;
}
