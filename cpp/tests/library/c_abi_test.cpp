/// The C interface: what it says of a model, and what it refuses.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "pdnn/pdnn.h"

namespace {

constexpr const char* kSmall =
    R"({"dtype": "float64", "layers": [{"type": "Linear", "in_features": 2, "out_features": 3}]})";

}  // namespace

BOOST_AUTO_TEST_SUITE(library_c_abi)

BOOST_AUTO_TEST_CASE(null_is_refused_wherever_something_must_be) {
  pdnn_model* model = nullptr;
  BOOST_TEST(pdnn_model_create(kSmall, 1, &model) == PDNN_OK);
  pdnn_element element = PDNN_UINT8;
  std::size_t count = 0;
  BOOST_TEST(pdnn_model_element(model, &element) == PDNN_OK);
  BOOST_TEST(element == PDNN_FLOAT64);
  BOOST_TEST(pdnn_model_parameters(model, &count) == PDNN_OK);
  BOOST_TEST(count == 2);
  BOOST_TEST(pdnn_model_element(nullptr, &element) == PDNN_INVALID);
  BOOST_TEST(pdnn_model_parameters(nullptr, &count) == PDNN_INVALID);
  BOOST_TEST(pdnn_last_error() == std::string("model is NULL"));
  BOOST_TEST(pdnn_model_element(model, nullptr) == PDNN_INVALID);
  BOOST_TEST(pdnn_last_error() == std::string("element is NULL"));
  BOOST_TEST(pdnn_model_parameters(model, nullptr) == PDNN_INVALID);
  pdnn_model_free(model);
}

BOOST_AUTO_TEST_CASE(a_handle_that_could_not_be_made_is_null) {
  pdnn_model* model = nullptr;
  BOOST_TEST(pdnn_model_create(kSmall, 1, &model) == PDNN_OK);
  pdnn_model* other = model;  // as memory that holds anything
  BOOST_TEST(pdnn_model_create("{", 1, &other) == PDNN_INVALID);
  BOOST_TEST(!other);
  other = model;
  BOOST_TEST(pdnn_model_load("/nowhere", &other) == PDNN_FAILED);
  BOOST_TEST(!other);
  auto* trainer = reinterpret_cast<pdnn_trainer*>(model);
  BOOST_TEST(pdnn_trainer_create(model, R"({"type": "MSELoss"})", R"({"type": "Adam"})", "none", 1, &trainer) ==
             PDNN_INVALID);
  BOOST_TEST(!trainer);
  pdnn_model_free(model);
}

BOOST_AUTO_TEST_CASE(a_model_without_arrays_is_loaded_with_its_element) {
  const std::string path = (std::filesystem::temp_directory_path() / "pdnn_c_abi_test.safetensors").string();
  pdnn_model *model = nullptr, *again = nullptr;
  BOOST_TEST(pdnn_model_create(R"({"dtype": "float64", "layers": [{"type": "ReLU"}]})", 1, &model) == PDNN_OK);
  BOOST_TEST(pdnn_model_save(model, path.c_str()) == PDNN_OK);
  BOOST_TEST(pdnn_model_load(path.c_str(), &again) == PDNN_OK);
  std::filesystem::remove(path);
  pdnn_element element = PDNN_UINT8;
  BOOST_TEST(pdnn_model_element(again, &element) == PDNN_OK);
  BOOST_TEST(element == PDNN_FLOAT64);
  pdnn_model_free(model);
  pdnn_model_free(again);
}

BOOST_AUTO_TEST_CASE(a_file_with_no_architecture_that_can_be_read_is_named) {
  const std::string path = (std::filesystem::temp_directory_path() / "pdnn_c_abi_test_damaged.safetensors").string();
  for (const char* architecture : {"damaged", "[]", R"({\"dtype\": \"float64\"})"}) {
    const std::string header = R"({"__metadata__": {"pdnn.architecture": ")" + std::string(architecture) + R"("}})";
    const std::uint64_t length = header.size();
    std::string text(sizeof length, ' ');
    std::memcpy(text.data(), &length, sizeof length);
    std::ofstream(path, std::ios::binary) << text << header;
    pdnn_model* model = nullptr;
    BOOST_TEST(pdnn_model_load(path.c_str(), &model) == PDNN_FAILED);
    BOOST_TEST(std::string(pdnn_last_error()).starts_with(path + ": "), pdnn_last_error());
  }
  std::filesystem::remove(path);
}

BOOST_AUTO_TEST_SUITE_END()
