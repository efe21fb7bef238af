#include "shale/runtime/io/pickle.h"

#include <cstring>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

using namespace std::string_literals;
using test::contains;
using test::message_of;

namespace {

constexpr PickleRules kRules{.may_name =
                                 [](std::string_view name) {
                                   return name == "torch.Size" || name == "collections.OrderedDict";
                                 },
                             .advice = "save tensors alone",
                             .max_values = 100};

// A pickle of protocol 2 with these operations before its end.
std::string pickled(const std::string& operations) {
  return "\x80\x02" + operations + ".";
}

std::string complaint(const std::string& pickle) {
  const std::string message = message_of<DataError>([&] { Pickle(pickle, kRules, "x.pt"); });
  CHECK(message.starts_with("x.pt: "));
  return message;
}

// Returns a LONG_BINPUT or LONG_BINGET operation.
std::string memo(char operation, uint32_t id) {
  std::string text(5, operation);
  std::memcpy(text.data() + 1, &id, sizeof id);
  return text;
}

}  // namespace

TEST_CASE("a pickle's dicts, lists, texts and numbers are read", "[io]") {
  const std::string text = pickled(
      "}("
      "X\3\0\0\0int"
      "J\xfe\xff\xff\xff"
      "X\4\0\0\0long"
      "\x8a\5\0\0\0\0\1"
      "X\4\0\0\0real"
      "G\x3f\xf8\0\0\0\0\0\0"
      "X\4\0\0\0list"
      "](K\1K\2e"
      "X\4\0\0\0flag"
      "\x88"
      "X\4\0\0\0none"
      "N"
      "X\4\0\0\0size"
      "ctorch\nSize\nK\3K\4\x86\x85R"
      "u"s);
  const std::string with_more = text + "more";
  const Pickle pickle(with_more, kRules, "x.pt");
  CHECK(pickle.bytes() == text.size());
  const PickleValue root = pickle.root();
  REQUIRE(root.is(PickleKind::kDict));
  CHECK(root.size() == 7);
  CHECK(root.get("int").integer() == -2);
  CHECK(root.get("long").integer() == int64_t{1} << 32);
  CHECK(root.get("real").real() == 1.5);
  CHECK(root.get("list").integers() == std::vector<int64_t>{1, 2});
  CHECK(root.get("flag").flag());
  CHECK(root.get("none").is(PickleKind::kNone));
  CHECK(root.get("size").integers() == std::vector<int64_t>{3, 4});
  CHECK_FALSE(root.find("other"));
  CHECK(contains(message_of<DataError>([&] { root.get("other"); }), "a value without 'other'"));
  CHECK(contains(message_of<DataError>([&] { root.get("int").text(); }),
                 "a value is an integer, expected a text"));
}

TEST_CASE("of equal keys the last counts, as in Python", "[io]") {
  const std::string text = pickled("}(X\1\0\0\0aK\1X\1\0\0\0aK\2u"s);
  CHECK(Pickle(text, kRules, "x.pt").root().get("a").integer() == 2);
}

TEST_CASE("a class or function is refused by its name", "[io]") {
  CHECK(
      contains(complaint(pickled("cos\nsystem\nX\2\0\0\0ls\x85R"s)), "the pickle uses os.system"));
  CHECK(contains(complaint(pickled("X\2\0\0\0osX\6\0\0\0system\x93"s)), "os.system"));
  CHECK(contains(complaint(pickled("cbuiltins\neval\n")), "; save tensors alone"));
  // What a name is made of does not hide it, nor reaches the terminal.
  CHECK(contains(complaint(pickled("ctorch.Size\n\x1b[2J\n")), "torch.Size.\\x1b[2J"));
  // Operations of protocols 0 and 1 that name classes do not exist here.
  for (const char* operations :
       {"(ios\nsystem\n", "(cos\nsystem\no", "\x82\x01", "\x97", "Pid\n"}) {
    complaint(pickled(operations));
  }
}

TEST_CASE("objects may contain themselves, and nothing follows their references", "[io]") {
  const std::string list = pickled("]q\0h\0a"s);
  const Pickle pickle(list, kRules, "x.pt");
  CHECK(pickle.root().size() == 1);
  CHECK(pickle.root().at(0).at(0).at(0).size() == 1);
  // Ten levels of lists that have the next one ten times: 10^10 elements for a recursive reader.
  std::string bomb = "]q\0"s;
  for (char level = 1; level < 10; ++level) {
    bomb += "](";
    for (int i = 0; i < 10; ++i) bomb += {'h', static_cast<char>(level - 1)};
    bomb += {'e', 'q', level};
  }
  bomb = pickled("(" + bomb + "l");
  CHECK(Pickle(bomb, kRules, "x.pt").root().size() == 10);
  // A depth that would end a stack.
  PickleRules rules = kRules;
  rules.max_values = 1'000'000;
  const std::string deep = pickled(std::string(500'000, ']') + std::string(499'999, 'a'));
  CHECK(Pickle(deep, rules, "x.pt").root().size() == 1);
}

TEST_CASE("memory is limited by the size of a pickle and by the rules", "[io]") {
  CHECK(contains(complaint(pickled("]" + memo('r', 0xffffffff))), "memo entry 4294967295"));
  CHECK(contains(complaint(pickled(memo('j', 7))), "memo entry 7, expected one below 0"));
  CHECK(contains(complaint(pickled(std::string(101, ']'))), "more values than the limit of 100"));
  CHECK(contains(complaint(pickled("N" + std::string(200, '2'))), "too many values on the stack"));
  CHECK(
      contains(complaint(pickled("X\xff\xff\xff\x7f"s)), "2147483647 bytes expected, 1 are left"));
  CHECK(contains(complaint(pickled("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s)), "bytes expected"));
  PickleRules rules = kRules;
  rules.max_bytes = 5;
  CHECK(contains(message_of<DataError>([&] { Pickle(pickled("NNNNNN0000"), rules, "x.pt"); }),
                 "no end within the limit of 5 bytes"));
}

TEST_CASE("a malformed pickle is an error", "[io]") {
  const std::pair<std::string, const char*> cases[] = {
      {"\x80\x02N", "no end"},
      {"\x80\x00N."s, "protocol 0, expected 2 to 5"},
      {"\x80\x06N.", "protocol 6"},
      {pickled(""), "no value on the stack"},
      {pickled("NN"), "values are left on the stack"},
      {pickled("N("), "no value on the stack"},
      {pickled("(Nt0"), "no value on the stack"},
      {pickled("t"), "no mark on the stack"},
      {pickled("Na"), "no value on the stack"},
      {pickled("NNa"), "None, expected a list"},
      {pickled("](Ns"), "too few values"},
      {pickled("}(Nu"), "a key without a value"},
      {pickled("(Nd"), "a key without a value"},
      {pickled("N)R"), "a call of None"},
      {pickled("ctorch\nSize\n]R"), "with a list"},
      {pickled("ctorch\nSize"), "a name without an end"},
      {pickled("NNb"), "a state for None"},
      {pickled("NN\x93"), "whose name is no text"},
      {pickled("\x8a\x09"
               "123456789"),
       "an integer of 9 bytes"},
      {pickled("\x95\xff\0\0\0\0\0\0\0N"s), "its frame is cut off"},
      {pickled("I1\n"), "operation 73"},
  };
  for (const auto& [text, problem] : cases) {
    CAPTURE(problem);
    CHECK(contains(complaint(text), problem));
  }
}

}  // namespace shale
