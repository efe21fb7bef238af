#include "shale/comm/mesh.h"

#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::test {

using comm::MeshLayout;

TEST_CASE("the last axis of a mesh is the fastest") {
  const MeshLayout mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}}, 8);
  for (int rank = 0; rank < 8; ++rank) {
    CHECK(mesh.coordinate("pp", rank) == rank / 4);
    CHECK(mesh.coordinate("dp", rank) == rank / 2 % 2);
    CHECK(mesh.coordinate("tp", rank) == rank % 2);
  }
  CHECK(mesh.peers({"tp"}, 5) == std::vector<int>{4, 5});
  CHECK(mesh.peers({"dp"}, 5) == std::vector<int>{5, 7});
  CHECK(mesh.peers({"pp"}, 5) == std::vector<int>{1, 5});
  CHECK(mesh.peers({"pp", "tp"}, 5) == std::vector<int>{0, 1, 4, 5});
  CHECK(mesh.peers({"tp", "dp", "pp"}, 5).size() == 8);
}

TEST_CASE("every rank is once in the groups of an axis, at its coordinate") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int tp = 1; tp <= ranks; ++tp) {
      if (ranks % tp != 0) continue;
      const MeshLayout mesh({{"dp", 0}, {"tp", tp}}, ranks);
      CAPTURE(ranks, tp);
      CHECK(mesh.size("dp") == ranks / tp);
      for (int rank = 0; rank < ranks; ++rank) {
        for (const char* axis : {"dp", "tp"}) {
          const std::vector<int> peers = mesh.peers({axis}, rank);
          REQUIRE(static_cast<int>(peers.size()) == mesh.size(axis));
          CHECK(peers[static_cast<size_t>(mesh.coordinate(axis, rank))] == rank);
        }
      }
    }
  }
}

TEST_CASE("a mesh that cannot be says why") {
  const auto error = [](std::vector<comm::MeshAxis> axes, int ranks) {
    return message_of<ConfigError>([&] { MeshLayout(std::move(axes), ranks); });
  };
  CHECK(contains(error({{"dp", 2}, {"tp", 3}}, 8), "dp=2 x tp=3 does not fit 8 ranks"));
  CHECK(contains(error({{"dp", 0}, {"tp", 3}}, 8), "dp=0 x tp=3 does not fit 8 ranks"));
  CHECK(contains(error({{"dp", 0}, {"tp", 16}}, 8), "does not fit 8 ranks"));
  CHECK(contains(error({{"dp", 0}, {"tp", 0}}, 8), "dp and tp have no size"));
  CHECK(contains(error({{"dp", 2}, {"dp", 4}}, 8), "two axes are called dp"));
  CHECK(contains(error({{"", 8}}, 8), "want a name"));
  CHECK(contains(error({{"dp", -8}}, 8), "want a name and a size"));
  CHECK(contains(error({}, 8), "no axes"));
  // Too large for the product to be computed.
  CHECK(contains(error({{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}, 8), "does not fit"));
  const MeshLayout mesh({{"dp", 8}}, 8);
  CHECK(contains(message_of<ConfigError>([&] { mesh.size("tp"); }), "no axis 'tp' in dp=8"));
}

}  // namespace shale::test
