/* The spec is copied out of the configuration, so that a subcommand may change the
 * algorithm or the sizes. */
#include "bridge.h"
#include "form.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { COMMON = 10, MAX_OPTIONS = 8, WORDS = 100 };

static const char *const algorithms[] = {"direct", "collective", "leader"}; /* as the enum */

static const char *const routings[] = {"auto", "direct", "balanced"}; /* as the enum */

/* The index of a name in three names, or -1. */
static int find_name(const char *const *names, const char *name) {
    for (int i = 0; i < 3; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

/* A file and a bridge of it, or a bridge on the command line. */
static int find_input(tool_bridge *bridge, int argc, char **argv) {
    if (bridge->set) {
        return optind != argc || bridge->name || tool_inline_given(&bridge->given)
                   ? tool_usage(argv, "--set stands in place of FILE and --bridge")
                   : -1;
    }
    if (!tool_inline_given(&bridge->given)) {
        return tool_one_file(argc, argv, &bridge->path);
    }
    if (optind != argc || bridge->name) {
        return tool_usage(argv,
                          "--src, --dst, --tensor and --dtype stand in place of FILE and --bridge");
    }
    bridge->path = "the command line";
    bridge->name = "src_to_dst";
    return -1;
}

/* Latency and bandwidth inside a node, and between nodes; and, if there is a fifth number, the
 * bandwidth of a node. */
static int read_links(char **argv, tool_bridge *bridge) {
    lierne_links *l = &bridge->own_links;
    int64_t *to[] = {&l->same_node.latency_ns, &l->same_node.megabytes_per_second,
                     &l->other_node.latency_ns, &l->other_node.megabytes_per_second,
                     &l->node_megabytes_per_second};
    const char *at = bridge->links;
    bool good = true;
    for (int i = 0; i < 5 && good && (i < 4 || at[-1] == ','); i++) {
        size_t digits = strspn(at, "0123456789");
        char end = at[digits];
        good = digits > 0 && digits <= 10 && (end == (i < 4 ? ',' : '\0') || (i == 3 && !end));
        *to[i] = strtoll(at, NULL, 10);
        good = good && *to[i] <= 1000000000;
        at += good ? digits + 1 : 0;
    }
    return good ? -1
                : tool_usage(argv,
                             "--links is '%s', must be four whole numbers from 0 to 1000000000 "
                             "with commas: nanoseconds and MB/s inside a node, and between nodes; "
                             "a fifth: MB/s of a node",
                             bridge->links);
}

int tool_bridge_routing(const tool_bridge *bridge, char **argv) {
    return !bridge->routing || find_name(routings, bridge->routing) >= 0
               ? -1
               : tool_usage(argv, "--routing is '%s', must be auto, direct or balanced",
                            bridge->routing);
}

int tool_bridge_parse(tool_bridge *bridge, int argc, char **argv, const char *help,
                      const tool_option *options, int noptions) {
    static const char *const usual[] = {"text", "json", NULL};
    const char *const *formats = bridge->formats ? bridge->formats : usual;
    const char *format = NULL;
    char words[WORDS] = "";
    for (int i = 0; formats[i]; i++) {
        snprintf(words + strlen(words), WORDS - strlen(words), "%s%s", i ? " " : "", formats[i]);
    }
    tool_option all[COMMON + MAX_OPTIONS] = {
        {"bridge", 'b', &bridge->name, NULL, NULL},
        {"algorithm", 'a', &bridge->algorithm, NULL, "direct collective leader"},
        {"routing", 0, &bridge->routing, NULL, "auto direct balanced"},
        {"max-peers", 0, &bridge->max_peers, NULL, NULL},
        {"format", 0, &format, NULL, words},
        {"src", 0, &bridge->given.src, NULL, NULL},
        {"dst", 0, &bridge->given.dst, NULL, NULL},
        {"tensor", 0, &bridge->given.tensor, NULL, NULL},
        {"dtype", 0, &bridge->given.dtype, NULL, NULL},
        {"links", 0, &bridge->links, NULL, NULL},
    };
    for (int i = 0; i < noptions; i++) {
        all[COMMON + i] = options[i];
    }
    int status = tool_parse(argc, argv, help, all, COMMON + noptions);
    status = status < 0 ? tool_format(argv, format, formats, &bridge->format) : status;
    bridge->json = !bridge->formats && bridge->format == 1;
    status = status < 0 ? find_input(bridge, argc, argv) : status;
    if (status < 0 && !bridge->name && !bridge->optional && !bridge->set) {
        return tool_missing(argv, "bridge", bridge->path);
    }
    if (status < 0 && bridge->algorithm && find_name(algorithms, bridge->algorithm) < 0) {
        return tool_usage(argv, "--algorithm is '%s', must be direct, collective or leader",
                          bridge->algorithm);
    }
    status = status < 0 ? tool_bridge_routing(bridge, argv) : status;
    status = status < 0 ? tool_bridge_number(argv, "--max-peers", bridge->max_peers, 0, INT32_MAX,
                                             &bridge->most_peers)
                        : status;
    return status < 0 && bridge->links ? read_links(argv, bridge) : status;
}

static int find_packed(tool_bridge *bridge, char **argv) {
    tool_packed *packed = &bridge->own_packed;
    if (!bridge->takes_packed) {
        return tool_usage(argv, "'%s' is a %s, which this does not take", bridge->name,
                          packed_word(packed));
    }
    if (bridge->routing || bridge->algorithm) {
        return tool_usage(argv, "'%s' is a %s: without --routing and --algorithm", bridge->name,
                          packed_word(packed));
    }
    packed->max_peers = bridge->max_peers ? bridge->most_peers : packed->max_peers;
    bridge->packed = packed;
    if (packed->redistribution) {
        bridge->spec = (lierne_bridge_spec){.naxes = 1,
                                            .shape = &packed->elements,
                                            .dtype = packed->given[0]->dtype,
                                            .sequence_axis = -1};
        return -1;
    }
    bridge->spec = (lierne_bridge_spec){.naxes = packed->given[0]->naxes,
                                        .shape = packed->given[0]->shape,
                                        .dtype = packed->given[0]->dtype,
                                        .batch_axis = packed_axis(packed),
                                        .sequence_axis = -1};
    return -1;
}

int tool_bridge_find(tool_bridge *bridge, char **argv) {
    bridge->world = lierne_config_get_world_size(bridge->config);
    if (!bridge->name) {
        return -1;
    }
    if (packed_find(&bridge->own_packed, bridge->config, bridge->name)) {
        return find_packed(bridge, argv);
    }
    const lierne_bridge_spec *spec = lierne_config_get_bridge(bridge->config, bridge->name);
    const lierne_megatron_spec *megatron = lierne_config_get_megatron(bridge->config, bridge->name);
    if (!spec) {
        return tool_no_such(argv, "bridge", bridge->name, bridge->path, bridge->config);
    }
    bridge->spec = *spec;
    bridge->method = megatron ? (tool_algorithm)megatron->algorithm : TOOL_DIRECT;
    if (bridge->algorithm) {
        bridge->method = (tool_algorithm)find_name(algorithms, bridge->algorithm);
    }
    if (bridge->routing) {
        bridge->spec.routing = (lierne_routing)find_name(routings, bridge->routing);
    }
    bridge->spec.max_peers = bridge->max_peers ? bridge->most_peers : bridge->spec.max_peers;
    return -1;
}

int tool_bridge_load(tool_bridge *bridge, char **argv) {
    int status = tool_inline_given(&bridge->given)
                     ? tool_inline_load(argv, &bridge->given, false, &bridge->config)
                     : tool_load_valid(argv, bridge->path, bridge->name, &bridge->config);
    return status < 0 ? tool_bridge_find(bridge, argv) : status;
}

void tool_bridge_close(tool_bridge *bridge) {
    packed_close(&bridge->own_packed);
    lierne_config_destroy(bridge->config);
    bridge->config = NULL;
}

int tool_bridge_number(char **argv, const char *option, const char *text, int least, int most,
                       int *out) {
    char *end;
    if (!text) {
        return -1;
    }
    errno = 0;
    long number = strtol(text, &end, 10);
    bool digits = strspn(text, "0123456789") == strlen(text);
    if (errno || end == text || !digits || number < least || number > most) {
        return tool_usage(argv, "%s is '%s', must be a whole number from %d to %d, in digits",
                          option, text, least, most);
    }
    *out = (int)number;
    return -1;
}

const char *tool_bridge_algorithm(tool_algorithm algorithm) {
    return algorithms[algorithm];
}

const char *tool_bridge_owner(lierne_gradient_owner owner) {
    static const char *const names[] = {"partial", "zigzag", "contiguous", "rows"};
    return names[owner];
}

int tool_bridge_open_packed(tool_bridge *bridge, int64_t hidden, char **argv) {
    tool_packed *packed = bridge->packed;
    lierne_status status =
        packed ? packed_open(packed, hidden ? hidden : packed_given_hidden(packed), bridge->checks)
               : LIERNE_OK;
    if (status == LIERNE_ERR_NO_MEMORY) {
        tool_say(argv, "no memory for the rows of '%s'", bridge->name);
    } else if (status != LIERNE_OK) {
        tool_failed(argv);
    }
    return status == LIERNE_OK ? -1 : TOOL_INVALID;
}

int tool_bridge_exact(const tool_bridge *bridge, char **argv) {
    if (bridge->packed) {
        return form_is_exact_packed(bridge->packed)
                   ? -1
                   : tool_usage(argv,
                                "%s gets more than %d contributions, whose sums are not exact",
                                bridge->packed->redistribution ? "an element" : "a row",
                                FORM_MOST_CONTRIBUTIONS);
    }
    return form_is_exact(&bridge->spec)
               ? -1
               : tool_usage(argv, "dtype u8 holds the sum of at most %d cp ranks",
                            FORM_NOTHING - 1);
}

lierne_status tool_bridge_plan(lierne_plan **out, lierne_context *context,
                               const tool_packed *packed, const lierne_bridge_spec *spec,
                               tool_algorithm algorithm) {
    lierne_bridge_spec any = *spec;
    const lierne_megatron_spec megatron = {.size = sizeof megatron,
                                           .algorithm = (lierne_megatron_algorithm)algorithm,
                                           .bridge = &any};
    any.max_peers = 0; /* those of the algorithm */
    if (packed) {
        return packed_plan(out, context, packed);
    }
    return algorithm == TOOL_DIRECT ? lierne_plan_create_bridge(out, context, spec)
                                    : lierne_plan_create_megatron(out, context, &megatron);
}

lierne_context_spec tool_bridge_context(const tool_bridge *bridge) {
    const lierne_links *links = lierne_config_get_links(bridge->config);
    return (lierne_context_spec){.size = sizeof(lierne_context_spec),
                                 .nodes = lierne_config_get_nodes(bridge->config),
                                 .links = bridge->links ? &bridge->own_links : links};
}

lierne_sim *tool_bridge_sim(const tool_bridge *bridge, char **argv) {
    lierne_sim *sim;
    const lierne_context_spec spec = tool_bridge_context(bridge);
    if (lierne_sim_create(&sim, bridge->world, &spec) != LIERNE_OK) {
        tool_failed(argv);
    }
    return sim;
}
