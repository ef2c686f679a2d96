/* lierne draw: a table of pictures; a picture is one line here and one file. What a picture shows
 * is the same in all formats. */
#include "draw.h"

#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne draw PICTURE FILE [--bridge B] [OPTION]...\n"
    "       lierne draw timeline TRACE [--rank R]\n"
    "Draws a configuration, to standard output.\n"
    "\n"
    "  mesh     nodes, GPUs and their coordinates; all grids without --bridge\n"
    "  ranks    the ranks of the grids as tables, side by side, coloured by samples\n"
    "  matrix   how many bytes each rank sends to each\n"
    "  rows     which dp rank sends what to which; of a packed bridge, the rows of each rank,\n"
    "           of a redistribution, the windows of a rank\n"
    "  stages   the stages of the plan\n"
    "  timeline the operations of a run, from its trace in the Chrome format (LIERNE_TRACE)\n"
    "\n"
    "  -r, --rank=R         one rank of the trace; the rank whose windows are drawn\n"
    "  -b, --bridge=B       the bridge\n"
    "      --adjoint        the adjoint; forward without\n"
    "      --until=MS       a timeline's axis of at least so many milliseconds\n"
    "  -a, --algorithm=A    direct, collective or leader (default: the file's)\n"
    "      --routing=R      auto (default), direct or balanced: who sends what\n"
    "      --max-peers=N    a rank exchanges messages with N ranks at most, by way of others\n"
    "      --links=L,B,L,B  what auto compares: latency in ns and MB/s inside a node,\n"
    "                       and to other nodes (default: the file's)\n"
    "      --format=FORMAT  svg (default), dot (mesh, rows, stages) or text\n"
    "      --src, --dst, --tensor, --dtype: a bridge in place of FILE and --bridge, as\n"
    "                       --src tp2,dp4 --dst tp2,cp2,dp2 --tensor b8,s1024,h1024 --dtype bf16;\n"
    "                       the first dim varies fastest, tp2,dp4@8 begins at rank 8\n"
    "  -h, --help           show this help\n"
    "\n"
    "What does not fit is left out or added up, and the picture says so.\n"
    "Exit status: 0 printed, 1 FILE has errors or the bridge cannot be planned,\n"
    "2 usage error or unreadable file.\n";

static const struct picture {
    const char *name;
    bool traffic; /* of a plan, so a bridge is needed */
    bool packed;  /* a packed bridge has it, too */
    void (*svg)(const draw_task *task, svg *s);
    void (*dot)(const draw_task *task); /* NULL: no such form */
    void (*text)(const draw_task *task);
} pictures[] = {
    {"mesh", false, true, draw_mesh, draw_mesh_dot, draw_mesh_text},
    {"ranks", false, false, draw_ranks, NULL, draw_ranks_text},
    {"matrix", true, true, draw_matrix, NULL, draw_matrix_text},
    {"rows", true, true, draw_rows, draw_rows_dot, draw_rows_text},
    {"stages", true, true, draw_stages, draw_stages_dot, draw_stages_text},
};

static const char *const formats[] = {"svg", "dot", "text", NULL};

static const struct picture *find_picture(const char *name) {
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        if (strcmp(pictures[i].name, name) == 0) {
            return &pictures[i];
        }
    }
    return NULL;
}

static void find_sides(draw_task *task) {
    const tool_bridge *b = &task->bridge;
    if (b->name) {
        const char *src = lierne_config_get_bridge_src(b->config, b->name);
        const char *dst = lierne_config_get_bridge_dst(b->config, b->name);
        const lierne_layout_spec *const *given = b->own_packed.given;
        task->sides[0] = b->packed ? (draw_side){src, given[0]->grid, given[0]->view}
                                   : (draw_side){src, b->spec.src, b->spec.src_view};
        task->sides[1] = b->packed ? (draw_side){dst, given[1]->grid, given[1]->view}
                                   : (draw_side){dst, b->spec.dst, b->spec.dst_view};
        task->nsides = 2;
        return;
    }
    int all = lierne_config_get_ngrids(b->config);
    task->nsides = all < DRAW_MOST_SIDES ? all : DRAW_MOST_SIDES;
    task->nleft_out = all - task->nsides;
    for (int i = 0; i < task->nsides; i++) {
        const char *name = lierne_config_get_grid_name(b->config, i);
        task->sides[i] = (draw_side){name, lierne_config_get_grid(b->config, name), NULL};
    }
}

