#pragma once

#include <cstdint>
#include <utility>

#include "shale/runtime/data/prefetch.h"
#include "shale/test/support/catch.h"

namespace shale::test {

// Checks that worker threads that share `source` make the same `count` batches as one thread. The
// thread sanitizer checks the sharing.
inline void check_workers_agree(const BatchSource& source, int64_t count) {
  Prefetcher ahead(source, {.depth = 16, .workers = 8});
  Batch alone;
  for (int64_t i = 0; i < count; ++i) {
    CAPTURE(i);
    REQUIRE(source(i, alone));
    const Batch* const batch = ahead.next();
    REQUIRE(batch != nullptr);
    CHECK(batch->first_position == alone.first_position);
    CHECK(batch->count == alone.count);
    REQUIRE(batch->fields.size() == alone.fields.size());
    for (size_t f = 0; f < alone.fields.size(); ++f) {
      CAPTURE(alone.fields[f].name);
      CHECK(batch->fields[f].name == alone.fields[f].name);
      CHECK(batch->fields[f].shape == alone.fields[f].shape);
      CHECK(batch->fields[f].bytes == alone.fields[f].bytes);
    }
  }
}

}  // namespace shale::test
