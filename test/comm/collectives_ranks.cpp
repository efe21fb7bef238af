#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

// Lengths: empty, one element, ragged, a single chunk, several chunks.
const std::vector<int64_t> kCounts = {0, 1, 7, 4099, 30013};
const std::vector<int64_t> kSlices = {0, 1, 7, 9001};  // elements of a slice, one slice per rank

template <typename Test>
void for_all(Test&& test) {
  for_all_setups([&](const Setup& setup) {
    CAPTURE(name_of(setup.options), name_of(setup.place), setup.group.rank());
    test(setup);
  });
}

template <typename T>
void fill(T* data, int rank, int64_t first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) data[i] = order_value<T>(rank, first + i);
}

}  // namespace

TEMPLATE_TEST_CASE("all_reduce_sum adds in the documented tree", "", float, bf16, f16, double,
                   int32_t, int64_t) {
  using T = TestType;
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (const int64_t count : kCounts) {
      const Buffer buffer(setup, count * int64_t{sizeof(T)});
      fill(buffer.as<T>(), group.rank(), 0, count);
      buffer.give();
      group.all_reduce_sum(buffer.view<T>(count), {.tag = "test", .stream = setup.stream});
      buffer.take();
      const auto want = [&](int64_t i) {
        return expected_sum<T>(group.size(), setup.options.ranks_per_node, i);
      };
      CAPTURE(count);
      REQUIRE(first_difference(buffer.as<T>(), count, want) == -1);
    }
  });
}

TEMPLATE_TEST_CASE("reduce_scatter_sum then all_gather gives the bits of all_reduce_sum", "", float,
                   bf16, int64_t) {
  using T = TestType;
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (const int64_t slice : kSlices) {
      const int64_t count = slice * group.size();
      const Buffer in(setup, count * int64_t{sizeof(T)});
      const Buffer out(setup, slice * int64_t{sizeof(T)});
      const Buffer back(setup, count * int64_t{sizeof(T)});
      fill(in.as<T>(), group.rank(), 0, count);
      in.give();
      CAPTURE(slice);

      const comm::CollectiveOptions options{.stream = setup.stream};
      group.reduce_scatter_sum(in.view<T>(count), out.view<T>(slice), options);
      in.take(), out.take();
      const auto sum = [&](int64_t i) {
        return expected_sum<T>(group.size(), setup.options.ranks_per_node, i);
      };
      const auto own_sum = [&](int64_t i) { return sum(group.rank() * slice + i); };
      const auto given = [&](int64_t i) { return order_value<T>(group.rank(), i); };
      REQUIRE(first_difference(out.as<T>(), slice, own_sum) == -1);
      REQUIRE(first_difference(in.as<T>(), count, given) == -1);

      group.all_gather(out.view<T>(slice), back.view<T>(count), options);
      back.take();
      REQUIRE(first_difference(back.as<T>(), count, sum) == -1);
    }
  });
}

TEST_CASE("reduce_scatter_sum and all_gather work in place") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (const int64_t slice : kSlices) {
      const int64_t count = slice * group.size();
      const Buffer buffer(setup, count * 4);
      fill(buffer.as<float>(), group.rank(), 0, count);
      const View whole = buffer.view<float>(count);
      const View own = whole.flat(group.rank() * slice, slice);
      CAPTURE(slice);

      buffer.give();
      group.reduce_scatter_sum(whole, own, {.stream = setup.stream});
      group.all_gather(own, whole, {.stream = setup.stream});
      buffer.take();
      const auto sum = [&](int64_t i) {
        return expected_sum<float>(group.size(), setup.options.ranks_per_node, i);
      };
      REQUIRE(first_difference(buffer.as<float>(), count, sum) == -1);
    }
  });
}

TEST_CASE("all_gather works when peers reach only what is given, or only what is filled") {
  const auto group = world().group({.timeout_s = 60});
  const int64_t slice = 30001, count = slice * group->size();
  for (const Place in_place : {Place::kGroup, Place::kAny}) {
    const Place out_place = in_place == Place::kGroup ? Place::kAny : Place::kGroup;
    const Buffer in(*group, in_place, slice * 4), out(*group, out_place, count * 4);
    fill(in.as<int32_t>(), group->rank(), 0, slice);
    group->all_gather(make_view(in.as<int32_t>(), {slice}), make_view(out.as<int32_t>(), {count}));
    const auto want = [&](int64_t i) {
      return order_value<int32_t>(static_cast<int>(i / slice), i % slice);
    };
    REQUIRE(first_difference(out.as<int32_t>(), count, want) == -1);
  }
}

