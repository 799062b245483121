#include "tests/engine/model/reference_cases.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace folio {
namespace {

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path + " (tests run in the source folder)");
  return nlohmann::json::parse(in);
}

}  // namespace

std::vector<GenerationCase> read_generation(const std::string& model) {
  std::vector<GenerationCase> cases;
  const nlohmann::json json = read_json("tests/reference/generation_" + model + ".json");
  for (const auto& c : json.at("cases")) {
    GenerationCase g;
    g.name = c.at("name");
    g.prompt = c.at("prompt_ids").get<std::vector<TokenId>>();
    g.greedy = c.at("greedy_ids").get<std::vector<TokenId>>();
    g.margins = c.at("margins").get<std::vector<double>>();
    for (const auto& top : c.at("top5")) g.logprobs.push_back(top.at(0).at(1));
    cases.push_back(std::move(g));
  }
  std::stable_sort(cases.begin(), cases.end(),
                   [](const auto& a, const auto& b) { return a.prompt.size() < b.prompt.size(); });
  return cases;
}

PerplexityText read_perplexity(const std::string& model) {
  const nlohmann::json json = read_json("tests/reference/perplexity.json").at("models").at(model);
  PerplexityText text;
  text.tokens = json.at("token_ids").get<std::vector<TokenId>>();
  if (!json.at("bos_prepended_per_window").is_null()) text.bos = json.at("bos_prepended_per_window");
  text.perplexity_a = json.at("float32").at("A").at("perplexity");
  return text;
}

std::vector<TinyModel> read_tiny_models() {
  const std::string folder = "tests/reference/tiny_models/";
  std::vector<TinyModel> models;
  const nlohmann::json json = read_json(folder + "index.json");
  for (const auto& m : json.at("models")) {
    TinyModel tiny;
    tiny.name = m.at("name");
    tiny.path = folder + m.at("gguf").get<std::string>();
    tiny.sequences = m.at("sequences").get<std::vector<std::vector<TokenId>>>();
    tiny.row_start = m.at("row_start").get<std::vector<int>>();
    tiny.vocab_size = m.at("vocab_size");
    tiny.logits.resize(m.at("rows").get<std::size_t>() * static_cast<std::size_t>(tiny.vocab_size));
    std::ifstream in(folder + m.at("logits").get<std::string>(), std::ios::binary);
    in.read(reinterpret_cast<char*>(tiny.logits.data()),
            static_cast<std::streamsize>(tiny.logits.size() * sizeof(float)));
    if (!in) throw std::runtime_error("cannot read the logits of " + tiny.name);
    models.push_back(std::move(tiny));
  }
  return models;
}

}  // namespace folio
