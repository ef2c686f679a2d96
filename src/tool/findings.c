/* What a CI service reads. A finding is a diagnostic with its place; its text is message and hint,
 * as on a terminal. */
#include "findings.h"

#include <stdlib.h>
#include <string.h>

static int listed; /* findings so far, for commas */

/* The diagnostics of a file that are kept, one after the other. */
static const lierne_diagnostic *next(const findings_file *file, int *i) {
    const lierne_diagnostic *d = lierne_config_get_diagnostic(file->config, *i);
    while (d && !file->keep[*i]) {
        d = lierne_config_get_diagnostic(file->config, ++*i);
    }
    ++*i;
    return d;
}

static const char *level(const lierne_diagnostic *d) {
    return d->severity == LIERNE_SEVERITY_ERROR ? "error" : "warning";
}

static void nothing(void) {
}

static void json_begin(int nfiles) {
    (void)nfiles;
    fputs("{\"files\":[", stdout);
}

static void json_finding(const lierne_diagnostic *d) {
    printf("{\"severity\":\"%s\",\"code\":", level(d));
    tool_print_string(stdout, d->code);
    printf(",\"line\":%d,\"column\":%d,\"pointer\":", d->line, d->column);
    tool_print_string(stdout, d->pointer);
    printf(",\"message\":");
    tool_print_string(stdout, d->message);
    printf(",\"hint\":");
    tool_print_string(stdout, d->hint);
    printf("}");
}

static void json_file(const findings_file *file) {
    int i = 0, count = 0;
    printf("%s\n{\"file\":", file->before ? "," : "");
    tool_print_string(stdout, file->path);
    printf(",\"valid\":%s,\"findings\":[", file->valid ? "true" : "false");
    for (const lierne_diagnostic *d; (d = next(file, &i));) {
        printf("%s\n ", count++ ? "," : "");
        json_finding(d);
    }
    printf("]}");
}

static void json_end(void) {
    fputs("]}\n", stdout);
}

/* Message and hint as one text, to be freed; "" without memory. */
static char *text_of(const lierne_diagnostic *d) {
    char *text = NULL;
    size_t length;
    FILE *memory = tool_open_text(&text, &length);
    if (memory) {
        tool_print_text(memory, d->message);
        fputs(*d->hint ? "; " : "", memory);
        tool_print_text(memory, d->hint);
        fclose(memory);
    }
    return text ? text : calloc(1, 1);
}

static const char *const rules[][2] = {
#define RULE(number, name, text) {"LG" #number, text},
    LIERNE_DIAGNOSTIC_TABLE(RULE)
#undef RULE
};

static void sarif_begin(int nfiles) {
    (void)nfiles;
    listed = 0;
    printf("{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\","
           "\"runs\":[{\"tool\":{\"driver\":{\"name\":\"lierne\",\"version\":\"%s\",\"rules\":[",
           lierne_version());
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        printf("%s\n{\"id\":\"%s\",\"shortDescription\":{\"text\":", r ? "," : "", rules[r][0]);
        tool_print_string(stdout, rules[r][1]);
        fputs("}}", stdout);
    }
    fputs("]}},\"results\":[", stdout);
}

static void print_uri(const char *path) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    for (; *path; path++) {
        if (strchr(plain, *path)) {
            putchar(*path);
        } else {
            printf("%%%02X", (unsigned)(unsigned char)*path);
        }
    }
}

static void sarif_file(const findings_file *file) {
    int i = 0;
    for (const lierne_diagnostic *d; (d = next(file, &i));) {
        char *text = text_of(d);
        printf("%s\n{\"ruleId\":\"%s\",\"level\":\"%s\",\"message\":{\"text\":",
               listed++ ? "," : "", d->code, level(d));
        tool_print_string(stdout, text ? text : "");
        fputs("},\"locations\":[{\"physicalLocation\":{\"artifactLocation\":{\"uri\":\"", stdout);
        print_uri(file->path);
        printf("\"},\"region\":{\"startLine\":%d,\"startColumn\":%d}}}]}", d->line, d->column);
        free(text);
    }
}

static void sarif_end(void) {
    fputs("]}]}\n", stdout);
}

/* Each of `special` as it must be written. */
static void print_escaped(const char *text, const char *special, const char *const *written) {
    for (; *text; text++) {
        const char *found = strchr(special, *text);
        if (found) {
            fputs(written[found - special], stdout);
        } else {
            putchar(*text);
        }
    }
}

static void github_begin(int nfiles) {
    (void)nfiles;
}

static void github_file(const findings_file *file) {
    static const char *const written[] = {"%25", "%0D", "%0A", "%3A", "%2C"};
    int i = 0;
    for (const lierne_diagnostic *d; (d = next(file, &i));) {
        char *text = text_of(d);
        printf("::%s file=", level(d));
        print_escaped(file->path, "%\r\n:,", written);
        printf(",line=%d,col=%d,title=lierne %s::", d->line, d->column, d->code);
        print_escaped(text ? text : "", "%\r\n", written);
        putchar('\n');
        free(text);
    }
}

static void junit_begin(int nfiles) {
    printf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
           "<testsuite name=\"lierne check\" tests=\"%d\">\n",
           nfiles);
}

static void junit_file(const findings_file *file) {
    int i = 0;
    fputs("<testcase classname=\"lierne\" name=\"", stdout);
    tool_print_xml(stdout, file->path);
    fputs(file->valid ? "\">\n<system-out>" : "\">\n<failure message=\"invalid\">", stdout);
    for (const lierne_diagnostic *d; (d = next(file, &i));) {
        char *text = text_of(d);
        printf("%d:%d: %s: [%s] ", d->line, d->column, level(d), d->code);
        tool_print_xml(stdout, text ? text : "");
        putchar('\n');
        free(text);
    }
    fputs(file->valid ? "</system-out>\n</testcase>\n" : "</failure>\n</testcase>\n", stdout);
}

static void junit_end(void) {
    fputs("</testsuite>\n</testsuites>\n", stdout);
}

const findings_format *findings_format_find(const char *name) {
    static const findings_format formats[] = {{"json", json_begin, json_file, json_end},
                                              {"sarif", sarif_begin, sarif_file, sarif_end},
                                              {"github", github_begin, github_file, nothing},
                                              {"junit", junit_begin, junit_file, junit_end}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (strcmp(formats[f].name, name) == 0) {
            return &formats[f];
        }
    }
    return NULL;
}
