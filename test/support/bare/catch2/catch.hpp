#pragma once

// What Shale's kernel tests use of Catch2, under its names, for machines that have a compiler and
// no packages (SHALE_KERNELS_ONLY). Test cases, assertions that print both sides, messages,
// generators. No sections, no matchers, no reporters. main() is in main.cpp.

#include <cmath>
#include <functional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace Catch {

// ---- Running test cases ----

struct TestCase {
  std::string name;
  std::string tags;  // "[gemm][#gemm_plan]": as in its source, and the file's name
  std::string file;
  int line = 0;
  std::function<void()> body;
};

std::vector<TestCase>& test_cases();

bool add_case(std::string name, const char* tags, const char* file, int line,
              std::function<void()> body);

template <typename List>
struct Types;
template <typename... T>
struct Types<std::tuple<T...>> {
  // body.operator()<T>() becomes a case of its own for each T.
  template <typename Body>
  static bool add(const std::string& name, const char* tags, const char* file, int line,
                  Body body) {
    int number = 0;
    (add_case(name + " - type " + std::to_string(++number), tags, file, line,
              [body] { body.template operator()<T>(); }),
     ...);
    return true;
  }
};

// Ends a case after REQUIRE or FAIL; what it says has been reported.
struct FailedRequirement {};
// Ends a case that cannot be run here.
struct Skipped {
  std::string why;
};

struct Where {
  const char* file;
  int line;
};
// Counts an assertion, and prints it if it failed.
void assertion(bool passed, Where where, const char* macro, const char* expression,
               const std::string& expansion);
void print_message(Where where, const std::string& text);

// Runs the cases whose name or file contains one of the filters, or all. Returns what main() does.
int run(const std::vector<std::string>& filters, bool only_list);

// ---- Values as text ----

template <typename T>
concept Streamable = requires(std::ostream& out, const T& value) {
  out << value;
};
template <typename T>
concept HasToString = requires(const T& value) {
  { to_string(value) } -> std::convertible_to<std::string>;
};

template <typename T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out.precision(9);
  if constexpr (std::is_enum_v<T>) {
    out << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (Streamable<T>) {
    out << value;
  } else if constexpr (HasToString<T>) {
    out << to_string(value);
  } else {
    out << "{?}";
  }
  return out.str();
}

// `Decompose() <= a == b` keeps both sides of the comparison, since <= binds tighter than ==.
struct Compared {
  bool passed;
  std::string expansion;
};
template <typename L>
struct LeftSide {
  const L& left;

  Compared alone() const { return {static_cast<bool>(left), text_of(left)}; }
  template <typename R, typename Op>
  Compared with(const R& right, const char* sign, Op op) const {
    const bool passed = static_cast<bool>(op(left, right));
    return {passed, passed ? "" : text_of(left) + " " + sign + " " + text_of(right)};
  }
  template <typename R>
  Compared operator==(const R& right) const {
    return with(right, "==", [](const auto& a, const auto& b) { return a == b; });
  }
  template <typename R>
  Compared operator!=(const R& right) const {
    return with(right, "!=", [](const auto& a, const auto& b) { return a != b; });
  }
  template <typename R>
  Compared operator<(const R& right) const {
    return with(right, "<", [](const auto& a, const auto& b) { return a < b; });
  }
  template <typename R>
  Compared operator<=(const R& right) const {
    return with(right, "<=", [](const auto& a, const auto& b) { return a <= b; });
  }
  template <typename R>
  Compared operator>(const R& right) const {
    return with(right, ">", [](const auto& a, const auto& b) { return a > b; });
  }
  template <typename R>
  Compared operator>=(const R& right) const {
    return with(right, ">=", [](const auto& a, const auto& b) { return a >= b; });
  }
};
struct Decompose {
  template <typename L>
  LeftSide<L> operator<=(const L& left) const {
    return {left};
  }
};
template <typename L>
Compared result_of(const LeftSide<L>& side) {
  return side.alone();
}
inline Compared result_of(const Compared& compared) {
  return compared;
}

