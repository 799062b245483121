#include "client/load_test/workload.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "client/load_test/random.h"

namespace folio::client {

// A prompt that grows by made-up tokens, as ids or as text.
class Workload::Prompt {
 public:
  Prompt(const Workload& workload, RequestSpec& spec) : workload_(workload), spec_(spec) {}

  void add(std::int64_t tokens, std::mt19937_64& random) {
    const PromptWords& words = workload_.words_;
    if (workload_.options_.prompts == PromptKind::kIds) {
      std::uniform_int_distribution<std::int32_t> id(0, workload_.vocab_size_ - 1);
      for (std::int64_t i = 0; i < tokens; ++i) spec_.prompt.push_back(id(random));
      return;
    }
    std::uniform_int_distribution<std::size_t> word(0, words.words.size() - 1);
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::size_t drawn = word(random);
      if (workload_.options_.prompts == PromptKind::kWords) {
        spec_.prompt.push_back(words.ids[drawn]);
      } else {
        spec_.text += words.words[drawn];
      }
    }
  }
  // The same tokens for the same id, of which shorter stretches are the beginning.
  void add_shared(std::uint64_t id, std::int64_t tokens) {
    std::mt19937_64 random = random_for(workload_.options_.seed, Purpose::kPrefix, id);
    add(tokens, random);
  }
  void set_text(const std::string& text) { spec_.text = text; }

 private:
  const Workload& workload_;
  RequestSpec& spec_;
};

Workload::Workload(const WorkloadOptions& options, std::vector<TraceEntry> trace, std::int32_t vocab_size,
                   PromptWords words)
    : options_(options), trace_(std::move(trace)), vocab_size_(vocab_size), words_(std::move(words)) {
  if (options_.prompts == PromptKind::kIds && vocab_size_ <= 0) {
    throw std::runtime_error("--prompts ids: this server does not say how large its vocabulary is; words or text work");
  }
  if (options_.prompts != PromptKind::kIds && words_.words.empty()) throw std::runtime_error("--prompts: no words");
  if (options_.prompts == PromptKind::kWords && words_.ids.empty()) {
    throw std::runtime_error("--prompts words: this server does not tokenise; text works");
  }
}

PlannedRequest Workload::request(std::int64_t number) const {
  std::mt19937_64 random = random_for(options_.seed, Purpose::kRequest, static_cast<std::uint64_t>(number));
  PlannedRequest planned;
  RequestSpec& spec = planned.spec;
  spec.ignore_eos = options_.ignore_eos;
  spec.stop = options_.stop;
  spec.n = options_.n;
  spec.temperature = options_.temperature;
  spec.top_p = options_.top_p;
  spec.top_k = options_.top_k;
  spec.tenant = options_.tenant;
  spec.deadline = options_.deadline;
  spec.seed = random();
  Prompt prompt(*this, spec);
  if (trace_.empty()) {
    spec.max_tokens = options_.output_tokens.draw(random);
    fill_from_options(prompt, random);
  } else {
    const TraceEntry& entry = trace_[static_cast<std::size_t>(number) % trace_.size()];
    spec.max_tokens = entry.output_tokens;
    fill_from_trace(entry, prompt, random);
  }
  if (options_.cancel_fraction > 0 && std::uniform_real_distribution<>()(random) < options_.cancel_fraction) {
    planned.cancel_after = std::uniform_int_distribution<std::int64_t>(0, spec.max_tokens - 1)(random);
  }
  return planned;
}

void Workload::fill_from_options(Prompt& prompt, std::mt19937_64& random) const {
  const std::int64_t own = options_.prompt_tokens.draw(random);
  if (options_.shared_prefix > 0) {
    const int prefix = std::uniform_int_distribution<int>(0, options_.prefixes - 1)(random);
    prompt.add_shared(static_cast<std::uint64_t>(prefix), options_.shared_prefix);
  }
  prompt.add(own, random);
}

void Workload::fill_from_trace(const TraceEntry& entry, Prompt& prompt, std::mt19937_64& random) const {
  if (!entry.prompt.empty()) return prompt.set_text(entry.prompt);
  std::int64_t left = entry.prompt_tokens;
  for (const SharedPart& part : entry.shared) {
    prompt.add_shared(hash_name(part.id), part.tokens);
    left -= part.tokens;
  }
  prompt.add(left, random);
}

}  // namespace folio::client
