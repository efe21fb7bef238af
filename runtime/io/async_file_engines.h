#pragma once

#include <memory>

#include "shale/runtime/io/async_file.h"

namespace shale {

// Null if the system does not allow io_uring for this process.
std::unique_ptr<AsyncFile::Engine> make_io_uring_engine(int file);
std::unique_ptr<AsyncFile::Engine> make_thread_engine(int file);

}  // namespace shale
