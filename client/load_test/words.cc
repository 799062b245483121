#include <random>
#include <sstream>
#include <stdexcept>
#include <string>

#include "client/load_test/random.h"
#include "client/load_test/workload.h"

namespace folio::client {
namespace {

// Words that are likely to be in every vocabulary that has English in it.
constexpr const char* kCandidates =
    "the of and to in is that for it was on are as with be this have from or one had by word but not what all were we "
    "when your can said there use an each which she do how their if will up other about out many then them these so "
    "some her would make like him into time has look two more write go see number no way could people my than first "
    "water been call who oil its now find long down day did get come made may part over new sound take only little "
    "work know place year live me back give most very after thing our just name good sentence man think say great "
    "where help through much before line right too mean old any same tell boy follow came want show also around form "
    "three small set put end does another well large must big even such because turn here why ask went men read need "
    "land different home us move try kind hand picture again change off play spell air away animal house point page "
    "letter mother answer found study still learn should world high every near add food between own below country "
    "plant last school father keep tree never start city earth eye light thought head under story saw left few while";

constexpr std::size_t kFewestWords = 16;
constexpr int kCheckedWords = 200;

// A row of random words has as many tokens as it has words, and the words' own ones.
void check_rows(Transport& transport, const PromptWords& found) {
  std::mt19937_64 random = random_for(0, Purpose::kSelfCheck);
  std::uniform_int_distribution<std::size_t> word(0, found.words.size() - 1);
  std::string row;
  std::vector<std::int32_t> expected;
  for (int i = 0; i < kCheckedWords; ++i) {
    const std::size_t drawn = word(random);
    row += found.words[drawn];
    expected.push_back(found.ids[drawn]);
  }
  if (transport.tokenize(row) != expected) {
    throw std::runtime_error("--prompts: words of one token each do not give as many tokens in a row with this model");
  }
}

}  // namespace

PromptWords find_words(Transport& transport) {
  PromptWords found;
  std::istringstream candidates(kCandidates);
  std::string refusal;
  for (std::string word; candidates >> word;) {
    word.insert(0, " ");
    std::vector<std::int32_t> ids;
    if (refusal.empty()) {
      try {
        ids = transport.tokenize(word);
      } catch (const std::runtime_error& failure) {
        if (!found.ids.empty()) throw;
        refusal = failure.what();
      }
    }
    if (refusal.empty() && ids.size() != 1) continue;
    found.words.push_back(word);
    if (refusal.empty()) found.ids.push_back(ids[0]);
  }
  if (!refusal.empty()) {
    found.note = "the server does not tokenise (" + refusal + "): prompts have as many words as tokens were asked for";
    return found;
  }
  if (found.words.size() < kFewestWords) {
    throw std::runtime_error("--prompts: only " + std::to_string(found.words.size()) +
                             " common English words are one token for this model; ids work");
  }
  check_rows(transport, found);
  return found;
}

}  // namespace folio::client