// ---- Messages that live as long as their scope, and are printed with what fails in it ----

class ScopedMessage {
 public:
  explicit ScopedMessage(std::string text);
  ~ScopedMessage();
  ScopedMessage(const ScopedMessage&) = delete;
  ScopedMessage& operator=(const ScopedMessage&) = delete;
};

template <typename... T>
std::string captured(const char* names, const T&... values) {
  std::string text = std::string(names) + " := ";
  int count = 0;
  ((text += (count++ > 0 ? ", " : "") + text_of(values)), ...);
  return text;
}

// ---- Generators: the case runs once for each combination of what they give ----

namespace Generators {
template <typename T>
struct Values {
  std::vector<T> list;
};
template <typename T>
struct as {};

template <typename Range>
auto from_range(const Range& range) {
  using T = std::decay_t<decltype(*std::begin(range))>;
  return Values<T>{std::vector<T>(std::begin(range), std::end(range))};
}
// Numbers from begin up to, but without, end.
template <typename T>
Values<T> range(T begin, T end) {
  Values<T> numbers;
  for (; begin < end; ++begin) numbers.list.push_back(begin);
  return numbers;
}
template <typename T>
Values<T> values(std::initializer_list<T> list) {
  return {list};
}
template <typename... T>
Values<std::tuple<T...>> table(std::initializer_list<std::tuple<T...>> list) {
  return {list};
}

template <typename T>
Values<T> catch_values(Values<T> values) {
  return values;
}
template <typename T, typename... U>
Values<T> catch_values(as<T>, U&&... values) {
  return {{static_cast<T>(values)...}};
}
template <typename... T>
auto catch_values(const T&... values) {
  using Common = std::common_type_t<T...>;
  return Values<Common>{{static_cast<Common>(values)...}};
}
}  // namespace Generators

// Which of `count` values the generator that is met next gives in this run.
size_t choose(size_t count);

template <typename Make>
auto generate(Make make) {
  const auto values = make();
  return values.list[choose(values.list.size())];
}

// ---- Nearly equal ----

class Approx {
 public:
  explicit Approx(double value) : value_(value) {}
  Approx& epsilon(double relative) {
    epsilon_ = relative;
    return *this;
  }
  Approx& margin(double absolute) {
    margin_ = absolute;
    return *this;
  }
  friend bool operator==(double x, const Approx& approx) {
    const double distance = std::abs(x - approx.value_);
    return x == approx.value_ || distance <= approx.margin_ ||
           distance <= approx.epsilon_ * std::abs(approx.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, const Approx& approx) {
    return out << "Approx(" << approx.value_ << ")";
  }

 private:
  double value_;
  double epsilon_ = 1.2e-5;  // 100 ulp of f32, as Catch2 has it
  double margin_ = 0;
};

}  // namespace Catch

using Catch::Approx;

#define CATCH_JOIN_(a, b) a##b
#define CATCH_JOIN(a, b) CATCH_JOIN_(a, b)
#define CATCH_NAME(stem) CATCH_JOIN(stem, __LINE__)
#define CATCH_WHERE (::Catch::Where{__FILE__, __LINE__})
#define CATCH_TEXT(...) \
  (static_cast<std::ostringstream&&>(std::ostringstream() << __VA_ARGS__).str())

#define TEST_CASE(name, tags)                                                      \
  static void CATCH_NAME(catch_case_)();                                           \
  [[maybe_unused]] static const bool CATCH_NAME(catch_added_) =                    \
      ::Catch::add_case(name, tags, __FILE__, __LINE__, &CATCH_NAME(catch_case_)); \
  static void CATCH_NAME(catch_case_)()