static int draw_svg(const draw_task *task, const struct picture *picture) {
    svg s;
    svg_open(&s);
    picture->svg(task, &s);
    return svg_close(&s, stdout, task->bridge.name ? task->bridge.name : task->bridge.path)
               ? TOOL_VALID
               : tool_usage(task->argv, "no memory for the picture");
}

static int draw(draw_task *task, const struct picture *picture) {
    static const struct picture all[] = {{"rows", false, true, draw_packed_rows, NULL,
                                          draw_packed_text},
                                         {"rows", false, true, draw_windows, NULL,
                                          draw_windows_text}};
    bool windows = task->bridge.packed && task->bridge.packed->redistribution;
    int status = tool_bridge_open_packed(&task->bridge, 0, task->argv);
    bool rows = strcmp(picture->name, "rows") == 0;
    picture = task->bridge.packed && rows ? &all[windows] : picture;
    if (status < 0 && task->given_rank && !(rows && windows)) {
        return tool_usage(task->argv, "--rank is for timeline, and for rows of a redistribution");
    }
    status = status < 0 ? tool_bridge_number(task->argv, "--rank", task->given_rank, 0,
                                             task->bridge.world - 1, &task->rank)
                        : status;
    if (status < 0 && task->bridge.format == DRAW_DOT && !picture->dot) {
        return tool_usage(task->argv, "%s has no form in DOT, only svg and text", picture->name);
    }
    status = status < 0 && picture->traffic ? draw_traffic_open(task) : status;
    if (status >= 0) {
        return status;
    }
    if (task->bridge.format == DRAW_SVG) {
        return draw_svg(task, picture);
    }
    (task->bridge.format == DRAW_DOT ? picture->dot : picture->text)(task);
    return TOOL_VALID;
}

static int parse(draw_task *task, const struct picture *picture, int argc) {
    bool adjoint = false;
    const char *until = NULL;
    const tool_option options[] = {{"adjoint", 0, NULL, &adjoint, NULL},
                                   {"rank", 'r', &task->given_rank, NULL, NULL},
                                   {"until", 0, &until, NULL, NULL}};
    task->bridge.formats = formats;
    task->bridge.optional = !picture->traffic;
    task->bridge.takes_packed = picture->packed;
    int status = tool_bridge_parse(&task->bridge, argc, task->argv, help, options, 3);
    if (status < 0 && until) {
        return tool_usage(task->argv, "--until %s is of the picture timeline alone", until);
    }
    task->direction = adjoint ? LIERNE_DIRECTION_ADJOINT : LIERNE_DIRECTION_FORWARD;
    return status;
}

int tool_draw(int argc, char **argv) {
    draw_task task = {.argv = argv + 1};
    if (argc > 1 && strcmp(argv[1], "timeline") == 0) {
        argv[1] = argv[0];
        return draw_timeline(argc - 1, argv + 1);
    }
    const struct picture *picture = argc > 1 ? find_picture(argv[1]) : NULL;
    if (!picture && (argc < 2 || *argv[1] != '-')) {
        return tool_usage(
            argv, "the picture is %s, must be mesh, ranks, matrix, rows, stages or timeline",
            argc < 2 ? "missing" : argv[1]);
    }
    if (!picture) { /* --help, or an option before the picture */
        task.argv = argv;
        int status = parse(&task, &pictures[0], argc);
        return status < 0 ? tool_usage(argv, "the picture is missing, it is the first argument")
                          : status;
    }
    argv[1] = argv[0];
    int status = parse(&task, picture, argc - 1);
    status = status < 0 ? tool_bridge_load(&task.bridge, task.argv) : status;
    if (status < 0) {
        task.nodes = lierne_config_get_nodes(task.bridge.config);
        find_sides(&task);
        status = draw(&task, picture);
    }
    draw_traffic_close(&task);
    tool_bridge_close(&task.bridge);
    return status;
}
