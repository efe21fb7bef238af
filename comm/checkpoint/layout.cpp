#include "shale/comm/checkpoint/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "shale/base/error.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool is_whole_tensor(const TensorPart& part) {
  return part.box.size.empty() || part.box.size == part.shape;
}

// Throws a DataError about one tensor.
struct Complaint {
  std::string_view source;
  std::string_view name;

  template <typename... Args>
  [[noreturn]] void operator()(const Args&... args) const {
    throw DataError(cat(source, ": tensor '", name, "': ", args...));
  }
};

// Checks that the boxes form a grid. Along each dimension, their different ranges must follow one
// another from 0 to the dimension's size. There must be as many boxes as the grid has cells.
void check_grid(const CheckpointTensor& tensor, const Complaint& fail) {
  const size_t ndim = tensor.shape.size();
  std::set<std::vector<int64_t>> begins;
  for (const auto& [box, parts] : tensor.boxes) {
    if (box.begin.size() != ndim || box.size.size() != ndim) {
      fail("a box has ", box.begin.size(), " begins and ", box.size.size(), " sizes, expected ",
           ndim, " of each, one per dimension");
    }
    if (!begins.empty() && box.begin <= *begins.rbegin())
      fail("its boxes are not in ascending order");
    begins.insert(box.begin);
  }
  int64_t cells = 1;
  for (size_t dim = 0; dim < ndim; ++dim) {
    std::set<std::pair<int64_t, int64_t>> ranges;
    for (const auto& [box, parts] : tensor.boxes) ranges.insert({box.begin[dim], box.size[dim]});
    int64_t end = 0;
    for (const auto& [begin, size] : ranges) {
      if (begin != end || size <= 0 || size > tensor.shape[dim] - begin) {
        fail("in dimension ", dim, " a box begins at ", begin, " and has ", size,
             " elements, expected a begin of ", end, " and 1 to ", tensor.shape[dim] - end,
             " elements");
      }
      end += size;
    }
    if (end != tensor.shape[dim]) {
      fail("in dimension ", dim, " its boxes end at ", end, ", expected ", tensor.shape[dim]);
    }
    // The product cannot overflow: each factor is at most the size of its dimension.
    cells *= static_cast<int64_t>(ranges.size());
  }
  if (static_cast<int64_t>(tensor.boxes.size()) != cells) {
    fail("it has ", tensor.boxes.size(), " boxes, expected ", cells,
         ", one for each cell of the grid");
  }
}

void check_parts(const CheckpointTensor::Box& box, int64_t file_count, const Complaint& fail) {
  const int64_t numel = product(box.box.size);
  int64_t end = 0;
  for (const CheckpointTensor::Part& part : box.parts) {
    if (part.file < 0 || part.file >= file_count) {
      fail("a part is in file ", part.file, ", expected a file number below ", file_count);
    }
    if (part.first != end) {
      fail("a part begins at element ", part.first, ", expected ", end,
           ", where the previous part ends");
    }
    if (part.count <= 0 || part.count > numel - end) {
      fail("a part at element ", end, " has ", part.count, " elements, expected 1 to ",
           numel - end);
    }
    end += part.count;
  }
  if (end != numel) fail("elements ", end, " to ", numel - 1, " of a box are not in any file");
}

// A part's box as a list of runs. The elements of a run are contiguous in the tensor.
class Runs {
 public:
  explicit Runs(const TensorPart& part)
      : box_(is_whole_tensor(part) ? whole_box(part.shape) : part.box),
        strides_(part.shape.size(), 1) {
    for (size_t i = strides_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * part.shape[i];
    // A run covers all last dimensions that the box has in full, and one dimension before them.
    outer_ = part.shape.size();
    while (outer_ > 0) {
      --outer_;
      length_ *= box_.size[outer_];
      if (box_.size[outer_] != part.shape[outer_]) break;
    }
  }

  int64_t length() const { return length_; }

  // Index in the tensor of the first element of run `index`. It increases with the run's index.
  int64_t begin(int64_t index) const {
    int64_t place = 0;
    for (size_t i = outer_; i < strides_.size(); ++i) place += box_.begin[i] * strides_[i];
    for (size_t i = outer_; i-- > 0;) {
      place += (box_.begin[i] + index % box_.size[i]) * strides_[i];
      index /= box_.size[i];
    }
    return place;
  }

 private:
  TensorBox box_;
  std::vector<int64_t> strides_;
  size_t outer_ = 0;    // number of leading dimensions that the runs iterate over
  int64_t length_ = 1;  // elements per run
};

}  // namespace

