#include "shale/runtime/io/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kSize = "torch.Size";
constexpr uint32_t kNoneNode = 0, kTrueNode = 1, kFalseNode = 2;

constexpr std::array<std::string_view, 12> kKindNames = {
    "None",   "a bool",  "an integer", "a real number",       "a text",    "bytes",
    "a list", "a tuple", "a dict",     "a class or function", "an object", "a reference"};

std::string_view name_of(PickleKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

}  // namespace

// The stack machine that executes pickles, without recursion. Each operation creates at most one
// value. The size of the pickle and the rules therefore limit the memory.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, std::string_view bytes, const PickleRules& rules)
      : pickle_(pickle), bytes_(bytes), rules_(rules) {}

  void run();

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(cat(pickle_.source_, ": pickle: at byte ", at_, ": ", problem));
  }

  // ---- Input ----

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - next_) {
      fail(cat(count, " bytes expected, ", bytes_.size() - next_, " are left"));
    }
    const std::string_view taken = bytes_.substr(next_, static_cast<size_t>(count));
    next_ += static_cast<size_t>(count);
    return taken;
  }
  template <typename T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', next_);
    if (end == bytes_.npos) fail("a name without an end");
    const std::string_view found = take(end - next_);
    ++next_;
    return found;
  }

  // ---- Values ----

  uint32_t add(PickleNode node, bool has_items = false) {
    if (std::ssize(pickle_.nodes_) >= rules_.max_values) {
      fail(cat("more values than the limit of ", rules_.max_values));
    }
    if (has_items) {
      node.items = static_cast<uint32_t>(pickle_.items_.size());
      pickle_.items_.emplace_back();
    }
    pickle_.nodes_.push_back(node);
    return static_cast<uint32_t>(pickle_.nodes_.size() - 1);
  }
  void push(const PickleNode& node) { stack_.push_back(add(node)); }
  void push_text(std::string_view text, PickleKind kind = PickleKind::kString) {
    push({.kind = kind, .text = text});
  }
  void push_integer(int64_t value) { push({.kind = PickleKind::kInteger, .number = value}); }

  PickleNode& node(uint32_t index) { return pickle_.nodes_[index]; }
  std::vector<uint32_t>& items(uint32_t index) { return pickle_.items_[node(index).items]; }

  // Index in stack_ of the first value above the last mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t top() const {
    if (stack_.size() <= floor()) fail("no value on the stack");
    return stack_.back();
  }
  uint32_t pop() {
    const uint32_t value = top();
    stack_.pop_back();
    return value;
  }
  size_t pop_mark() {
    if (marks_.empty()) fail("no mark on the stack");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // ---- Operations ----

  void step(uint8_t op);
  bool step_scalar(uint8_t op);
  bool step_container(uint8_t op);
  void push_container(PickleKind kind, size_t first);
  void extend(PickleKind kind, size_t first);
  void push_global(std::string_view module, std::string_view name);
  void call(size_t arguments);
  void build();
  void remember(uint64_t id);
  void recall(uint64_t id);
  int64_t long_integer(uint64_t size);

  Pickle& pickle_;
  std::string_view bytes_;
  const PickleRules& rules_;
  size_t at_ = 0;    // offset of the current operation in bytes_
  size_t next_ = 0;  // offset of the next byte to read
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack at the marks
  std::vector<uint32_t> memo_;
};

void PickleReader::run() {
  constexpr uint8_t kStop = '.';
  if (static_cast<int64_t>(bytes_.size()) > rules_.max_bytes) {
    bytes_ = bytes_.substr(0, static_cast<size_t>(rules_.max_bytes));
  }
  for (const PickleNode& fixed : {PickleNode{}, PickleNode{.kind = PickleKind::kBool, .number = 1},
                                  PickleNode{.kind = PickleKind::kBool}}) {
    add(fixed);
  }
  while (true) {
    at_ = next_;
    if (next_ == bytes_.size()) {
      fail(next_ == static_cast<size_t>(rules_.max_bytes)
               ? cat("no end within the limit of ", rules_.max_bytes, " bytes")
               : std::string("no end"));
    }
    const auto op = number<uint8_t>();
    if (op == kStop) break;
    step(op);
    if (std::ssize(stack_) > rules_.max_values) fail("too many values on the stack");
  }
  pickle_.root_ = pop();
  if (!stack_.empty() || !marks_.empty()) fail("values are left on the stack at the end");
  pickle_.bytes_ = next_;
}

