#include "shale/comm/checkpoint/layout.h"

#include <functional>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

// A tensor [4, 6] in two boxes of 4 x 3 elements. The first box has two parts.
CheckpointTensor sample() {
  CheckpointTensor tensor{.dtype = DType::kF32, .shape = {4, 6}, .boxes = {}};
  tensor.boxes.push_back({{{0, 0}, {4, 3}}, {{0, 0, 5}, {1, 5, 7}}});
  tensor.boxes.push_back({{{0, 3}, {4, 3}}, {{1, 0, 12}}});
  return tensor;
}

std::string complaint(const std::function<void(CheckpointTensor&)>& change) {
  CheckpointTensor tensor = sample();
  change(tensor);
  const std::string message =
      message_of<DataError>([&] { check_tensor("m.json", "w", tensor, /*file_count=*/2); });
  CHECK(message.starts_with("m.json: tensor 'w': "));
  return message;
}

// Returns the indices of a part's elements; index 0 is the first element of the part's box.
std::vector<int64_t> elements_of(const TensorPart& part) {
  std::vector<int64_t> places;
  const TensorBox box = part.box.size.empty() ? whole_box(part.shape) : part.box;
  for (int64_t i = part.first; i < part.first + part.count; ++i) {
    int64_t rest = i;
    int64_t place = 0;
    int64_t stride = 1;
    for (size_t dim = part.shape.size(); dim-- > 0;) {
      place += (box.begin[dim] + rest % box.size[dim]) * stride;
      rest /= box.size[dim];
      stride *= part.shape[dim];
    }
    places.push_back(place);
  }
  return places;
}

}  // namespace

TEST_CASE("boxes and parts that fill a tensor are accepted", "[io]") {
  CHECK_NOTHROW(check_tensor("m.json", "w", sample(), 2));
  CheckpointTensor scalar{.dtype = DType::kF64, .shape = {}, .boxes = {{{}, {{0, 0, 1}}}}};
  CHECK_NOTHROW(check_tensor("m.json", "s", scalar, 1));
  CheckpointTensor empty{.dtype = DType::kF32, .shape = {0, 4}, .boxes = {}};
  CHECK_THROWS_AS(check_tensor("m.json", "e", empty, 1), DataError);
  empty.boxes.push_back({whole_box(empty.shape), {}});
  CHECK_NOTHROW(check_tensor("m.json", "e", empty, 1));
  empty.boxes[0].parts.push_back({0, 0, 1});
  CHECK_THROWS_AS(check_tensor("m.json", "e", empty, 1), DataError);
}

TEST_CASE("gaps, overlaps and strays are found", "[io]") {
  using T = CheckpointTensor;
  // Errors in parts of boxes.
  CHECK(contains(complaint([](T& t) { t.boxes[0].parts[1].first = 6; }), "begins at element 6"));
  CHECK(contains(complaint([](T& t) { t.boxes[0].parts[1].first = 4; }), "begins at element 4"));
  CHECK(contains(complaint([](T& t) { t.boxes[0].parts[1].count = 6; }), "not in any file"));
  CHECK(contains(complaint([](T& t) { t.boxes[0].parts[1].count = 8; }), "has 8 elements"));
  CHECK(contains(complaint([](T& t) { t.boxes[1].parts.clear(); }), "not in any file"));
  CHECK(contains(complaint([](T& t) { t.boxes[1].parts[0].file = 2; }), "in file 2"));
  CHECK(contains(complaint([](T& t) { std::swap(t.boxes[0].parts[0], t.boxes[0].parts[1]); }),
                 "begins at element 5"));
  // Errors in boxes of tensors.
  CHECK(contains(complaint([](T& t) { t.boxes.pop_back(); }), "end at 3, expected 6"));
  CHECK(contains(complaint([](T& t) { t.boxes.clear(); }), "end at 0"));
  CHECK(contains(complaint([](T& t) { t.boxes[1].box.begin[1] = 2; }), "a box begins at 2"));
  CHECK(contains(complaint([](T& t) { t.boxes[1].box.size[1] = 4; }), "has 4 elements"));
  CHECK(contains(complaint([](T& t) { t.boxes[1].box.size[0] = 3; }), "a box begins at 0"));
  CHECK(contains(complaint([](T& t) { t.boxes[1].box.begin.push_back(0); }), "3 begins"));
  CHECK(contains(complaint([](T& t) { std::swap(t.boxes[0], t.boxes[1]); }), "ascending order"));
  CHECK(contains(complaint([](T& t) { t.boxes[1] = t.boxes[0]; }), "ascending order"));
  // The boxes cover each dimension completely, but one cell of their grid has no box.
  CHECK(contains(complaint([](T& t) {
                   t.boxes[0] = {{{0, 3}, {2, 3}}, {{0, 0, 6}}};
                   t.boxes[1] = {{{2, 0}, {2, 3}}, {{0, 0, 6}}};
                 }),
                 "2 boxes, expected 4"));
  // Errors in shapes of tensors.
  CHECK(contains(complaint([](T& t) { t.shape.assign(9, 1); }), "9 dimensions"));
  CHECK(contains(complaint([](T& t) { t.shape.assign(3, int64_t{1} << 30); }), "negative size"));
  CHECK(contains(complaint([](T& t) { t.shape = {-1, 6}; }), "negative size"));
}

