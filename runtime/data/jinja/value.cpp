#include "shale/runtime/data/jinja/value.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/overloaded.h"

namespace shale::jinja {
namespace {

using std::shared_ptr;

Value from_json(const Json& json) {
  if (json.is_null()) return None();
  if (json.is_boolean()) return json.boolean();
  if (json.is_string()) return json.text();
  if (json.is_array()) {
    List items;
    for (const Json& item : json) items.emplace_back(Value(item));
    return items;
  }
  if (json.is_object()) {
    Dict members;
    for (const auto& [key, value] : json.items()) members.emplace_back(key, Value(value));
    return members;
  }
  if (!json.is_integer()) return json.real();
  if (const auto integer = json.int64()) return *integer;
  throw DataError(cat("the integer ", json.dump(), " is too large for a template's value"));
}

}  // namespace

Value::Value(List items, SequenceForm form) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  data_ = Sequence{std::make_shared<List>(std::move(items)), form, deepest + 1};
}

Value::Value(Dict members) {
  int deepest = 0;
  for (const auto& [key, value] : members) deepest = std::max(deepest, value.depth());
  data_ = Mapping{std::make_shared<const Dict>(std::move(members)), deepest + 1};
}

Value::Value(const Json& json) : Value(from_json(json)) {}

int64_t Value::integer() const {
  const bool* boolean = as<bool>();
  return boolean != nullptr ? *boolean : std::get<int64_t>(data_);
}

double Value::real() const {
  const double* real = as<double>();
  return real != nullptr ? *real : static_cast<double>(integer());
}

const std::string* Value::text() const {
  const Text* text = as<Text>();
  return text == nullptr ? nullptr : text->bytes.get();
}

const Dict* Value::members() const {
  const Mapping* mapping = as<Mapping>();
  return mapping == nullptr ? nullptr : mapping->members.get();
}

Namespace* Value::space() const {
  return is<Namespace*>() ? std::get<Namespace*>(data_) : nullptr;
}

bool Value::is_true() const {
  return std::visit(
      Overloaded{[](const Undefined&) { return false; }, [](None) { return false; },
                 [](bool value) { return value; }, [](int64_t value) { return value != 0; },
                 [](double value) { return value != 0; },
                 [](const Text& text) { return !text.bytes->empty(); },
                 [](const Sequence& sequence) {
                   return sequence.form == SequenceForm::kStream || !sequence.items->empty();
                 },
                 [](const Mapping& mapping) { return !mapping.members->empty(); },
                 [](const auto&) { return true; }},
      data_);
}

int Value::depth() const {
  if (const auto* sequence = as<Sequence>()) return sequence->depth;
  if (const auto* mapping = as<Mapping>()) return mapping->depth;
  if (const auto* loop = as<shared_ptr<const Loop>>()) return (*loop)->sequence.depth + 1;
  const auto* function = as<shared_ptr<const Function>>();
  return function != nullptr && (*function)->self ? (*function)->self->depth() + 1 : 0;
}

std::string_view Value::type() const {
  return std::visit(
      Overloaded{[](const Undefined&) { return "undefined"; }, [](None) { return "None"; },
                 [](bool) { return "bool"; }, [](int64_t) { return "int"; },
                 [](double) { return "float"; }, [](const Text&) { return "str"; },
                 [](const Sequence& sequence) {
                   static constexpr const char* kNames[] = {"list", "tuple", "view of a dict",
                                                            "range", "stream of a filter"};
                   return kNames[static_cast<size_t>(sequence.form)];
                 },
                 [](const Mapping&) { return "dict"; }, [](Namespace*) { return "namespace"; },
                 [](const shared_ptr<const Loop>&) { return "loop"; },
                 [](const shared_ptr<const Function>&) { return "function"; }},
      data_);
}

const Value* find(const Dict& members, std::string_view key) {
  for (const auto& [name, value] : members) {
    const std::string* text = name.text();
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

}  // namespace shale::jinja
