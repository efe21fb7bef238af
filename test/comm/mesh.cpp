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
  CHECK(contains(error({{"dp", 2}, {"dp", 4}}, 8), "found twice: dp"));
  CHECK(contains(error({{"", 8}}, 8), "needs a name"));
  CHECK(contains(error({{"dp", -8}}, 8), "needs a name, and a size"));
  CHECK(contains(error({}, 8), "no axes"));
  // The product of the sizes would overflow an int.
  CHECK(contains(error({{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}, 8), "does not fit"));
  const MeshLayout mesh({{"dp", 8}}, 8);
  CHECK(contains(message_of<ConfigError>([&] { mesh.size("tp"); }), "no axis 'tp' in dp=8"));
}

TEST_CASE("ranks fill the axes that need the most bandwidth first") {
  const comm::ParallelSizes sizes{.replica = 2, .pipeline = 3, .context = 2, .tensor = 2};
  CHECK(sizes.model_ranks() == 12);
  const MeshLayout mesh(comm::parallel_axes(sizes, 48), 48);
  CHECK(mesh.size("shard") == 2);  // inferred from the other sizes
  CHECK(mesh.peers({"tensor"}, 1) == std::vector<int>{0, 1});
  CHECK(mesh.peers({"context"}, 1) == std::vector<int>{1, 3});
  CHECK(mesh.peers({"shard"}, 1) == std::vector<int>{1, 5});
  CHECK(mesh.peers({"pipeline"}, 1) == std::vector<int>{1, 9, 17});
  CHECK(mesh.peers({"replica"}, 1) == std::vector<int>{1, 25});
  CHECK(mesh.place_of(39) == "replica 1, pipeline 1, shard 1, context 1, tensor 1");
  const MeshLayout plain(comm::parallel_axes({.pipeline = 2}, 2), 2);
  CHECK(plain.place_of(1) == "pipeline 1");
  CHECK(plain.varying({"pipeline", "tensor"}) == plain.varying({"pipeline"}));
}

TEST_CASE("sizes that do not divide the ranks are named") {
  const auto error = [](const comm::ParallelSizes& sizes, int ranks) {
    return message_of<ConfigError>([&] { comm::parallel_axes(sizes, ranks); });
  };
  CHECK(contains(error({.pipeline = 2, .tensor = 3}, 8),
                 "replica=1 x pipeline=2 x shard=0 x context=1 x tensor=3: the sizes multiply to "
                 "6, expected a divisor of the 8 ranks"));
  CHECK(contains(error({.pipeline = 16}, 8), "multiply to 16"));
  CHECK(contains(error({.shard = 2, .tensor = 2}, 8), "does not fit 8 ranks"));
  CHECK(contains(error({.shard = 3}, 8), "multiply to 3"));
  CHECK(contains(error({.context = 0}, 8), "context=0, expected 1 or more"));
  CHECK(contains(error({.pipeline = 1 << 30, .context = 1 << 30, .tensor = 1 << 30}, 8),
                 "expected a divisor"));
}

}  // namespace shale::test
