#pragma once

#include <memory>

#include "shale/runtime/io/async_file.h"

namespace shale {

// Returns an engine that uses io_uring; null if the system does not allow it for this process.
std::unique_ptr<AsyncFile::Engine> make_io_uring_engine(int file);
std::unique_ptr<AsyncFile::Engine> make_thread_engine(int file);

}  // namespace shale