#define TEMPLATE_LIST_TEST_CASE(name, tags, ...)                                                  \
  template <typename TestType>                                                                    \
  static void CATCH_NAME(catch_case_)();                                                          \
  [[maybe_unused]] static const bool CATCH_NAME(catch_added_) = ::Catch::Types<__VA_ARGS__>::add( \
      name, tags, __FILE__, __LINE__, []<typename T>() { CATCH_NAME(catch_case_)<T>(); });        \
  template <typename TestType>                                                                    \
  static void CATCH_NAME(catch_case_)()
#define TEMPLATE_TEST_CASE(name, tags, ...) \
  TEMPLATE_LIST_TEST_CASE(name, tags, std::tuple<__VA_ARGS__>)

#define CATCH_ASSERT(macro, wanted, end, ...)                                                     \
  do {                                                                                            \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wparentheses\"")            \
        const ::Catch::Compared catch_result =                                                    \
            ::Catch::result_of(::Catch::Decompose() <= __VA_ARGS__);                              \
    _Pragma("GCC diagnostic pop")::Catch::assertion(catch_result.passed == wanted, CATCH_WHERE,   \
                                                    macro, #__VA_ARGS__, catch_result.expansion); \
    if (end && catch_result.passed != wanted) throw ::Catch::FailedRequirement();                 \
  } while (false)
#define CHECK(...) CATCH_ASSERT("CHECK", true, false, __VA_ARGS__)
#define CHECK_FALSE(...) CATCH_ASSERT("CHECK_FALSE", false, false, __VA_ARGS__)
#define REQUIRE(...) CATCH_ASSERT("REQUIRE", true, true, __VA_ARGS__)
#define REQUIRE_FALSE(...) CATCH_ASSERT("REQUIRE_FALSE", false, true, __VA_ARGS__)

#define CATCH_ASSERT_THROWS(macro, expression, handlers)                                     \
  do {                                                                                       \
    bool catch_passed = false;                                                               \
    std::string catch_found = "nothing was thrown";                                          \
    try {                                                                                    \
      static_cast<void>(expression);                                                         \
    }                                                                                        \
    handlers ::Catch::assertion(catch_passed, CATCH_WHERE, macro, #expression, catch_found); \
  } while (false)
#define CHECK_THROWS_AS(expression, Type)                                                \
  CATCH_ASSERT_THROWS(                                                                   \
      "CHECK_THROWS_AS", expression,                                                     \
      catch (const Type&) { catch_passed = true; } catch (const std::exception& error) { \
        catch_found = std::string("another exception: ") + error.what();                 \
      })
#define CHECK_NOTHROW(expression)                                                      \
  do {                                                                                 \
    std::string catch_found;                                                           \
    try {                                                                              \
      static_cast<void>(expression);                                                   \
    } catch (const std::exception& error) {                                            \
      catch_found = std::string("threw: ") + error.what();                             \
    }                                                                                  \
    ::Catch::assertion(catch_found.empty(), CATCH_WHERE, "CHECK_NOTHROW", #expression, \
                       catch_found);                                                   \
  } while (false)

#define SUCCEED() ::Catch::assertion(true, CATCH_WHERE, "SUCCEED", "", "")
#define FAIL(...)                                                                \
  do {                                                                           \
    ::Catch::assertion(false, CATCH_WHERE, "FAIL", "", CATCH_TEXT(__VA_ARGS__)); \
    throw ::Catch::FailedRequirement();                                          \
  } while (false)
#define SKIP(...)           \
  throw ::Catch::Skipped {  \
    CATCH_TEXT(__VA_ARGS__) \
  }
#define WARN(...) ::Catch::print_message(CATCH_WHERE, CATCH_TEXT(__VA_ARGS__))
#define INFO(...) const ::Catch::ScopedMessage CATCH_NAME(catch_info_)(CATCH_TEXT(__VA_ARGS__))
#define CAPTURE(...) \
  const ::Catch::ScopedMessage CATCH_NAME(catch_info_)(::Catch::captured(#__VA_ARGS__, __VA_ARGS__))

#define GENERATE(...)                    \
  ::Catch::generate([&] {                \
    using namespace ::Catch::Generators; \
    return catch_values(__VA_ARGS__);    \
  })