void PickleReader::step(uint8_t op) {
  if (step_scalar(op) || step_container(op)) return;
  switch (op) {
    case 0x80: {  // PROTO
      const auto protocol = number<uint8_t>();
      if (protocol < 2 || protocol > 5) fail(cat("protocol ", protocol, ", expected 2 to 5"));
      return;
    }
    case 0x95: {  // FRAME
      const auto size = number<uint64_t>();
      if (size > bytes_.size() - next_) fail("its frame is cut off");
      return;
    }
    case '0':  // POP
      if (stack_.size() == floor() && !marks_.empty()) {
        pop_mark();
      } else {
        pop();
      }
      return;
    case '1': stack_.resize(pop_mark()); return;  // POP_MARK
    case '2': stack_.push_back(top()); return;    // DUP
    case '(': marks_.push_back(stack_.size()); return;
    case 'q': remember(number<uint8_t>()); return;   // BINPUT
    case 'r': remember(number<uint32_t>()); return;  // LONG_BINPUT
    case 0x94: remember(memo_.size()); return;       // MEMOIZE
    case 'h': recall(number<uint8_t>()); return;     // BINGET
    case 'j': recall(number<uint32_t>()); return;    // LONG_BINGET
    case 'c': {                                      // GLOBAL
      const std::string_view module = line();
      push_global(module, line());
      return;
    }
    case 0x93: {  // STACK_GLOBAL
      const uint32_t name = pop(), module = pop();
      if (node(name).kind != PickleKind::kString || node(module).kind != PickleKind::kString) {
        fail("a class or function whose name is no text");
      }
      push_global(node(module).text, node(name).text);
      return;
    }
    case 'R':                    // REDUCE
    case 0x81: call(1); return;  // NEWOBJ
    case 0x92: call(2); return;  // NEWOBJ_EX
    case 'b': build(); return;
    case 'Q': {  // BINPERSID
      const uint32_t reference = pop();
      const uint32_t value = add({.kind = PickleKind::kPersistent}, true);
      items(value) = {reference};
      stack_.push_back(value);
      return;
    }
    default: fail(cat("operation ", int{op}, ", which pickles of tensors do not have"));
  }
}

bool PickleReader::step_scalar(uint8_t op) {
  switch (op) {
    case 'N': stack_.push_back(kNoneNode); return true;
    case 0x88: stack_.push_back(kTrueNode); return true;
    case 0x89: stack_.push_back(kFalseNode); return true;
    case 'J': push_integer(number<int32_t>()); return true;
    case 'K': push_integer(number<uint8_t>()); return true;
    case 'M': push_integer(number<uint16_t>()); return true;
    case 0x8a: push_integer(long_integer(number<uint8_t>())); return true;
    case 0x8b: push_integer(long_integer(number<uint32_t>())); return true;
    case 'G': {  // BINFLOAT, the only big-endian number
      const uint64_t bits = __builtin_bswap64(number<uint64_t>());
      push({.kind = PickleKind::kReal, .number = static_cast<int64_t>(bits)});
      return true;
    }
    case 'X': push_text(take(number<uint32_t>())); return true;
    case 0x8c: push_text(take(number<uint8_t>())); return true;
    case 0x8d: push_text(take(number<uint64_t>())); return true;
    // Python 2 has one type for texts and bytes.
    case 'T': push_text(take(number<uint32_t>())); return true;
    case 'U': push_text(take(number<uint8_t>())); return true;
    case 'B': push_text(take(number<uint32_t>()), PickleKind::kBytes); return true;
    case 'C': push_text(take(number<uint8_t>()), PickleKind::kBytes); return true;
    case 0x8e:
    case 0x96: push_text(take(number<uint64_t>()), PickleKind::kBytes); return true;
    default: return false;
  }
}

bool PickleReader::step_container(uint8_t op) {
  using enum PickleKind;
  const auto last = [this](size_t count) {
    if (stack_.size() - floor() < count) fail("too few values on the stack");
    return stack_.size() - count;
  };
  switch (op) {
    case ']': push_container(kList, stack_.size()); return true;
    case '}': push_container(kDict, stack_.size()); return true;
    case ')': push_container(kTuple, stack_.size()); return true;
    case 'l': push_container(kList, pop_mark()); return true;
    case 'd': push_container(kDict, pop_mark()); return true;
    case 't': push_container(kTuple, pop_mark()); return true;
    case 0x85: push_container(kTuple, last(1)); return true;
    case 0x86: push_container(kTuple, last(2)); return true;
    case 0x87: push_container(kTuple, last(3)); return true;
    case 'a': extend(kList, last(1)); return true;
    case 's': extend(kDict, last(2)); return true;
    case 'e': extend(kList, pop_mark()); return true;
    case 'u': extend(kDict, pop_mark()); return true;
    default: return false;
  }
}