TEST_CASE("broadcast copies the root's bytes") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (int root = 0; root < group.size(); ++root) {
      for (const int64_t count : {int64_t{0}, int64_t{3}, int64_t{100'003}}) {
        const Buffer buffer(setup, count);
        const auto value = [&](int64_t i) { return static_cast<uint8_t>(i * 7 + root); };
        for (int64_t i = 0; i < count; ++i) {
          buffer.as<uint8_t>()[i] = group.rank() == root ? value(i) : uint8_t{0};
        }
        buffer.give();
        group.broadcast(buffer.view<uint8_t>(count), root, {.stream = setup.stream});
        buffer.take();
        CAPTURE(root, count);
        REQUIRE(first_difference(buffer.as<uint8_t>(), count, value) == -1);
      }
    }
  });
}

TEMPLATE_TEST_CASE("all_reduce_max finds the largest value", "", float, double, int32_t, int64_t) {
  using T = TestType;
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int64_t count = 20'011;
    const Buffer buffer(setup, count * int64_t{sizeof(T)});
    if (group.backend() == "nccl" && is_float(dtype_of<T>)) {
      // MPI's own maximum operation would ignore NaN.
      CHECK_THROWS_AS(group.all_reduce_max(buffer.view<T>(count)), DTypeError);
      return;
    }
    fill(buffer.as<T>(), group.rank(), 0, count);
    buffer.give();
    group.all_reduce_max(buffer.view<T>(count), {.stream = setup.stream});
    buffer.take();
    const auto want = [&](int64_t i) {
      T largest = order_value<T>(0, i);
      for (int r = 1; r < group.size(); ++r) largest = std::max(largest, order_value<T>(r, i));
      return largest;
    };
    REQUIRE(first_difference(buffer.as<T>(), count, want) == -1);
  });
}

TEST_CASE("all_reduce_max keeps a NaN of any rank") {
  const auto group = world().group({.timeout_s = 60});
  for (int owner = 0; owner < group->size(); ++owner) {
    float value = group->rank() == owner ? std::numeric_limits<float>::quiet_NaN() : 1.f;
    group->all_reduce_max(make_view(&value, {1}));
    CHECK(std::isnan(value));
  }
}

TEST_CASE("all_gather_bytes keeps rank order and lengths") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const auto text = [](int rank) { return std::string(static_cast<size_t>(rank * 3000), 'a'); };
    const auto all = group.all_gather_bytes(text(group.rank()));
    REQUIRE(all.size() == static_cast<size_t>(group.size()));
    for (int r = 0; r < group.size(); ++r) CHECK(all[static_cast<size_t>(r)] == text(r));
  });
}

TEST_CASE("gather leaves all slices with the root, and nothing elsewhere") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (int root = 0; root < group.size(); ++root) {
      for (const int64_t slice : kSlices) {
        const int64_t count = slice * group.size();
        const Buffer in(setup, slice * 4), out(setup, count * 4);
        fill(in.as<int32_t>(), group.rank(), 0, slice);
        std::fill_n(out.as<int32_t>(), count, -7);
        in.give(), out.give();
        group.gather(in.view<int32_t>(slice), out.view<int32_t>(count), root,
                     {.stream = setup.stream});
        in.take(), out.take();
        const auto want = [&](int64_t i) {
          if (group.rank() != root) return int32_t{-7};
          return order_value<int32_t>(static_cast<int>(i / slice), i % slice);
        };
        const auto given = [&](int64_t i) { return order_value<int32_t>(group.rank(), i); };
        CAPTURE(root, slice);
        REQUIRE(first_difference(out.as<int32_t>(), count, want) == -1);
        REQUIRE(first_difference(in.as<int32_t>(), slice, given) == -1);
      }
    }
  });
}

TEST_CASE("gather works in place, and needs no output elsewhere") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int root = group.size() - 1;
    const int64_t slice = 9001, count = slice * group.size();
    const Buffer buffer(setup, count * 4);
    fill(buffer.as<int32_t>() + group.rank() * slice, group.rank(), 0, slice);
    buffer.give();
    const View whole = buffer.view<int32_t>(count);
    group.gather(whole.flat(group.rank() * slice, slice), group.rank() == root ? whole : View{},
                 root, {.stream = setup.stream});
    buffer.take();
    if (group.rank() != root) return;
    const auto want = [&](int64_t i) {
      return order_value<int32_t>(static_cast<int>(i / slice), i % slice);
    };
    REQUIRE(first_difference(buffer.as<int32_t>(), count, want) == -1);
  });
}

