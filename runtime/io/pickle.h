#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Python pickles of protocols 2 to 5, read as data. A pickle is a program, but nothing in it is
// imported or called here: a call becomes an object that names the class or function and its
// arguments.

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInteger,
  kReal,
  kString,
  kBytes,
  kList,
  kTuple,
  kDict,
  kGlobal,      // a class or function by name, such as "torch.float32"
  kObject,      // a call of a class or function, with the state that the object was given
  kPersistent,  // a reference to data outside the pickle, such as a storage of torch.save
};

class Pickle;

// A value in a Pickle; the Pickle must outlive it. Accessors throw DataError for a value of another
// kind. A value may contain itself, so recursion over values needs a depth limit.
class PickleValue {
 public:
  PickleKind kind() const;
  bool is(PickleKind kind) const { return this->kind() == kind; }
  // true if the value is a call of this class or function
  bool is_object_of(std::string_view callee) const;

  bool flag() const;
  int64_t integer() const;
  double real() const;                    // also accepts integers
  std::string_view text() const;          // accepts kString and kBytes
  // accepts kGlobal, and kObject: the name of the class or function that was called
  std::string_view name() const;
  std::vector<int64_t> integers() const;  // accepts a list or tuple of integers, or a torch.Size

  // Number of elements of a list, tuple or dict, or of arguments of an object.
  size_t size() const;
  // element i of a list or tuple, argument i of an object, or value i of a dict
  PickleValue at(size_t i) const;
  PickleValue key(size_t i) const;  // key i of a dict
  // Value of a text key in a dict; the last one if the key is repeated. nullopt: no such key.
  std::optional<PickleValue> find(std::string_view key) const;
  // like find(), but throws DataError if there is no such key
  PickleValue get(std::string_view key) const;

  // State that the pickle gives to an object; for classes without __setstate__, a dict of
  // attributes. A value of kind None if there is no state.
  PickleValue state() const;
  // accepts kPersistent; returns the value that identifies the data
  PickleValue reference() const;

  // Throws DataError: "<source>: <what> is a <kind>, expected <expected>".
  [[noreturn]] void fail(std::string_view what, std::string_view expected) const;

 private:
  friend class Pickle;
  friend class PickleReader;
  PickleValue(const Pickle* pickle, uint32_t node) : pickle_(pickle), node_(node) {}
  const struct PickleNode& node() const;
  void require(PickleKind kind, std::string_view expected) const;

  const Pickle* pickle_;
  uint32_t node_;
};

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  uint32_t items = 0;  // index of a container's elements in Pickle::items_
  // value of an integer, bits of a real number, or 1 for an object with a state
  int64_t number = 0;
  std::string_view text;
};

struct PickleRules {
  // Returns true if the pickle may name this class or function, such as "torch.Size".
  bool (*may_name)(std::string_view name) = nullptr;
  // Advice to append to the error message about a forbidden class, such as how to save without it.
  std::string_view advice;
  int64_t max_bytes = int64_t{256} << 20;
  // maximum number of values, each up to 100 bytes of memory
  int64_t max_values = int64_t{8} << 20;
};

class Pickle {
 public:
  // Reads the first pickle in `bytes`, which must outlive this object. Throws DataError, which
  // begins with `source`, for a malformed or too large pickle, for an operation of protocols 0 and
  // 1, and for a class or function that the rules do not allow; the message names it.
  Pickle(std::string_view bytes, const PickleRules& rules, std::string source);
  Pickle(const Pickle&) = delete;  // not copyable, because values point to the object
  Pickle& operator=(const Pickle&) = delete;

  PickleValue root() const { return {this, root_}; }
  std::vector<PickleValue> references() const;  // returns all values of kind kPersistent
  size_t bytes() const { return bytes_; }       // size of this pickle; other data may follow it
  const std::string& source() const { return source_; }

 private:
  friend class PickleReader;
  friend class PickleValue;

  std::string source_;
  std::vector<PickleNode> nodes_;
  std::vector<std::vector<uint32_t>> items_;  // a dict's items are key, value, key, value, ...
  std::deque<std::string> names_;             // "module.name" of classes and functions
  uint32_t root_ = 0;
  size_t bytes_ = 0;
};

}  // namespace shale
