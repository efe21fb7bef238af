#include "shale/comm/mesh.h"

#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

using comm::Mesh;

TEST_CASE("the groups of a mesh join the ranks along one axis", "[mesh]") {
  const auto group = world().group({.timeout_s = 60});
  const int n = group->size(), me = group->rank();
  for (int tp = 1; tp <= n; ++tp) {
    if (n % tp != 0) continue;
    Mesh mesh(*group, {{"dp", 0}, {"tp", tp}});
    CAPTURE(n, tp);
    CHECK(mesh.size("dp") == n / tp);
    CHECK(mesh.coordinate("tp") == me % tp);
    for (const char* axis : {"dp", "tp"}) {
      CHECK(mesh.group(axis).size() == mesh.size(axis));
      CHECK(mesh.group(axis).rank() == mesh.coordinate(axis));
      if (mesh.size(axis) < n) CHECK(mesh.group(axis).options().name == axis);
    }
    // Sums along the axis tp, then along dp, give the sum over all ranks.
    int32_t value = me + 1;
    mesh.group("tp").all_reduce_sum(make_view(&value, {1}));
    const int first = me / tp * tp;
    CHECK(value == tp * (first + 1) + tp * (tp - 1) / 2);
    mesh.group("dp").all_reduce_sum(make_view(&value, {1}));
    CHECK(value == n * (n + 1) / 2);

    comm::ProcessGroup& everyone = mesh.flatten({"dp", "tp"});
    CHECK(&everyone == group.get());
    CHECK(everyone.rank() == me);
    CHECK(mesh.flatten({}).size() == 1);
    // flatten() of all axes returns the group of all ranks that the mesh was made from.
    CHECK(&mesh.flatten({"tp", "dp"}) == &everyone);
    CHECK(&mesh.flatten({"tp"}) == &mesh.group("tp"));
    CHECK_THROWS_AS(mesh.group("pp"), ConfigError);
  }
  CHECK_THROWS_AS(Mesh(*group, {{"dp", n + 1}}), ConfigError);
}

TEST_CASE("hybrid sharding shards inside a node and replicates across nodes", "[mesh]") {
  const auto group = world().group({.timeout_s = 60});
  const int n = group->size(), me = group->rank();
  Mesh mesh(*group, hybrid_axes(*group, world().local_rank(), world().local_size()));
  CHECK(mesh.size("node") == world().local_size());
  CHECK(mesh.size("replica") * mesh.size("node") == n);
  if (n % 2 == 0) {
    Mesh pairs(*group, hybrid_axes(*group, me % 2, 2));  // pretends that a node has two ranks
    CHECK(pairs.size("replica") == n / 2);
    CHECK(pairs.group("node").size() == 2);
  }
  if (n > 2) {
    // Pretends that the last rank is alone on its node.
    const bool last = me == n - 1;
    const auto uneven = [&] { hybrid_axes(*group, last ? 0 : me, last ? 1 : n - 1); };
    CHECK(contains(message_of<ConfigError>(uneven), "equally many"));
  }
}

}  // namespace shale::test
