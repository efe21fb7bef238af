# cmake -DAWK=<awk> -DSCRATCH=<folder> -P unity_can_fail.cmake: shows that the check of names in unity
# builds finds clashes, and accepts what compiles.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <lines of base/a.cpp> <lines of base/b.cpp>
# <more>): runs the check on two sources with these lines in an unnamed namespace. <more> is added
# to the list of folders.
function(check what expected a b)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/cmake/ShaleFolders.cmake
    "set(SHALE_UNITED base)\nset(SHALE_base_FOLDERS base)\n${ARGN}\n")
  foreach(name IN ITEMS a b)
    file(WRITE ${SCRATCH}/base/${name}.cpp
      "namespace shale {\nnamespace {\n\n${${name}}\n\n}  // namespace\n}  // namespace shale\n")
  endforeach()
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -DAWK=${AWK}
         -P ${CMAKE_CURRENT_LIST_DIR}/unity.cmake)
endfunction()

check("different names" OK "constexpr int kA = 1;" "constexpr int kB = 1;")
check("one constant in two sources" "base/b.cpp:4: kA is in base/a.cpp:4 too"
  "constexpr int kA = 1;" "constexpr int kA = 1;")
check("the second of two constants" "b.cpp:5: kB is in base/a.cpp:4 too"
  "constexpr std::chrono::seconds kA{1}, kB{2};"
  "// B\nconst std::map<int, int> kB = {\n    {1, 2}};")
check("constants and locals" OK
  "constexpr int kA = 1;\nint f() {\n  constexpr int kB = 2;\n  return kB;\n}"
  "constexpr int kB = 1;\nint g() {\n  constexpr int kA = 2;\n  return kA;\n}")
check("one function in two sources" "b.cpp:4: f is in base/a.cpp:4 too"
  "int f(const std::map<int, int>& a, int b = 1) {\n  return b;\n}"
  "int f(const std::map<int, int>& c,\n      int d) {\n  return d;\n}")
check("a template" "b.cpp:4: f is in base/a.cpp:4 too"
  "template <typename T>\nT f(T a) {\n  return a;\n}"
  "template <typename T>\nT f(T b) {\n  return b;\n}")
check("overloads" OK "int f(int a) {\n  return a;\n}" "int f(double a) {\n  return 1;\n}")
check("a function and a constant" "b.cpp:4: f is in base/a.cpp:4 too"
  "int f(int a) {\n  return a;\n}" "constexpr int f = 1;")
check("one type in two sources" "b.cpp:4: Part is in base/a.cpp:4 too"
  "struct Part {\n  int a;\n};" "enum class Part : uint8_t { kA };")
check("an alias of the same type" OK "using A = int;\nnamespace fs = std::filesystem;"
  "using A = int;\nnamespace fs = std::filesystem;")
check("an alias of two types" "b.cpp:4: A is in base/a.cpp:4 too" "using A = int;" "using A = double;")
check("what a string contains" OK "constexpr auto kA = R\"(\nint kB = 1;\n)\";" "constexpr int kB = 1;")
check("other namespaces" OK "constexpr int kA = 1;"
  "}  // namespace\nnamespace other {\nconstexpr int kA = 1;\n}  // namespace other\nnamespace {")
check("a static" "b.cpp:6: f is in base/a.cpp:4 too" "int f() {\n  return 1;\n}"
  "}  // namespace\nnamespace {}\nstatic int f() {\n  return 1;\n}\nnamespace {")
check("a source apart" OK "constexpr int kA = 1;" "constexpr int kA = 1;"
  "set(SHALE_ALONE base/b.cpp)")
check("a source apart that is not there" "SHALE_ALONE: found no base/c.cpp" "int a;" "int b;"
  "set(SHALE_ALONE base/c.cpp)")
check("empty sources" "nothing was checked" "" "")
