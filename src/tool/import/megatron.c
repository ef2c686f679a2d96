/* Megatron-LM's flags. Its order is tp-cp-ep-dp-pp, the fastest first, and tp-cp-ep-pp-dp with
 * --use-tp-pp-dp-mapping; dp is what remains of the world, and the expert layout folds over the
 * same ranks with pp in common (megatron/core/parallel_state.py). Flags that do not change the
 * layout are passed over: a training script has hundreds. A size may be a variable of the shell.
 * Its assignments in the script are not followed, because they may depend on anything. */
#include "tool/import.h"

#include <stdlib.h>
#include <string.h>

enum { TP, PP, CP, EP, EXPT_TP, HEADS, NFLAGS, MOST_DIGITS = 32 };

static const char *const flags[NFLAGS] = {
    "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size",
    "--expert-model-parallel-size", "--expert-tensor-parallel-size",  "--num-attention-heads"};

/* A layout of its own for the encoder: another description of the same ranks. */
static const char *const rejected[] = {"--encoder-tensor-model-parallel-size",
                                       "--encoder-pipeline-model-parallel-size"};

typedef struct flags_read {
    int64_t size[NFLAGS]; /* 0: not given */
    bool dp_slowest;
} flags_read;

/* What follows the flag, in the same word or in the next. */
static const char *value_of(const char *word, const char *flag, const char *next) {
    size_t length = strlen(flag);
    if (strncmp(word, flag, length) != 0 || (word[length] && word[length] != '=')) {
        return NULL;
    }
    return word[length] ? word + length + 1 : next ? next : "";
}

/* "TP" of "$TP" and "${TP}", and its length; NULL: the word is another one. */
static const char *variable_of(const char *word, size_t *length) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    bool braces = word[0] == '$' && word[1] == '{';
    const char *name = word + 1 + braces;
    *length = word[0] == '$' ? strspn(name, letters) : 0;
    return *length > 0 && strcmp(name + *length, braces ? "}" : "") == 0 ? name : NULL;
}

/* What --set says of a variable, else the environment; NULL: neither. */
static const char *find_variable(const import_world *world, const char *name, size_t length,
                                 char value[MOST_DIGITS]) {
    for (const char *at = world->set; at && *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            at += length + 1;
            snprintf(value, MOST_DIGITS, "%.*s", (int)strcspn(at, ","), at);
            return value;
        }
    }
    char own[IMPORT_NAME];
    snprintf(own, sizeof own, "%.*s", (int)length, name);
    return getenv(own);
}

/* The number that follows a flag, as it is or in a variable. */
static int read_size(const import_world *world, const char *flag, const char *word, int64_t *size) {
    char text[MOST_DIGITS];
    size_t length;
    const char *name = variable_of(word, &length);
    const char *value = name ? find_variable(world, name, length, text) : word;
    if (name && !value) {
        return tool_usage(world->argv,
                          "%s is '%s', which is not set: set it in the environment, or give "
                          "--set %.*s=8",
                          flag, word, (int)length, name);
    }
    if (*value == '$') {
        return tool_usage(world->argv,
                          "%s is '%s', must be a whole number in digits, $NAME or ${NAME}", flag,
                          value);
    }
    return import_number(world, flag, value, 1, size);
}

static int read_word(const import_world *world, flags_read *read, const char *word,
                     const char *next) {
    int64_t size;
    for (int f = 0; f < NFLAGS; f++) {
        const char *value = value_of(word, flags[f], next);
        int status = value ? read_size(world, flags[f], value, &size) : -1;
        if (status >= 0) {
            return status;
        }
        if (value && read->size[f] && read->size[f] != size) {
            tool_say(world->argv, "%s is there twice, with %lld and %lld: leave one", flags[f],
                     (long long)read->size[f], (long long)size);
            return TOOL_INVALID;
        }
        read->size[f] = value ? size : read->size[f];
    }
    for (size_t r = 0; r < sizeof rejected / sizeof *rejected; r++) {
        if (value_of(word, rejected[r], next)) {
            tool_say(world->argv,
                     "%s: the encoder's ranks do not follow from it; import it as a "
                     "component",
                     rejected[r]);
            return TOOL_INVALID;
        }
    }
    read->dp_slowest |= strcmp(word, "--use-tp-pp-dp-mapping") == 0;
    return -1;
}

