// save_checkpoints FOLDER FIRST COUNT RANKS: cleans the checkpoint folder, as a run does at its
// start. Then it saves COUNT steps, beginning with step FIRST, prints "saved step N" for each, and
// keeps the newest two. Like a training program, it reports an error in one line and by its exit
// code.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "shale/base/error.h"
#include "shale/test/support/checkpoints.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: save_checkpoints FOLDER FIRST COUNT RANKS\n");
    return 64;
  }
  const shale::CheckpointFolder folder(argv[1]);
  const int64_t first = std::atoll(argv[2]);
  const int64_t count = std::atoll(argv[3]);
  try {
    folder.clean();
    for (int64_t step = first; step < first + count; ++step) {
      shale::test::save_sample(folder, step, {.ranks = std::atoi(argv[4]), .rows = 100});
      const std::string line = shale::cat("saved step ", step, "\n");
      // Writes without a buffer, so that a crash right afterwards cannot lose the line.
      if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) return 1;
      folder.retire(2, step);
    }
  } catch (const shale::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
