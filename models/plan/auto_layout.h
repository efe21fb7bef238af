#pragma once

#include <string>
#include <string_view>

#include "shale/base/config.h"
#include "shale/comm/world.h"
#include "shale/models/language/config.h"
#include "shale/models/plan/layout_search.h"

namespace shale::models {

// What --parallel says.
struct LayoutWish {
  bool is_auto = false;
  int chosen_for = 0;  // ranks for which the options beside it have been chosen; 0: for none
};

// Reads "none", "auto", or "auto:4" of a run's config.json. Throws ConfigError for anything else.
LayoutWish layout_wish(std::string_view parallel);

// resolve() of a run whose layout is searched: its batch need not fit the present one.
void resolve_for_search(TrainConfig& config, int ranks);

// Throws ConfigError where the user has given an option that a search of layouts chooses: `chooser`
// asks for it. --micro-batch and --recompute may be given.
void check_free(const ConfigSpec& spec, std::string_view chooser);

// Searches for the layout of the run's options that takes least time on so many of the cluster's
// devices, of those that fit --device-memory, or else a device. The result has a best one, with its
// own `config`, and may have layouts left: the search ends after --search-dry-runs, and after half
// of --timeout, as the other ranks wait for it. `spec`: of `config`, says what the user has given.
// `config` need not be resolved, but has --threads. Throws ConfigError if --parallel auto is beside
// an option that it is to choose, and as check_found() does.
FoundLayouts best_layout(const TrainConfig& config, const ConfigSpec& spec, const Cluster& cluster,
                         int ranks);

// --parallel auto of train_lm, before anything is resolved: the options of the layout are set as
// the checkpoint has them that --resume goes on from, if --parallel auto chose them for as many
// ranks; else as best_layout() has them for --cluster, or for these CPUs, which are measured. Rank
// 0 decides, and logs the flags; --parallel says for how many ranks then. Does nothing without.
// Throws as best_layout(), and ConfigError for --cluster alone, and for GPUs without it.
// Collective.
void choose_layout(TrainConfig& config, ConfigSpec& spec, comm::World& world);

}  // namespace shale::models
