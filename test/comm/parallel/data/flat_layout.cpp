#include "shale/comm/parallel/data/flat_layout.h"

#include "shale/base/error.h"
#include "shale/runtime/nn/layers.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

struct Leaf : Module {
  Leaf(Module* parent, std::string child_name, const Shape& shape)
      : Module(parent, std::move(child_name)), weight(declare("weight", shape, Init::zeros())) {}
  void use(Parameter& other) { tie(other); }
  Parameter& weight;
};

struct Block : Module {
  Block(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)), a(this, "a", {3, 5}), b(this, "b", {1024}) {}
  Leaf a, b;
};

struct Net : Module {
  Net() : embedding(this, "embedding", {7, 3}), first(this, "first"), second(this, "second") {}
  Leaf embedding;
  Block first, second;
};

std::vector<std::string> names(const comm::UnitPlan& plan) {
  std::vector<std::string> all;
  for (const Parameter* parameter : plan.parameters) all.push_back(parameter->full_name());
  return all;
}

}  // namespace

TEST_CASE("parameters and shards start and end at multiples of 1024 elements") {
  Module root;
  std::vector<std::unique_ptr<Leaf>> leaves;
  std::vector<Parameter*> parameters;
  for (const int64_t size : {1, 1023, 1024, 1025, 5000, 7}) {
    leaves.push_back(std::make_unique<Leaf>(&root, cat("p", size), Shape{size}));
    parameters.push_back(&leaves.back()->weight);
  }
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const comm::FlatLayout layout = comm::flat_layout(parameters, ranks);
    CAPTURE(ranks);
    CHECK(layout.shard_numel % comm::kFlatAlignment == 0);
    CHECK_FALSE(layout.owner.has_value());
    CHECK(layout.numel == layout.shard_numel * ranks);
    int64_t end = 0;
    for (const comm::FlatEntry& entry : layout.entries) {
      CHECK(entry.offset % comm::kFlatAlignment == 0);
      CHECK(entry.offset >= end);
      end = entry.offset + entry.parameter->numel();
    }
    CHECK(end <= layout.numel);
    // Padding is at most what the alignment of shards needs.
    CHECK(layout.numel - end < comm::kFlatAlignment * (ranks + 1));
  }
  CHECK(comm::flat_layout({}, 4).numel == 0);
}

TEST_CASE("a buffer that would be mostly padding lies on one rank, in turn, as it is") {
  Module root;
  Leaf small(&root, "small", Shape{3000}), large(&root, "large", Shape{600 * 1024});
  const comm::FlatLayout sharded = comm::flat_layout({&large.weight}, 1024);
  CHECK_FALSE(sharded.owner.has_value());
  CHECK(sharded.numel == 1024 * 1024);
  const comm::FlatLayout owned = comm::flat_layout({&small.weight}, 1024, 1030);
  CHECK(owned.owner == 6);
  CHECK(owned.numel == 3072);
  CHECK(owned.count_of(6) == 3072);
  CHECK(owned.count_of(5) == 0);
  for (int ranks = 1; ranks <= 4096; ++ranks) {
    for (const auto* parameter : {&small.weight, &large.weight}) {
      const auto layout = comm::flat_layout({const_cast<Parameter*>(parameter)}, ranks);
      REQUIRE(layout.numel <= 2 * (parameter->numel() + comm::kFlatAlignment));
    }
  }
}

TEST_CASE("a unit has its subtree without inner units, and the root has the rest") {
  Net net;
  const auto plans = comm::plan_units(net, {&net.first, &net.second.b});
  REQUIRE(plans.size() == 3);
  CHECK(names(plans[0]) == std::vector<std::string>{"first.a.weight", "first.b.weight"});
  CHECK(names(plans[1]) == std::vector<std::string>{"second.b.weight"});
  CHECK(names(plans[2]) == std::vector<std::string>{"embedding.weight", "second.a.weight"});
  CHECK(plans[2].module == &net);
}

TEST_CASE("a tied parameter belongs to the lowest unit that encloses its owner and its users") {
  Net net;
  net.second.a.use(net.embedding.weight);
  net.first.b.use(net.first.a.weight);
  net.second.b.use(net.first.a.weight);
  const auto plans = comm::plan_units(net, {&net.first, &net.second});
  CHECK(names(plans[0]) == std::vector<std::string>{"first.b.weight"});
  CHECK(names(plans[2]) == std::vector<std::string>{"embedding.weight", "first.a.weight"});

  Net local;  // here both modules that use the weight are in one unit, which owns it
  local.first.b.use(local.first.a.weight);
  CHECK(names(comm::plan_units(local, {&local.first})[0]) ==
        std::vector<std::string>{"first.a.weight", "first.b.weight"});
}

TEST_CASE("a unit that would never run is an error that names the module around it") {
  struct Layers : Module {
    Layers() : mlp(this, "mlp", {.width = 4, .hidden = 8}) {}
    nn::FeedForward mlp;
  } net;
  CHECK(message_of<ConfigError>([&] { comm::plan_unit(net.mlp.up, {}); }) ==
        "unit: mlp.c_fc has no forward of its own, so its hooks never run; use a module that "
        "contains it: mlp");
  CHECK_FALSE(message_of<ConfigError>([&] { comm::plan_units(net, {&net.mlp.down}); }).empty());
  CHECK(names(comm::plan_unit(net.mlp, {})).size() == 4);
}

TEST_CASE("units and tied parameters outside the tree are errors that name them") {
  Net net, other;
  CHECK(
      contains(message_of<InternalError>([&] { comm::plan_units(net, {&other.first}); }), "first"));
  net.first.a.use(other.embedding.weight);
  CHECK(
      contains(message_of<InternalError>([&] { comm::plan_units(net, {}); }), "embedding.weight"));
}

}  // namespace shale::test
