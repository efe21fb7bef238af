#pragma once

#include <memory>

#include "shale/comm/parallel/hosted_exchange.h"

namespace shale::test {

// Makes a line of mesh ranks: each process hosts all of `ranks`, or one mesh rank if that is null.
inline std::shared_ptr<comm::MeshLine> line_over(comm::ProcessGroup& group, const char* name,
                                                 comm::HostedRanks* ranks = nullptr,
                                                 bool overlap = true) {
  return std::make_shared<comm::MeshLine>(
      group, ranks, ranks != nullptr ? ranks->count() : 1,
      comm::MeshLine::Options{.name = name, .overlap = overlap});
}

}  // namespace shale::test