static void add_in_order(import_dims *dims, bool dp_slowest, const char *dp, int64_t dp_size,
                         int64_t pp_size) {
    import_add_dim(dims, dp_slowest ? "pp" : dp, dp_slowest ? pp_size : dp_size);
    import_add_dim(dims, dp_slowest ? dp : "pp", dp_slowest ? dp_size : pp_size);
}

static int add_expert(const import_world *world, import_grid *grid, const flags_read *read,
                      int64_t pp) {
    import_dims *view = &grid->views[0];
    int64_t ep = read->size[EP] ? read->size[EP] : 1, dp;
    int64_t tp = read->size[EXPT_TP] ? read->size[EXPT_TP] : read->size[TP];
    int status =
        import_share(world, "expert layout (expert tp * ep * pp)", world->world, tp * ep * pp, &dp);
    if (status >= 0) {
        return status;
    }
    snprintf(view->name, sizeof view->name, "expert");
    import_add_dim(view, "expt_tp", tp);
    import_add_dim(view, "ep", ep);
    add_in_order(view, read->dp_slowest, "expt_dp", dp, pp);
    view->shared = "pp";
    grid->nviews = 1;
    return -1;
}

static int add_layout(import_world *world, flags_read *read) {
    int64_t dp;
    if (!world->world) {
        tool_say(world->argv,
                 "dp is the world size over tp, cp and pp: give --world-size before the flags");
        return TOOL_INVALID;
    }
    for (int f = TP; f <= CP; f++) {
        read->size[f] = read->size[f] ? read->size[f] : 1;
    }
    int64_t tp = read->size[TP], cp = read->size[CP], pp = read->size[PP];
    int status = tp * cp > IMPORT_MOST
                     ? import_share(world, "tp * cp", 1, 2, &dp)
                     : import_share(world, "tp * cp * pp", world->world, tp * cp * pp, &dp);
    import_grid *grid = status < 0 ? import_add_grid(world, "llm") : NULL;
    if (!grid) {
        return status < 0 ? TOOL_INVALID : status;
    }
    grid->heads = read->size[HEADS];
    import_add_dim(&grid->base, "tp", tp);
    import_add_dim(&grid->base, "cp", cp);
    add_in_order(&grid->base, read->dp_slowest, "dp", dp, pp);
    return read->size[EP] || read->size[EXPT_TP] ? add_expert(world, grid, read, pp) : -1;
}

/* Words of a script: between white space, quotes and the backslashes at line ends. */
static int read_script(const import_world *world, flags_read *read, char *text) {
    static const char between[] = " \t\r\n\"'\\()";
    char *rest, *word = strtok_r(text, between, &rest);
    int status = -1;
    while (word && status < 0) {
        char *next = strtok_r(NULL, between, &rest);
        status = read_word(world, read, word, next);
        word = next;
    }
    return status;
}

int import_megatron(import_world *world, int argc, char **argv) {
    flags_read read = {0};
    int status = -1;
    if (argc == 0) {
        return tool_usage(world->argv, "no file and no flags given; flags stand behind --");
    }
    if (argc == 1 && strncmp(argv[0], "--", 2) != 0) {
        char *text = import_read(world, argv[0]);
        if (!text) {
            return TOOL_USAGE;
        }
        status = read_script(world, &read, text);
        free(text);
        if (status < 0) {
            import_warn_default(world, argv[0], read.size, HEADS, "of Megatron-LM's sizes");
        }
    }
    for (int i = 0; i < argc && status < 0; i++) {
        status = read_word(world, &read, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
    }
    return status < 0 ? add_layout(world, &read) : status;
}