TEST_CASE("each part of a tensor has a name of its own", "[io]") {
  TensorPart part{
      .tensor = "w", .dtype = DType::kF32, .shape = {4, 6}, .box = {}, .first = 0, .count = 24};
  CHECK(stored_name(part) == "w");
  CHECK(stored_shape(part) == std::vector<int64_t>{4, 6});
  part.count = 10;
  CHECK(stored_name(part) == "w@0");
  CHECK(stored_shape(part) == std::vector<int64_t>{10});
  part.first = 10;
  CHECK(stored_name(part) == "w@10");
  part.box = whole_box(part.shape);
  CHECK(stored_name(part) == "w@10");
  part.box = {{0, 3}, {4, 3}};
  CHECK(stored_name(part) == "w@0.3+10");
}

TEST_CASE("runs are the elements that a range and a part have in common", "[io]") {
  const std::vector<std::pair<std::vector<int64_t>, TensorBox>> cases = {
      {{}, {}},
      {{24}, {}},
      {{24}, {{5}, {7}}},
      {{4, 6}, {}},
      {{4, 6}, {{1, 0}, {2, 6}}},
      {{4, 6}, {{1, 2}, {3, 3}}},
      {{2, 3, 4}, {{0, 1, 0}, {2, 2, 4}}},
      {{2, 3, 4}, {{1, 0, 2}, {1, 3, 2}}},
      {{3, 1, 4}, {{1, 0, 1}, {2, 1, 2}}}};
  for (const auto& [shape, box] : cases) {
    TensorPart part{.tensor = "w", .dtype = DType::kU8, .shape = shape, .box = box};
    int64_t numel = 1;
    int64_t box_numel = 1;
    for (const int64_t size : shape) numel *= size;
    for (const int64_t size : box.size.empty() ? shape : box.size) box_numel *= size;
    int64_t wrong = 0;
    int64_t runs = 0;
    for (part.first = 0; part.first < box_numel; ++part.first) {
      for (part.count = 1; part.first + part.count <= box_numel; ++part.count) {
        const std::vector<int64_t> elements = elements_of(part);
        for (int64_t first = 0; first < numel; first += 3) {
          for (const int64_t count : {int64_t{1}, int64_t{5}, numel - first}) {
            std::vector<int64_t> found;
            int64_t last = -1;
            for_each_run(part, first, count, [&](const TensorRun& run) {
              ++runs;
              if (run.count < 1 || run.in_tensor <= last) ++wrong;
              for (int64_t i = 0; i < run.count; ++i) {
                last = run.in_tensor + i;
                const auto place = static_cast<size_t>(run.in_part + i);
                if (place >= elements.size() || elements[place] != last) ++wrong;
                found.push_back(last);
              }
            });
            std::vector<int64_t> want;
            for (const int64_t place : elements) {
              if (place >= first && place < first + count) want.push_back(place);
            }
            if (found != want) ++wrong;
          }
        }
      }
    }
    CAPTURE(shape.size(), box.begin, box.size);
    CHECK(wrong == 0);
    CHECK(runs > 0);
  }
}

}  // namespace shale
