#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace shale {

inline constexpr int kMaxDims = 6;  // maximum rank of a tensor

// Sizes (or strides) of a tensor's dimensions, stored inline. Rank 0 is a scalar.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);  // throws ShapeError above kMaxDims

  int ndim() const { return ndim_; }
  int64_t operator[](int i) const { return sizes_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return sizes_[static_cast<size_t>(i)]; }
  int64_t at(int i) const;  // negative i counts from the end; throws ShapeError
  void push_back(int64_t size);
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + ndim_; }

  // Product of the sizes; 1 for a scalar. Throws ShapeError on overflow.
  int64_t numel() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<int64_t, kMaxDims> sizes_{};
  int ndim_ = 0;
};

// Strides, in elements, of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);

std::string to_string(const Shape& shape);  // "[2,3]"

}  // namespace shale
