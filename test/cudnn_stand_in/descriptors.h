#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/cuda/cudnn/abi.h"

// Descriptors of the cuDNN stand-in, and the rules for them.
namespace shale::test {

using namespace kernels::cudnn;
using A = Attribute;
using T = AttributeType;
using D = DescriptorType;

// Thrown for a violated rule, with the status that the library returns.
struct Refused : std::runtime_error {
  Refused(Status code, const std::string& what) : std::runtime_error(what), status(code) {}
  Status status;
};
inline void want(bool holds, const std::string& rule, Status status = kBadParam) {
  if (!holds) throw Refused(status, rule);
}

struct Rule {
  T type;
  int64_t least = 1, most = 1;  // minimum and maximum number of elements
  bool required = true;
};
using Rules = std::map<A, Rule>;

// Returns the attributes of a descriptor type. Throws Refused for an unknown type.
const Rules& rules_of(D type);
size_t bytes_of(T type);

// Contents of a tensor descriptor when it was finalized.
struct Tensor {
  int64_t uid = 0, alignment = 1;
  DataType type = DataType::kFloat;
  std::vector<int64_t> dims, strides;
  bool is_virtual = false;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct Object;
struct Operation {
  D type{};
  const Object* object = nullptr;
  std::vector<Tensor> reads;
  std::vector<Tensor> writes;
};

// A descriptor. It copies the tensors and operations that it uses, so that these may be destroyed
// earlier.
struct Object {
  D type{};
  bool finalized = false;
  std::map<A, std::vector<char>> values{};
  std::map<A, int64_t> sizes{};
  std::vector<std::shared_ptr<Object>> kept{};
  int engine = 0;

  template <typename V>
  std::vector<V> all(A name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<V> result(found->second.size() / sizeof(V));
    std::copy_n(reinterpret_cast<const V*>(found->second.data()), result.size(), result.begin());
    return result;
  }
  template <typename V>
  V one(A name) const {
    return all<V>(name).at(0);
  }
};

// Returns all existing descriptors.
std::map<Descriptor, std::shared_ptr<Object>>& objects();
std::shared_ptr<Object> object_of(Descriptor descriptor);
// Returns the descriptor that is stored in an attribute of another one.
const Object& part(const Object& of, A name, size_t index = 0);
Tensor tensor_of(const Object& of, A name);

bool is_convolution(D type);
// Returns an attribute of a convolution operation by its number. The order is: alpha, beta, the
// convolution, W, X, Y (or their counterparts in a gradient).
A attribute(const Object& conv, int number);
std::vector<Operation> operations_of(const Object& graph);

// Throws Refused if a descriptor is incomplete or inconsistent.
void check_finalized(const Object& o);

}  // namespace shale::test
