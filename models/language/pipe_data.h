#pragma once

#include "shale/models/language/config.h"

namespace shale::models {

// If --data is "-" or a named pipe, copies it to OUT/stdin and makes that file the data of the run:
// training reads data in any order and more than once. A resumed run uses the copy of the run
// before, on any number of ranks; otherwise the run must have one rank. Throws ConfigError if it
// has several; DataError for an empty pipe, a stream of shale.data without its last line, and if
// the run before was killed while it copied; ErrorWithCode<kInterrupted> if the process is asked to
// stop; DiskError.
void copy_piped_data(TrainConfig& config, int ranks);

}  // namespace shale::models
