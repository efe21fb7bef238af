#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/cuda/cudnn/abi.h"

// Descriptors of the stand-in for cuDNN, and the rules that they are held to.
namespace shale::test {

using namespace kernels::cudnn;
using A = Attribute;
using T = AttributeType;
using D = DescriptorType;

// A rule that was broken, as the status that the library returns.
struct Refused : std::runtime_error {
  Refused(Status code, const std::string& what) : std::runtime_error(what), status(code) {}
  Status status;
};
inline void want(bool holds, const std::string& rule, Status status = kBadParam) {
  if (!holds) throw Refused(status, rule);
}

struct Rule {
  T type;
  int64_t least = 1, most = 1;  // elements
  bool required = true;
};
using Rules = std::map<A, Rule>;

// Attributes of a type of descriptor. Throws Refused for a type that is not known.
const Rules& rules_of(D type);
size_t bytes_of(T type);

// What a tensor was when it was finalized.
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

// Tensors and operations are copied to what is made of them: descriptors may be destroyed before.
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

// All that there are.
std::map<Descriptor, std::shared_ptr<Object>>& objects();
std::shared_ptr<Object> object_of(Descriptor descriptor);
// One that another's attribute names, kept by it.
const Object& part(const Object& of, A name, size_t index = 0);
Tensor tensor_of(const Object& of, A name);

bool is_convolution(D type);
// A convolution operation's attribute: alpha, beta, the convolution, W, X, Y or what stands for
// them.
A attribute(const Object& conv, int number);
std::vector<Operation> operations_of(const Object& graph);

// Throws Refused where a descriptor lacks something, or says what cannot be.
void check_finalized(const Object& o);

}  // namespace shale::test
