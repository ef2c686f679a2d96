/* `lierne info`: what this installation can run, and why not the rest. The libraries for GPUs are
 * loaded when asked for: the command needs none of them. */
#include "tool.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: lierne info [OPTION]...\n"
    "Prints the version, which libraries for MPI and GPUs are there, what they found, and why the\n"
    "rest cannot run.\n"
    "\n"
    "      --format=FORMAT  text (default) or json\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 printed, 2 usage error.\n";

static const struct {
    const char *name;
    const char *library;
    const char *summary; /* the function that says what it found; NULL: none */
} parts[] = {
    {"mpi", "liblierne_mpi.so.0", NULL},
    {"cuda", "liblierne_cuda.so.0", "lierne_cuda_get_summary"},
    {"nccl", "liblierne_nccl.so.0", "lierne_nccl_get_summary"},
};

/* Beside the command, in ../lib, or where the loader finds it. */
static void *load(const char *name) {
    static const char *const folders[] = {"", "../lib/"};
    char path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(base, sizeof path - (size_t)(base - path), "%s%s", folders[i], name);
        if (access(path, R_OK) == 0) {
            return dlopen(path, RTLD_NOW);
        }
    }
    return dlopen(name, RTLD_NOW);
}

/* Writes what a part can do; returns whether its library is there. */
static bool describe_part(size_t i, char *text, size_t size) {
    void *library = load(parts[i].library);
    int (*get)(char *, size_t) = NULL;
    if (!library) {
        snprintf(text, size, "%s", dlerror());
        return false;
    }
    if (parts[i].summary) {
        *(void **)&get = dlsym(library, parts[i].summary);
    }
    if (!get || get(text, size) != 0) {
        snprintf(text, size, "loaded");
    }
    return true;
}

int tool_info(int argc, char **argv) {
    const char *format = NULL;
    bool json = false;
    const tool_option options[] = {{"format", 0, &format, NULL, "text json"}};
    char text[1024];
    int status = tool_parse(argc, argv, help, options, 1);
    if (status < 0 && optind < argc) {
        return tool_usage(argv, "'%s' is given, must be no file", argv[optind]);
    }
    status = status < 0 ? tool_json(argv, format, &json) : status;
    if (status >= 0) {
        return status;
    }
    printf(json ? "{\"version\":\"%s\"" : "lierne %s\n", lierne_version());
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool there = describe_part(i, text, sizeof text);
        printf(json ? ",\"%s\":{\"library\":%s,\"found\":" : "%s: %s", parts[i].name,
               json ? (there ? "true" : "false") : (there ? "" : "not there: "));
        if (json) {
            tool_print_string(stdout, text);
            printf("}");
        } else {
            tool_print_text(stdout, text);
            printf("\n");
        }
    }
    printf(json ? "}\n" : "");
    return TOOL_VALID;
}