TEST_CASE("gather_bytes keeps rank order and lengths, at the root alone") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const auto text = [](int rank) { return std::string(static_cast<size_t>(rank * 3000), 'a'); };
    for (int root = 0; root < group.size(); ++root) {
      const auto all = group.gather_bytes(text(group.rank()), root);
      REQUIRE(all.size() == static_cast<size_t>(group.rank() == root ? group.size() : 0));
      for (size_t r = 0; r < all.size(); ++r) CHECK(all[r] == text(static_cast<int>(r)));
    }
  });
}

TEST_CASE("broadcast_bytes brings the root's text, of any length, to all") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (int root = 0; root < group.size(); ++root) {
      const std::string text(static_cast<size_t>(root * 3000), 'a');
      CHECK(group.broadcast_bytes(group.rank() == root ? text : "mine", root) == text);
    }
  });
}

TEMPLATE_TEST_CASE(
    "reduce_sum has the bits of all_reduce_sum at the root, and changes nothing else", "", float,
    bf16, int64_t) {
  using T = TestType;
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (int root = 0; root < group.size(); ++root) {
      for (const int64_t count : kCounts) {
        const Buffer buffer(setup, count * int64_t{sizeof(T)});
        fill(buffer.as<T>(), group.rank(), 0, count);
        buffer.give();
        group.reduce_sum(buffer.view<T>(count), root, {.tag = "test", .stream = setup.stream});
        buffer.take();
        const auto want = [&](int64_t i) {
          if (group.rank() != root) return order_value<T>(group.rank(), i);
          return expected_sum<T>(group.size(), setup.options.ranks_per_node, i);
        };
        CAPTURE(root, count);
        REQUIRE(first_difference(buffer.as<T>(), count, want) == -1);
      }
    }
  });
}

TEST_CASE("all_to_all gives every rank the slices that are for it") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    for (const int64_t slice : kSlices) {
      const int64_t count = slice * group.size();
      const Buffer in(setup, count * 4), out(setup, count * 4);
      fill(in.as<int32_t>(), group.rank(), 0, count);
      in.give();
      group.all_to_all(in.view<int32_t>(count), out.view<int32_t>(count), {.stream = setup.stream});
      in.take(), out.take();
      const auto want = [&](int64_t i) {
        return order_value<int32_t>(static_cast<int>(i / slice), group.rank() * slice + i % slice);
      };
      const auto given = [&](int64_t i) { return order_value<int32_t>(group.rank(), i); };
      CAPTURE(slice);
      REQUIRE(first_difference(out.as<int32_t>(), count, want) == -1);
      REQUIRE(first_difference(in.as<int32_t>(), count, given) == -1);
    }
  });
}

namespace {

// Number of elements that rank `from` sends to `to`: zero, a few, or several chunks and messages.
int64_t pair_count(int from, int to, int64_t longest) {
  if (from == to + 1) return 0;
  if (from == 0 && to == 1) return longest;
  return 1 + (from * 7 + to * 3) % 5 * 211;
}

std::vector<int64_t> pair_counts(int ranks, int rank, bool gives, int64_t longest) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(gives ? pair_count(rank, r, longest) : pair_count(r, rank, longest));
  }
  return counts;
}

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