// Replaces the values on the stack from index `first` on by a container of them.
void PickleReader::push_container(PickleKind kind, size_t first) {
  const uint32_t value = add({.kind = kind}, true);
  stack_.push_back(value);
  std::rotate(stack_.begin() + static_cast<int64_t>(first), stack_.end() - 1, stack_.end());
  items(value).assign(stack_.begin() + static_cast<int64_t>(first) + 1, stack_.end());
  stack_.resize(first + 1);
  if (kind == PickleKind::kDict && items(value).size() % 2 != 0) fail("a key without a value");
}

// Moves the values on the stack from index `first` on to the end of the container below them.
void PickleReader::extend(PickleKind kind, size_t first) {
  if (first <= floor()) fail("no value on the stack");
  const uint32_t target = stack_[first - 1];
  if (node(target).kind != kind) {
    fail(cat(name_of(node(target).kind), ", expected ", name_of(kind)));
  }
  if (kind == PickleKind::kDict && (stack_.size() - first) % 2 != 0) fail("a key without a value");
  std::vector<uint32_t>& to = items(target);
  to.insert(to.end(), stack_.begin() + static_cast<int64_t>(first), stack_.end());
  stack_.resize(first);
}

void PickleReader::push_global(std::string_view module, std::string_view name) {
  std::string joined = cat(module, ".", name);
  if (rules_.may_name == nullptr || !rules_.may_name(joined)) {
    throw DataError(cat(pickle_.source_, ": the pickle uses ", excerpt(joined),
                        ", expected only tensors, dicts, lists, texts and numbers, because Shale "
                        "executes nothing in a pickle",
                        rules_.advice.empty() ? "" : "; ", rules_.advice));
  }
  push_text(pickle_.names_.emplace_back(std::move(joined)), PickleKind::kGlobal);
}

void PickleReader::call(size_t arguments) {
  if (arguments == 2) {  // keyword arguments; no class of tensors has any
    const uint32_t keywords = pop();
    if (node(keywords).kind != PickleKind::kDict || !items(keywords).empty()) {
      fail("a call with keyword arguments");
    }
  }
  const uint32_t given = pop(), callee = pop();
  if (node(callee).kind != PickleKind::kGlobal || node(given).kind != PickleKind::kTuple) {
    fail(cat("a call of ", name_of(node(callee).kind), " with ", name_of(node(given).kind),
             ", expected a class or function and a tuple"));
  }
  if (node(callee).text == kOrderedDict) {
    if (!items(given).empty()) fail("an OrderedDict with arguments");
    return push_container(PickleKind::kDict, stack_.size());
  }
  const uint32_t value = add({.kind = PickleKind::kObject, .text = node(callee).text}, true);
  items(value) = {given, kNoneNode};
  stack_.push_back(value);
}

void PickleReader::build() {
  const uint32_t state = pop(), target = top();
  if (node(target).kind == PickleKind::kDict) return;  // attributes of an OrderedDict are ignored
  if (node(target).kind != PickleKind::kObject || node(target).number != 0) {
    fail(cat("a state for ", name_of(node(target).kind), ", expected an object without one"));
  }
  node(target).number = 1;
  items(target)[1] = state;
}

// Stores the top value in the memo. Picklers number memo entries without gaps.
void PickleReader::remember(uint64_t id) {
  if (id > memo_.size()) fail(cat("memo entry ", id, ", expected at most ", memo_.size()));
  if (id == memo_.size()) memo_.push_back(0);
  memo_[static_cast<size_t>(id)] = top();
}

void PickleReader::recall(uint64_t id) {
  if (id >= memo_.size()) fail(cat("memo entry ", id, ", expected one below ", memo_.size()));
  stack_.push_back(memo_[static_cast<size_t>(id)]);
}

