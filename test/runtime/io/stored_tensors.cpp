#include "shale/runtime/io/stored_tensors.h"

#include <cmath>
#include <cstring>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/runtime/io/convert_internal.h"
#include "shale/runtime/io/safetensors_writer.h"
#include "shale/runtime/io/zip_writer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/stored_values.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using namespace std::string_literals;
using test::contains;
using test::fixture_path;
using test::message_of;
using test::read_all;
using test::TempDir;

namespace {

using Floats = std::vector<float>;

// A pickle of {"w": tensor}. The tensor has `shape` and `strides`, and begins at `offset` of a
// storage of `elements`.
struct Pickled {
  std::string storage = "FloatStorage";
  int64_t elements = 6, offset = 0;
  std::vector<int64_t> shape = {2, 3}, strides = {3, 1};

  std::string text() const {
    const auto integer = [](int64_t value) {
      std::string bytes = "\x8a\x08"s + std::string(8, '\0');
      std::memcpy(bytes.data() + 2, &value, sizeof value);
      return bytes;
    };
    const auto tuple = [&](const std::vector<int64_t>& values) {
      std::string all = "(";
      for (const int64_t value : values) all += integer(value);
      return all + "t";
    };
    return "\x80\x02}X\1\0\0\0w"s + "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"s +
           "ctorch\n" + storage +
           "\nX\1\0\0\0"
           "0X\3\0\0\0"
           "cpu"s +
           integer(elements) + "tQ" + integer(offset) + tuple(shape) + tuple(strides) +
           "\x89"
           "ccollections\nOrderedDict\n)RtRs.";
  }
};

std::string archive(const std::string& pickle, size_t data_bytes = 24,
                    const std::string& order = "little") {
  ZipLayout zip;
  std::string text = zip.add("x/data.pkl", pickle);
  text += zip.add("x/byteorder", order);
  std::string data(data_bytes, '\0');
  for (size_t i = 0; i < data_bytes / 4; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(data.data() + 4 * i, &value, sizeof value);
  }
  text += zip.add("x/data/0", data);
  return text + zip.directory();
}

std::string complaint(const std::string& file) {
  const TempDir dir;
  const std::string path = dir.write("x.pt", file);
  const std::string message = message_of<DataError>([&] { StoredTensors{path}; });
  CHECK(message.starts_with(path));
  return message;
}

}  // namespace

TEST_CASE("a file of torch.save has its tensors, whatever their layout", "[io]") {
  const StoredTensors files(fixture_path("checkpoints/types.pt"));
  Floats counting(24);
  for (size_t i = 0; i < 24; ++i) counting[i] = static_cast<float>(i);
  CHECK(read_all(files, "f32") == counting);
  CHECK(read_all(files, "rows") == Floats(counting.begin() + 6, counting.begin() + 18));
  CHECK(read_all(files, "columns") == Floats{1, 3, 7, 9, 13, 15, 19, 21});
  CHECK(read_all(files, "expanded") == Floats{0, 1, 2, 0, 1, 2});
  CHECK(read_all(files, "scalar") == Floats{7});
  CHECK(read_all(files, "empty").empty());
  CHECK(read_all(files, "parameter") == Floats{1, -2});
  CHECK(read_all(files, "float16") == Floats{0, 1, 2});
  CHECK(read_all(files, "bfloat16") == Floats{0, 1, 2});
  Floats transposed;
  for (int c = 0; c < 6; ++c) {
    for (int r = 0; r < 4; ++r) transposed.push_back(static_cast<float>(6 * r + c));
  }
  CHECK(read_all(files, "transposed") == transposed);
  // Views of one tensor share its data.
  CHECK(files.find("f32")->parts[0].elements.data ==
        files.find("transposed")->parts[0].elements.data);
  const std::pair<const char*, const char*> types[] = {{"float64", "F64[3]"},
                                                       {"int64", "I64[3]"},
                                                       {"int32", "I32[3]"},
                                                       {"int16", "I16[3]"},
                                                       {"int8", "I8[3]"},
                                                       {"uint8", "U8[3]"},
                                                       {"bool", "BOOL[3]"},
                                                       {"complex64", "C64[3]"},
                                                       {"uint16", "U16[3]"},
                                                       {"uint32", "U32[3]"},
                                                       {"uint64", "U64[3]"},
                                                       {"float8_e4m3fn", "F8_E4M3[3]"},
                                                       {"float8_e5m2", "F8_E5M2[3]"},
                                                       {"float8_e8m0fnu", "F8_E8M0[3]"},
                                                       {"float8_e4m3fnuz", "F8_E4M3FNUZ[3]"},
                                                       {"float8_e5m2fnuz", "F8_E5M2FNUZ[3]"}};
  for (const auto& [name, expected] : types) {
    CAPTURE(name);
    REQUIRE(files.find(name) != nullptr);
    CHECK(files.find(name)->description() == expected);
  }
}

