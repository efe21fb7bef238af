#include "shale/models/training/report/memory_profile.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Allocates 3 MiB and 1 MiB, which is the peak, and then 2 MiB in place of the 3 MiB.
void allocate_some(Context& context, MemoryLedger& ledger) {
  ledger.mark("step 1");
  ledger.set_place("h.0");
  Tensor first = empty(context, {3 * kMiB}, DType::kU8, MemoryTag::kActivation, "<gelu>");
  ledger.set_place("");
  const Tensor second = empty(context, {kMiB}, DType::kU8, MemoryTag::kOptimizer, "h.1");
  first = Tensor();
  ledger.mark("step 2");
  const Tensor third = empty(context, {2 * kMiB}, DType::kU8, MemoryTag::kGradient, "h.1");
}

// Returns the 8-byte integers that follow `key` in a pickle written by MemoryLedger.
std::vector<int64_t> numbers_after(std::string_view pickle, std::string_view key) {
  const std::string mark = std::string(key) + "\x8a\x08";
  std::vector<int64_t> numbers;
  for (size_t at = 0; (at = pickle.find(mark, at)) != pickle.npos; at += mark.size()) {
    int64_t value = 0;
    for (int i = 7; i >= 0; --i) {
      value = value << 8 | static_cast<uint8_t>(pickle[at + mark.size() + static_cast<size_t>(i)]);
    }
    numbers.push_back(value);
  }
  return numbers;
}

int64_t count(std::string_view text, std::string_view what) {
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += what.size()) ++found;
  return found;
}

}  // namespace

TEST_CASE("a ledger knows what is in use when most is") {
  Context context({});
  MemoryLedger ledger(context);
  allocate_some(context, ledger);
  CHECK(ledger.peak_bytes() == 4 * kMiB);
  CHECK(ledger.peak_time() == 1);
  const std::vector<MemoryLedger::Share> shares = ledger.at_peak();
  REQUIRE(shares.size() == 2);
  CHECK(shares[0].tag == MemoryTag::kActivation);
  CHECK(shares[0].place == "h.0");
  CHECK(shares[0].what == "<gelu>");
  CHECK(shares[0].bytes == 3 * kMiB);
  CHECK(shares[1].place.empty());
  CHECK(shares[1].blocks == 1);

  const auto all = ledger.allocations();
  REQUIRE(all.size() == 3);
  CHECK(all[0].begin == 0);
  CHECK(all[0].end == 2);
  CHECK(all[2].begin == 3);
  CHECK(ledger.marks() ==
        std::vector<std::pair<int64_t, std::string>>{{0, "step 1"}, {3, "step 2"}});
}

TEST_CASE("what is freed and was not seen to be allocated is left out of a ledger") {
  Context context({});
  Tensor before = zeros(context, {100}, DType::kF32);
  MemoryLedger ledger(context);
  before = Tensor();
  CHECK(ledger.times() == 0);
  CHECK(ledger.at_peak().empty());
  CHECK(memory_svg(ledger, "nothing").starts_with("<svg"));
}

TEST_CASE("modules are places in forward, and units in backward") {
  struct Net : Module {
    nn::Linear up{this, "up", 8, 8, Init::ones()};
    Tensor forward(const Tensor& x) { return up.forward(x); }
  };
  Context context({});
  Net net;
  materialize(net, context, DType::kF32, 1);
  MemoryLedger ledger(context);
  ModulePlaces places(ledger, net, {});
  const Tensor y = net.forward(zeros(context, {4, 8}, DType::kF32));
  const auto all = ledger.allocations();
  const auto is_inside = [](const auto& one) { return one.place == "up"; };
  CHECK(std::count_if(all.begin(), all.end(), is_inside) >= 1);
  CHECK(all.front().place.empty());
}

TEST_CASE("a picture of memory shows tags, steps and the peak's largest shares") {
  Context context({});
  MemoryLedger ledger(context);
  allocate_some(context, ledger);
  const std::string svg = memory_svg(ledger, "rank 0");
  for (const char* text : {">rank 0: 4.0 MiB at the peak<", ">step 2<", ">optimizer<",
                           ">gradients<", ">3.0 MiB<", ">h.0<", ">&lt;gelu><"}) {
    CAPTURE(text);
    CHECK(svg.find(text) != svg.npos);
  }
  CHECK(svg.find("<gelu>") == svg.npos);
  CHECK(count(svg, "<path fill=") == 3);
}

TEST_CASE("a snapshot has each allocation, where it ends, and what is left") {
  Context context({});
  MemoryLedger ledger(context);
  const Tensor kept = empty(context, {5 * kMiB}, DType::kU8, MemoryTag::kParameter, "kept");
  allocate_some(context, ledger);
  const std::string pickle = memory_snapshot(ledger);
  CHECK(pickle.starts_with("\x80\x02"));
  CHECK(pickle.ends_with('.'));
  CHECK(count(pickle, "alloc") - count(pickle, "active_allocated") -
            count(pickle, "allocated_size") ==
        4);
  CHECK(count(pickle, "free_completed") == 3);
  CHECK(numbers_after(pickle, "allocated_size") == std::vector<int64_t>{5 * kMiB});
  CHECK(numbers_after(pickle, "requested_size").front() == 5 * kMiB);
  // Tensors that exist at the same time have different addresses.
  const std::vector<int64_t> addresses = numbers_after(pickle, "addr");
  CHECK(addresses[1] == addresses[0] + 5 * kMiB);
  CHECK(addresses[2] == addresses[1] + 3 * kMiB);
}

TEST_CASE("a profile is a picture or a snapshot, by its name") {
  Context context({});
  MemoryLedger ledger(context);
  allocate_some(context, ledger);
  const test::TempDir folder;
  write_memory_profile(folder.file("a.svg"), ledger, "of a test");
  write_memory_profile(folder.file("a.pickle"), ledger, "of a test");
  CHECK(test::read_file(folder.file("a.svg")) == memory_svg(ledger, "of a test"));
  CHECK(test::read_file(folder.file("a.pickle")) == memory_snapshot(ledger));
}

}  // namespace shale::models
