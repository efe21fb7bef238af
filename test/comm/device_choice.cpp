// Tests the GPU choice of ranks with simulated drivers, on one host and on two.
#include "shale/comm/hosts/device_choice.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

using Ids = std::vector<std::string>;

GpuList sees(const Ids& ids) {
  return {.ids = ids, .why_none = ids.empty() ? "CUDA_VISIBLE_DEVICES is empty" : ""};
}

// Returns the index of the GPU that each rank uses, or -1 for the CPU.
std::vector<int> chosen(const std::vector<RankGpus>& ranks, const DeviceWish& wish = {}) {
  std::vector<int> indices;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Device device = choose_device(ranks, static_cast<int>(rank), wish);
    indices.push_back(device.type == DeviceType::kCpu ? -1 : device.index);
  }
  return indices;
}

std::string refusal(const std::vector<RankGpus>& ranks, int rank, const DeviceWish& wish = {}) {
  return test::message_of<UnavailableError>([&] { choose_device(ranks, rank, wish); });
}

const Ids kFour = {"17:00", "3d:00", "60:00", "70:00"};

}  // namespace

TEST_CASE("ranks of a host take one GPU each, on every host from the first", "[comm]") {
  CHECK(chosen({{"a", sees(kFour)}, {"a", sees(kFour)}, {"a", sees(kFour)}, {"a", sees(kFour)}}) ==
        std::vector<int>{0, 1, 2, 3});
  CHECK(chosen({{"a", sees(kFour)}, {"a", sees(kFour)}, {"b", sees(kFour)}, {"b", sees(kFour)}}) ==
        std::vector<int>{0, 1, 0, 1});
  CHECK(chosen({{"a", sees(kFour)}, {"b", sees(kFour)}, {"a", sees(kFour)}, {"b", sees(kFour)}}) ==
        std::vector<int>{0, 0, 1, 1});
}

TEST_CASE("hosts that share a name, as clones of an image do, are told apart", "[comm]") {
  const RankGpus one{"localhost", sees({"17:00"}), "localhost 1"};
  const RankGpus other{"localhost", sees({"17:00"}), "localhost 2"};
  CHECK(chosen({one, other}) == std::vector<int>{0, 0});
  CHECK(test::contains(refusal({one, one}, 0), "has no free GPU: all 1 GPUs are used"));
}

TEST_CASE("a launcher that shows every rank its own GPU is followed", "[comm]") {
  CHECK(chosen({{"a", sees({"17:00"})}, {"a", sees({"3d:00"})}}) == std::vector<int>{0, 0});
  // Two ranks see two GPUs each. Both see GPU 17:00.
  CHECK(chosen({{"a", sees({"17:00", "3d:00"})}, {"a", sees({"17:00", "60:00"})}}) ==
        std::vector<int>{0, 1});
}

TEST_CASE("without a GPU ranks are on the CPU, unless they ask for one", "[comm]") {
  const std::vector<RankGpus> none = {{"a", sees({})}, {"b", sees({})}};
  CHECK(chosen(none) == std::vector<int>{-1, -1});
  CHECK(refusal(none, 0, {.gpu = true}) ==
        "device: rank 0, 1 on host a sees no GPU: CUDA_VISIBLE_DEVICES is empty");
  const std::vector<RankGpus> mixed = {{"a", sees(kFour)}, {"b", sees({})}};
  CHECK(test::contains(refusal(mixed, 0), "rank 1 on host b sees no GPU"));
  CHECK(refusal(mixed, 1) == refusal(mixed, 0));
}

TEST_CASE("several ranks on one GPU are an error unless it is asked for", "[comm]") {
  const std::vector<RankGpus> bound = {{"a", sees({"17:00"})}, {"a", sees({"17:00"})}};
  CHECK(chosen({bound[0]}) == std::vector<int>{0});
  CHECK(test::contains(refusal(bound, 1),
                       "rank 1 has no free GPU: all 1 GPUs are used (GPU 17:00 by rank 0)"));
  CHECK(refusal(bound, 0) == refusal(bound, 1));  // all ranks get the same error
  CHECK(chosen(bound, {.may_share = true}) == std::vector<int>{0, 0});
  const RankGpus two = {"a", sees({"17:00", "3d:00"})};
  CHECK(chosen({two, two, two, two, two}, {.may_share = true}) == std::vector<int>{0, 1, 0, 1, 0});
  CHECK(test::contains(refusal({two, two, two}, 2), "use at most one rank per GPU"));
}

}  // namespace shale::comm
