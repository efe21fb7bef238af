#pragma once

#include "shale/models/language/config.h"

namespace shale::models {

// If --data is "-" or a named pipe, copies it to OUT/stdin and makes that file the data of the run,
// because training reads data in any order and more than once. Only a run with one rank can copy. A
// resumed run uses the copy of the earlier run, on any number of ranks.
//
// Throws ConfigError if a run that must copy has several ranks. Throws DataError for an empty pipe,
// for a stream of shale.data without its last line, and if the earlier run was killed while it
// copied. Throws ErrorWithCode<kInterrupted> if the process is asked to stop; DiskError.
void copy_piped_data(TrainConfig& config, int ranks);

}  // namespace shale::models
