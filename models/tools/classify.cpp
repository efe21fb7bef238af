// shale classify: the classes of pictures, by a trained image classifier.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/models/image/classifier.h"
#include "shale/models/tools/model_options.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/runtime/data/images/image.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

constexpr size_t kShown = 5;  // number of classes printed per picture

void print(const std::string& path, const ImageClassifier& classifier,
           const std::vector<float>& scores, bool json) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return scores[i]; });
  order.resize(std::min(order.size(), kShown));
  Json classes = Json::array();
  std::string line = path + ":";
  for (const size_t i : order) {
    const double share = std::exp(double{scores[i]});
    classes.push_back({{"class", classifier.classes()[i]}, {"probability", share}});
    line += cat(i == order.front() ? " " : ", ", printable(classifier.classes()[i]), " ",
                format_number(std::round(1000 * share) / 10), "%");
  }
  if (json) line = Json{{"image", path}, {"classes", classes}}.dump();
  std::printf("%s\n", line.c_str());
}

}  // namespace

int run_classify(int argc, const char* const* argv) {
  DeviceOptions device;
  bool json = false;
  ConfigSpec spec("shale classify MODEL IMAGE...", "names the classes of PNG and JPEG pictures");
  spec.section("Options");
  describe(spec, device);
  spec.add("json", json, "print one JSON object per picture");
  spec.example("shale classify vit cat.jpg dog.png");
  std::vector<std::string> paths;
  if (parse_or_print(spec, argc, argv, paths)) return 0;
  if (paths.size() < 2) {
    throw ConfigError(
        "shale classify: expected a model and pictures, for example: shale classify "
        "vit cat.jpg");
  }
  comm::World world(0, nullptr);
  auto context = make_context(device, world);
  const DType dtype = dtype_of_flag(device.dtype, context->device());
  ImageClassifier classifier(paths.front(), std::move(context), dtype);
  const Augmentation& how = classifier.augmentation();
  for (size_t i = 1; i < paths.size(); ++i) {
    const MappedFile file(paths[i]);
    Image image;
    decode_image(std::as_bytes(std::span(file.text())), paths[i], image);
    std::vector<float> pixels(static_cast<size_t>(3 * how.pixels * how.pixels));
    write_pixels(image, evaluation_crop(how, image.rows, image.cols), how, pixels);
    print(paths[i], classifier, classifier.log_probabilities(pixels, 1), json);
  }
  return 0;
}

}  // namespace shale::models