TEST_CASE("all_to_all_v moves slices of any lengths") {
  for_all([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int ranks = group.size(), me = group.rank();
    for (const int64_t longest : {int64_t{0}, int64_t{5}, int64_t{40'009}, int64_t{1'500'007}}) {
      // Staging slots of device groups are small, so long messages would take too long.
      if (longest > 100'000 && setup.device != nullptr) continue;
      const auto in_counts = pair_counts(ranks, me, /*gives=*/true, longest);
      const auto out_counts = pair_counts(ranks, me, /*gives=*/false, longest);
      const int64_t given = sum_of(in_counts), received = sum_of(out_counts);
      const Buffer in(setup, given * 4), out(setup, received * 4);
      fill(in.as<int32_t>(), me, 0, given);
      in.give();
      group.all_to_all_v(in.view<int32_t>(given), in_counts, out.view<int32_t>(received),
                         out_counts, {.stream = setup.stream});
      out.take();
      CAPTURE(longest);
      int64_t at = 0;
      for (int from = 0; from < ranks; ++from) {
        const auto theirs = pair_counts(ranks, from, /*gives=*/true, longest);
        const int64_t first = std::accumulate(theirs.begin(), theirs.begin() + me, int64_t{0});
        const int64_t count = theirs[static_cast<size_t>(me)];
        const auto want = [&](int64_t i) { return order_value<int32_t>(from, first + i); };
        REQUIRE(first_difference(out.as<int32_t>() + at, count, want) == -1);
        at += count;
      }
    }
  });
}

TEST_CASE("the bits of a sum do not depend on where the buffer is cut") {
  const auto group = world().group({.timeout_s = 60});
  const int64_t count = 50'021;
  for (const Place place : {Place::kGroup, Place::kAny}) {
    const Buffer whole(*group, place, count * 4), cut(*group, place, count * 4);
    fill(whole.as<float>(), group->rank(), 0, count);
    fill(cut.as<float>(), group->rank(), 0, count);
    const View view = make_view(cut.as<float>(), {count});
    group->all_reduce_sum(make_view(whole.as<float>(), {count}));
    for (int64_t begin = 0; begin < count; begin += 9001) {
      group->all_reduce_sum(view.flat(begin, std::min<int64_t>(9001, count - begin)));
    }
    CHECK(std::memcmp(whole.as<float>(), cut.as<float>(), count * 4) == 0);
  }
}

TEST_CASE("a large sum on memory that peers reach is right to the last element") {
  // The buffer is larger than the threshold for stores that bypass the caches.
  const auto group = world().group({.timeout_s = 60});
  const int64_t count = (12 << 20) / 4 + 5;
  for (const Place place : {Place::kGroup, Place::kOffset, Place::kAny, Place::kMixed}) {
    const Buffer buffer(*group, place, count * 4);
    for (int64_t i = 0; i < count; ++i) {
      buffer.as<float>()[i] = static_cast<float>(i % 1000 + group->rank());
    }
    group->all_reduce_sum(make_view(buffer.as<float>(), {count}));
    const int n = group->size();
    const auto want = [&](int64_t i) {
      return static_cast<float>(n * (i % 1000) + n * (n - 1) / 2);
    };
    REQUIRE(first_difference(buffer.as<float>(), count, want) == -1);
  }
}

TEST_CASE("a reduction may use several threads and gives the same bits") {
  const auto one = world().group({.timeout_s = 60, .threads = 1});
  const auto two = world().group({.timeout_s = 60, .threads = 2});
  const int64_t count = 600'001;
  const Buffer a(*one, Place::kGroup, count * 4), b(*two, Place::kGroup, count * 4);
  fill(a.as<float>(), one->rank(), 0, count);
  fill(b.as<float>(), one->rank(), 0, count);
  one->all_reduce_sum(make_view(a.as<float>(), {count}));
  two->all_reduce_sum(make_view(b.as<float>(), {count}));
  CHECK(std::memcmp(a.as<float>(), b.as<float>(), count * 4) == 0);
}

TEST_CASE("wrong arguments are refused before anything is sent") {
  const auto group = world().group({.timeout_s = 60});
  const int n = group->size();
  std::vector<float> values(static_cast<size_t>(8 * n + 8));
  const View whole = make_view(values.data(), {4 * n});
  const View strided{
      .data = values.data(), .dtype = DType::kF32, .shape = {2, 2}, .strides = {4, 1}};
  std::vector<uint8_t> bytes(4);
  CHECK_THROWS_AS(group->all_reduce_sum(strided), ShapeError);
  CHECK_THROWS_AS(group->all_reduce_sum(make_view(bytes.data(), {4})), DTypeError);
  CHECK_THROWS_AS(group->all_gather(make_view(values.data() + 4 * n, {5}), whole), ShapeError);
  CHECK_THROWS_AS(group->broadcast(whole, n), ShapeError);
  CHECK_THROWS_AS(group->broadcast(whole, -1), ShapeError);
  CHECK_THROWS_AS(group->reduce_sum(whole, n), ShapeError);
  CHECK_THROWS_AS(group->all_to_all(whole, whole), ShapeError);
  CHECK_THROWS_AS(group->all_to_all(whole.flat(0, 4 * n - 1), whole), ShapeError);
  const std::vector<int64_t> threes(static_cast<size_t>(n), 3);
  CHECK_THROWS_AS(group->all_to_all_v(whole, threes, whole, threes), ShapeError);
  CHECK_THROWS_AS(group->gather(whole.flat(0, 4), whole, n), ShapeError);
  if (n > 1) {
    const int other = (group->rank() + 1) % n;
    CHECK_THROWS_AS(group->all_gather(whole.flat(4 * other, 4), whole), ShapeError);
    CHECK_THROWS_AS(group->reduce_scatter_sum(whole, whole.flat(4 * other, 4)), ShapeError);
  }
}

}  // namespace shale::test
