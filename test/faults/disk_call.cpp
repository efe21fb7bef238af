#include "shale/test/faults/disk_call.h"

#include <cstring>
#include <stdexcept>

namespace shale::test {
namespace {

void put(std::string& out, const std::string& text) {
  const uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += text;
}

class Reader {
 public:
  explicit Reader(const std::string& log) : log_(log) {}
  bool at_end() const { return place_ == log_.size(); }
  template <typename T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = static_cast<size_t>(number<uint64_t>());
    return {take(size), size};
  }

 private:
  const char* take(size_t size) {
    if (size > log_.size() - place_) throw std::runtime_error("the log of disk calls is cut short");
    place_ += size;
    return log_.data() + place_ - size;
  }

  const std::string& log_;
  size_t place_ = 0;
};

}  // namespace

std::string encode(const DiskCall& call) {
  std::string out(1, static_cast<char>(call.op));
  put(out, call.name);
  put(out, call.path);
  put(out, call.to);
  out.append(reinterpret_cast<const char*>(&call.offset), sizeof call.offset);
  put(out, call.data);
  return out;
}

std::vector<DiskCall> decode_disk_log(const std::string& log) {
  std::vector<DiskCall> calls;
  for (Reader reader(log); !reader.at_end();) {
    DiskCall& call = calls.emplace_back();
    call.op = static_cast<DiskOp>(reader.number<char>());
    call.name = reader.text();
    call.path = reader.text();
    call.to = reader.text();
    call.offset = reader.number<int64_t>();
    call.data = reader.text();
  }
  return calls;
}

}  // namespace shale::test
