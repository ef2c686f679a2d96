/* The getters of a configuration. The number of names is bounded when reading, so a linear search
 * is enough. */
#include "config/read.h"

#include <string.h>

int lierne_config_get_ndiagnostics(const lierne_config *config) {
    return config ? (int)config->diagnostics.count : 0;
}

const lierne_diagnostic *lierne_config_get_diagnostic(const lierne_config *config, int i) {
    bool there = i >= 0 && i < lierne_config_get_ndiagnostics(config);
    return there ? &config->diagnostics.at[i].diagnostic : NULL;
}

int lierne_config_get_world_size(const lierne_config *config) {
    return config ? config->world : 0;
}

int lierne_config_get_ngrids(const lierne_config *config) {
    return config ? (int)config->grids.count : 0;
}

const char *lierne_config_get_grid_name(const lierne_config *config, int i) {
    return i >= 0 && i < lierne_config_get_ngrids(config) ? config->grids.at[i].name : NULL;
}

const lierne_grid *lierne_config_get_grid(const lierne_config *config, const char *name) {
    for (int i = 0; name && i < lierne_config_get_ngrids(config); i++) {
        if (strcmp(config->grids.at[i].name, name) == 0) {
            return config->grids.at[i].grid;
        }
    }
    return NULL;
}

int lierne_config_get_nbridges(const lierne_config *config) {
    return config ? (int)config->bridges.count : 0;
}

const char *lierne_config_get_bridge_name(const lierne_config *config, int i) {
    return i >= 0 && i < lierne_config_get_nbridges(config) ? config->bridges.at[i]->name : NULL;
}

static const lierne_config_bridge_entry *find_bridge(const lierne_config *config,
                                                     const char *name) {
    for (int i = 0; name && i < lierne_config_get_nbridges(config); i++) {
        const lierne_config_bridge_entry *bridge = config->bridges.at[i];
        if (bridge->name && strcmp(bridge->name, name) == 0) {
            return bridge;
        }
    }
    return NULL;
}

const lierne_bridge_spec *lierne_config_get_bridge(const lierne_config *config, const char *name) {
    const lierne_config_bridge_entry *bridge = find_bridge(config, name);
    return bridge ? &bridge->spec : NULL;
}

const lierne_megatron_spec *lierne_config_get_megatron(const lierne_config *config,
                                                       const char *name) {
    const lierne_config_bridge_entry *bridge = find_bridge(config, name);
    return bridge && bridge->megatron.algorithm != 0 ? &bridge->megatron : NULL;
}

int lierne_config_get_npacked_bridges(const lierne_config *config) {
    return config ? (int)config->packed.count : 0;
}

const char *lierne_config_get_packed_bridge_name(const lierne_config *config, int i) {
    bool there = i >= 0 && i < lierne_config_get_npacked_bridges(config);
    return there ? config->packed.at[i]->name : NULL;
}

static const lierne_config_packed_entry *find_packed(const lierne_config *config,
                                                     const char *name) {
    for (int i = 0; name && i < lierne_config_get_npacked_bridges(config); i++) {
        const lierne_config_packed_entry *entry = config->packed.at[i];
        if (entry->name && strcmp(entry->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

const lierne_packed_bridge_spec *lierne_config_get_packed_bridge(const lierne_config *config,
                                                                 const char *name) {
    const lierne_config_packed_entry *entry = find_packed(config, name);
    return entry && entry->has_images ? &entry->bridge : NULL;
}

const lierne_redistribute_spec *lierne_config_get_packed_move(const lierne_config *config,
                                                              const char *name) {
    const lierne_config_packed_entry *entry = find_packed(config, name);
    return entry && !entry->has_images ? &entry->move : NULL;
}

const lierne_layout_spec *lierne_config_get_packed_layout(const lierne_config *config,
                                                          const char *name, int side) {
    const lierne_config_packed_entry *entry = find_packed(config, name);
    return entry && (side == 0 || side == 1) ? &entry->specs[side] : NULL;
}

int lierne_config_get_nredistributions(const lierne_config *config) {
    return config ? (int)config->redistributions.count : 0;
}

const char *lierne_config_get_redistribution_name(const lierne_config *config, int i) {
    bool there = i >= 0 && i < lierne_config_get_nredistributions(config);
    return there ? config->redistributions.at[i]->name : NULL;
}

static const lierne_config_redistribution_entry *find_redistribution(const lierne_config *config,
                                                                     const char *name) {
    for (int i = 0; name && i < lierne_config_get_nredistributions(config); i++) {
        const lierne_config_redistribution_entry *entry = config->redistributions.at[i];
        if (entry->name && strcmp(entry->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

const lierne_redistribute_spec *lierne_config_get_redistribution(const lierne_config *config,
                                                                 const char *name) {
    const lierne_config_redistribution_entry *entry = find_redistribution(config, name);
    return entry ? &entry->spec : NULL;
}

const lierne_layout_spec *lierne_config_get_redistribution_layout(const lierne_config *config,
                                                                  const char *name, int side) {
    const lierne_config_redistribution_entry *entry = find_redistribution(config, name);
    return entry && (side == 0 || side == 1) ? &entry->specs[side] : NULL;
}

const char *lierne_config_get_bridge_src(const lierne_config *config, const char *name) {
    const lierne_config_bridge_entry *bridge = find_bridge(config, name);
    const lierne_config_packed_entry *packed = find_packed(config, name);
    const lierne_config_redistribution_entry *moved = find_redistribution(config, name);
    return bridge ? bridge->src : packed ? packed->src : moved ? moved->src : NULL;
}

const char *lierne_config_get_bridge_dst(const lierne_config *config, const char *name) {
    const lierne_config_bridge_entry *bridge = find_bridge(config, name);
    const lierne_config_packed_entry *packed = find_packed(config, name);
    const lierne_config_redistribution_entry *moved = find_redistribution(config, name);
    return bridge ? bridge->dst : packed ? packed->dst : moved ? moved->dst : NULL;
}

const char *lierne_config_get_bridge_axis(const lierne_config *config, const char *name, int axis) {
    const lierne_config_bridge_entry *bridge = find_bridge(config, name);
    const lierne_config_redistribution_entry *moved = find_redistribution(config, name);
    int naxes = bridge ? bridge->spec.naxes : moved ? moved->specs[0].naxes : 0;
    if (axis < 0 || axis >= naxes) {
        return NULL;
    }
    return bridge ? bridge->axes[axis] : moved->axes[axis];
}

const int *lierne_config_get_nodes(const lierne_config *config) {
    return config ? config->nodes : NULL;
}

const lierne_links *lierne_config_get_links(const lierne_config *config) {
    return config && config->has_links ? &config->links : NULL;
}