std::string stored_name(const TensorPart& part) {
  if (is_whole_tensor(part)) {
    return part.count == product(part.shape) ? part.tensor : cat(part.tensor, "@", part.first);
  }
  std::string name = part.tensor;
  for (size_t i = 0; i < part.box.begin.size(); ++i) {
    name += cat(i == 0 ? "@" : ".", part.box.begin[i]);
  }
  return cat(name, "+", part.first);
}

std::vector<int64_t> stored_shape(const TensorPart& part) {
  if (is_whole_tensor(part) && part.count == product(part.shape)) return part.shape;
  return {part.count};
}

int64_t CheckpointTensor::numel() const {
  return product(shape);
}

TensorPart part_of(std::string_view name, const CheckpointTensor& tensor,
                   const CheckpointTensor::Box& box, const CheckpointTensor::Part& part) {
  return {.tensor = std::string(name),
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .box = box.box,
          .first = part.first,
          .count = part.count};
}

TensorBox whole_box(const std::vector<int64_t>& shape) {
  return {.begin = std::vector<int64_t>(shape.size(), 0), .size = shape};
}

void check_tensor(std::string_view source, std::string_view name, const CheckpointTensor& tensor,
                  int64_t file_count) {
  const Complaint fail{source, name};
  if (static_cast<int64_t>(tensor.shape.size()) > kMaxSafetensorsRank) {
    fail(tensor.shape.size(), " dimensions, expected at most ", kMaxSafetensorsRank);
  }
  if (!safetensors_bytes(safetensors_dtype(tensor.dtype), tensor.shape)) {
    fail("its shape has a negative size, or its data has 2^63 bits or more");
  }
  if (tensor.numel() == 0) {
    if (tensor.boxes.size() != 1 || tensor.boxes[0].box != whole_box(tensor.shape) ||
        !tensor.boxes[0].parts.empty()) {
      fail("it has no elements; expected one box of the whole tensor, without parts");
    }
    return;
  }
  check_grid(tensor, fail);
  for (const CheckpointTensor::Box& box : tensor.boxes) check_parts(box, file_count, fail);
}

void for_each_run(const TensorPart& part, int64_t first, int64_t count,
                  const std::function<void(const TensorRun&)>& visit) {
  if (count <= 0 || part.count <= 0) return;
  const Runs runs(part);
  const int64_t length = runs.length();
  const int64_t last_run = (part.first + part.count - 1) / length;
  // Binary search for the first run that ends after element `first`. The starts of runs increase.
  int64_t run = part.first / length;
  for (int64_t high = last_run + 1; run < high;) {
    const int64_t middle = run + (high - run) / 2;
    if (runs.begin(middle) + length <= first) {
      run = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; run <= last_run; ++run) {
    const int64_t run_begin = runs.begin(run);
    if (run_begin >= first + count) return;
    // Intersect the part, the run and the requested range. Indices count the elements of the box.
    const int64_t to_tensor = run_begin - run * length;
    const int64_t begin = std::max({part.first, run * length, first - to_tensor});
    const int64_t end =
        std::min({part.first + part.count, (run + 1) * length, first + count - to_tensor});
    if (begin < end) {
      visit({.in_tensor = begin + to_tensor, .in_part = begin - part.first, .count = end - begin});
    }
  }
}

}  // namespace shale