TEST_CASE("any box of a tensor is read, into any strides", "[io]") {
  const StoredTensors files(fixture_path("checkpoints/types.pt"));
  for (const char* name : {"f32", "transposed"}) {
    const StoredTensor& tensor = *files.find(name);
    const Floats all = read_all(tensor);
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const int64_t height = rows - r, width = (cols - c + 1) / 2;
        Floats box(static_cast<size_t>(height * width), -7.f);
        read_box(tensor, {r, c}, {height, width}, {box.data(), DType::kF32, {1, height}});
        for (int64_t i = 0; i < height * width; ++i) {
          const int64_t from = (r + i % height) * cols + c + i / height;
          REQUIRE(box[static_cast<size_t>(i)] == all[static_cast<size_t>(from)]);
        }
      }
    }
  }
}

TEST_CASE("a large matrix is transposed and converted", "[io]") {
  // Odd sizes, and enough elements for several threads.
  constexpr int64_t kRows = 1001, kCols = 531, kFirst = 3;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
  std::vector<bf16> out((kCols - kFirst) * kRows);
  io_internal::convert_transposed(
      {std::as_bytes(std::span(values)).data(), DType::kF32}, {out.data(), DType::kBF16},
      {.source_cols = kCols, .first = kFirst, .rows = kCols - kFirst, .cols = kRows});
  int64_t wrong = 0;
  for (int64_t r = 0; r < kCols - kFirst; ++r) {
    for (int64_t c = 0; c < kRows; ++c) {
      wrong += to_f32(out[static_cast<size_t>(r * kRows + c)]) !=
               values[static_cast<size_t>(c * kCols + kFirst + r)];
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("files of PyTorch 1.13 and of the format before 1.6 are read", "[io]") {
  const StoredTensors now(fixture_path("checkpoints/state_dict.pt"));
  CHECK(now.tensors().size() == 4);
  CHECK(read_all(now, "0.bias")[1] == static_cast<float>(std::sin(0.37) * 0.5));
  for (const char* name : {"checkpoints/legacy.pt", "checkpoints/old.pt"}) {
    const StoredTensors then(fixture_path(name));
    REQUIRE(then.tensors().size() == now.tensors().size());
    for (const auto& [tensor, unused] : now.tensors()) {
      CHECK(read_all(then, tensor) == read_all(now, tensor));
    }
  }
}

TEST_CASE("a pickled module and TorchScript are refused", "[io]") {
  const auto refused = [](const char* name) {
    return message_of<DataError>([&] { StoredTensors{fixture_path(name)}; });
  };
  CHECK(contains(refused("checkpoints/module.pt"), "uses torch.nn.modules.container.Sequential"));
  CHECK(contains(refused("checkpoints/module.pt"), "torch.save(model.state_dict(), FILE)"));
  CHECK(contains(refused("checkpoints/script.pt"), "is compressed, as in TorchScript"));
}

TEST_CASE("a folder's pytorch_model.bin is read, and files of an index", "[io]") {
  const TempDir dir;
  const auto path = [&](const char* name) { return fixture_path(cat("checkpoints/", name)); };
  std::filesystem::copy_file(path("state_dict.pt"), dir.file("pytorch_model.bin"));
  CHECK(StoredTensors(dir.path()).tensors().size() == 4);
  std::filesystem::copy_file(path("types.pt"), dir.file("second.bin"));
  const std::string index = R"({"weight_map": {"a": "pytorch_model.bin", "b": "second.bin"}})";
  static_cast<void>(dir.write("pytorch_model.bin.index.json", index));
  CHECK(StoredTensors(dir.path()).find("f32") != nullptr);
  CHECK(StoredTensors(dir.path()).find("0.weight") != nullptr);
  // If a folder has safetensors files too, only these are read.
  SafetensorsFolderWriter writer(dir.path(), {{"only", DType::kU8, {0}}});
  writer.commit();
  CHECK(StoredTensors(dir.path()).tensors().size() == 1);
  CHECK_THROWS_AS(StoredTensors(dir.file("missing")), MissingInputError);
  const TempDir empty;
  CHECK(contains(message_of<MissingInputError>([&] { StoredTensors(empty.path()); }),
                 "no weights found"));
}

TEST_CASE("storages and tensors that do not fit each other are refused", "[io]") {
  const TempDir dir;
  const StoredTensors good(dir.write("good.pt", archive(Pickled{}.text())));
  CHECK(read_all(good, "w") == Floats{0, 1, 2, 3, 4, 5});

  CHECK(
      contains(complaint(archive(Pickled{}.text(), 20)), "storage '0' has 20 bytes, expected 24"));
  CHECK(contains(complaint(archive(Pickled{.storage = "HalfStorage"}.text())),
                 "storage '0' has 24 bytes, expected 12"));
  CHECK(contains(complaint(archive(Pickled{.elements = -1}.text())), "a storage's size"));
  CHECK(contains(complaint(archive(Pickled{.elements = int64_t{1} << 62}.text())),
                 "a storage's size"));
  CHECK(contains(complaint(archive(Pickled{.storage = "QInt8Storage"}.text())),
                 "uses torch.QInt8Storage"));
  CHECK(contains(complaint(archive(Pickled{.storage = "float32"}.text())), "a name such as FloatStorage"));
  CHECK(contains(complaint(archive(Pickled{}.text(), 24, "big")),
                 "byte order is 'big', expected 'little'"));
  const Pickled outside[] = {
      {.offset = 1},
      {.offset = -1},
      {.strides = {4, 1}},
      {.strides = {-3, 1}},
      {.strides = {3}},
      {.shape = {-2, 3}},
      {.shape = {int64_t{1} << 62, 3}, .strides = {0, 0}},
      {.shape = {2, 3}, .strides = {int64_t{1} << 62, int64_t{1} << 62}},
      {.shape = {4, 3}},
      {.offset = 7, .shape = {0}, .strides = {1}},
      {.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1}, .strides = {0, 0, 0, 0, 0, 0, 0, 0, 0}}};
  for (const Pickled& pickled : outside) {
    CAPTURE(pickled.offset, pickled.shape, pickled.strides);
    CHECK(contains(complaint(archive(pickled.text())), "exceeds its storage"));
  }
}

TEST_CASE("every cut of a file of torch.save is an error", "[io]") {
  const TempDir dir;
  for (const char* name : {"state_dict.pt", "legacy.pt"}) {
    const std::string whole = test::read_file(fixture_path(cat("checkpoints/", name)));
    for (size_t size = 4; size < whole.size(); size += 7) {
      const std::string path = dir.write("cut.pt", whole.substr(0, size));
      REQUIRE_THROWS_AS(StoredTensors(path), DataError);
    }
  }
}

}  // namespace shale
