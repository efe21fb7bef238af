#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shale {

// Python pickles of protocols 2 to 5, read as data: a pickle is a program, but its calls become
// objects that name the class or function and its arguments, and nothing is imported or called.

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

// A value in a Pickle, which must outlive it. Accessors throw DataError for a value of another
// kind. Values may contain themselves, so do not descend without a limit.
class PickleValue {
 public:
  PickleKind kind() const;
  bool is(PickleKind kind) const { return this->kind() == kind; }
  bool is_object_of(std::string_view callee) const;  // false for other kinds

  bool flag() const;
  int64_t integer() const;
  double real() const;                    // also accepts integers
  std::string_view text() const;          // accepts kString and kBytes
  std::string_view name() const;          // accepts kGlobal, and kObject: what the object calls
  std::vector<int64_t> integers() const;  // a list or tuple of integers, or a torch.Size

  // Number of elements of lists, tuples and dicts, and of arguments of objects.
  size_t size() const;
  PickleValue at(size_t i) const;   // element i, argument i, or value i of a dict
  PickleValue key(size_t i) const;  // key i of a dict
  // Value of a text key in a dict; of repeated keys the last. nullopt: no such key.
  std::optional<PickleValue> find(std::string_view key) const;
  PickleValue get(std::string_view key) const;  // DataError if there is none

  // State that the pickle sets in an object: for classes without __setstate__ a dict of attributes.
  // None if there is no state.
  PickleValue state() const;
  PickleValue reference() const;  // accepts kPersistent: returns what identifies the data

  // DataError: "<source>: <what> is a <kind>, expected <expected>".
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
  uint32_t items = 0;  // index of a container's items
  int64_t number = 0;  // an integer, the bits of a real, or, for an object, 1 if it has a state
  std::string_view text;
};

struct PickleRules {
  // Returns true for classes and functions that may be named: "torch.Size".
  bool (*may_name)(std::string_view name) = nullptr;
  // Advice for the message about a class that is not allowed, such as how to save without it.
  std::string_view advice;
  int64_t max_bytes = int64_t{256} << 20;
  int64_t max_values = int64_t{8} << 20;  // take up to 100 bytes of memory each
};

class Pickle {
 public:
  // Reads the first pickle in `bytes`, which must outlive it. Throws DataError, which begins with
  // `source`, for a malformed or too large pickle, for an operation of protocols 0 and 1, and, with
  // its name, for a class or function that the rules do not allow.
  Pickle(std::string_view bytes, const PickleRules& rules, std::string source);
  Pickle(const Pickle&) = delete;  // values point to it
  Pickle& operator=(const Pickle&) = delete;

  PickleValue root() const { return {this, root_}; }
  std::vector<PickleValue> references() const;  // all values of kPersistent
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