int64_t PickleReader::long_integer(uint64_t size) {
  if (size > sizeof(int64_t)) fail(cat("an integer of ", size, " bytes, expected at most 8"));
  const std::string_view bytes = take(size);
  if (bytes.empty()) return 0;
  // sign extension of two's complement
  int64_t value = static_cast<int8_t>(bytes.back()) < 0 ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

Pickle::Pickle(std::string_view bytes, const PickleRules& rules, std::string source)
    : source_(std::move(source)) {
  PickleReader(*this, bytes, rules).run();
}

std::vector<PickleValue> Pickle::references() const {
  std::vector<PickleValue> all;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].kind == PickleKind::kPersistent) all.push_back({this, i});
  }
  return all;
}

// ---- Values ----

const PickleNode& PickleValue::node() const {
  return pickle_->nodes_[node_];
}

PickleKind PickleValue::kind() const {
  return node().kind;
}

void PickleValue::fail(std::string_view what, std::string_view expected) const {
  throw DataError(cat(pickle_->source_, ": pickle: ", what, " is ", name_of(kind()),
                      is(PickleKind::kGlobal) || is(PickleKind::kObject)
                          ? cat(" (", excerpt(node().text), ")")
                          : std::string(),
                      ", expected ", expected));
}

void PickleValue::require(PickleKind kind, std::string_view expected) const {
  if (!is(kind)) fail("a value", expected);
}

bool PickleValue::is_object_of(std::string_view callee) const {
  return is(PickleKind::kObject) && node().text == callee;
}

bool PickleValue::flag() const {
  require(PickleKind::kBool, "a bool");
  return node().number != 0;
}

int64_t PickleValue::integer() const {
  require(PickleKind::kInteger, "an integer");
  return node().number;
}

double PickleValue::real() const {
  if (is(PickleKind::kInteger)) return static_cast<double>(node().number);
  require(PickleKind::kReal, "a number");
  return std::bit_cast<double>(node().number);
}

std::string_view PickleValue::text() const {
  if (!is(PickleKind::kBytes)) require(PickleKind::kString, "a text");
  return node().text;
}

std::string_view PickleValue::name() const {
  if (!is(PickleKind::kObject)) require(PickleKind::kGlobal, "a class or function");
  return node().text;
}

std::vector<int64_t> PickleValue::integers() const {
  if (is_object_of(kSize) && size() == 1 && !at(0).is(PickleKind::kObject)) {
    return at(0).integers();
  }
  if (!is(PickleKind::kList)) require(PickleKind::kTuple, "a list of integers");
  std::vector<int64_t> all;
  for (size_t i = 0; i < size(); ++i) all.push_back(at(i).integer());
  return all;
}

namespace {

bool is_container(PickleKind kind) {
  return kind == PickleKind::kList || kind == PickleKind::kTuple || kind == PickleKind::kDict;
}

}  // namespace

size_t PickleValue::size() const {
  if (is(PickleKind::kObject)) return PickleValue{pickle_, pickle_->items_[node().items][0]}.size();
  if (!is_container(kind())) fail("a value", "a list, tuple or dict");
  const size_t count = pickle_->items_[node().items].size();
  return is(PickleKind::kDict) ? count / 2 : count;
}

PickleValue PickleValue::at(size_t i) const {
  if (i >= size()) fail(cat("a value of ", size(), " elements"), cat("at least ", i + 1));
  const std::vector<uint32_t>& items = pickle_->items_[node().items];
  if (is(PickleKind::kObject)) return PickleValue{pickle_, items[0]}.at(i);
  return {pickle_, items[is(PickleKind::kDict) ? 2 * i + 1 : i]};
}

PickleValue PickleValue::key(size_t i) const {
  require(PickleKind::kDict, "a dict");
  if (i >= size()) fail(cat("a dict of ", size(), " keys"), cat("at least ", i + 1));
  return {pickle_, pickle_->items_[node().items][2 * i]};
}

std::optional<PickleValue> PickleValue::find(std::string_view key) const {
  require(PickleKind::kDict, "a dict");
  for (size_t i = size(); i-- > 0;) {
    const PickleValue candidate = this->key(i);
    if (candidate.is(PickleKind::kString) && candidate.text() == key) return at(i);
  }
  return std::nullopt;
}

PickleValue PickleValue::get(std::string_view key) const {
  if (const auto found = find(key)) return *found;
  fail(cat("a value without '", key, "'"), "a dict with that key");
}

PickleValue PickleValue::state() const {
  require(PickleKind::kObject, "an object");
  return {pickle_, pickle_->items_[node().items][1]};
}

PickleValue PickleValue::reference() const {
  require(PickleKind::kPersistent, "a reference");
  return {pickle_, pickle_->items_[node().items][0]};
}

}  // namespace shale
