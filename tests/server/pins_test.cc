// The prefixes of the configuration file: which tokens they are, and that each is held or refused by name.
#include "server/pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/server/front_fixture.h"

namespace folio {
namespace {

using ::testing::HasSubstr;

class PinsTest : public test::FrontTest {
 protected:
  static PinnedPrefix text(const std::string& value) {
    return {.text = value, .system = "", .salt = "", .where = kWhere};
  }
  static PinnedPrefix system(const std::string& value) {
    return {.text = "", .system = value, .salt = "", .where = kWhere};
  }
  std::string failure(const PinnedPrefix& pin) {
    try {
      pin_prefixes(engine_, generation_, 16, {pin});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  }
  static std::string bytes(const std::vector<TokenId>& ids) {
    std::string out;
    for (const TokenId id : ids) out.push_back(static_cast<char>(id));
    return out;
  }

  static constexpr const char* kWhere = "a.toml:3: pin";
};

TEST_F(PinsTest, ATextsControlSpellingsAreParsed) {
  const auto ids = prefix_ids(generation_, text("x<|im_end|>y"));
  ASSERT_TRUE(ids.ok());
  const std::vector<TokenId> expected{'x', test::kEnd, 'y'};
  EXPECT_EQ(*ids, expected);
}

TEST_F(PinsTest, ASystemMessageIsTheChatUpToTheUsersWords) {
  const ChatTemplate chat("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", tokenizer_);
  ASSERT_TRUE(chat.available()) << chat.error();
  const Generation generation(engine_, tokenizer_, chat, clock_, generation_options());
  const auto ids = prefix_ids(generation, system("Be brief."));
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(bytes(*ids), "[system]Be brief.[user]");
}

TEST_F(PinsTest, APrefixIsHeldAndFound) {
  PinnedPrefix salted = text(std::string(33, 's'));
  salted.salt = "salt";
  pin_prefixes(engine_, generation_, 16, {text(std::string(40, 'x')), salted});
  const LoadSnapshot load = engine_.load();
  EXPECT_EQ(load.num_pins, 2);
  EXPECT_EQ(load.blocks_pinned, 4);
  EXPECT_EQ(load.num_running, 0);
}

// The same prefix, for everybody and for one tenant: two pins.
TEST_F(PinsTest, ATenantsPinIsItsOwn) {
  PinnedPrefix own = text(std::string(40, 'x'));
  own.tenant = "gold";
  pin_prefixes(engine_, generation_, 16, {text(std::string(40, 'x')), own});
  EXPECT_EQ(engine_.load().num_pins, 2);
  EXPECT_EQ(engine_.load().blocks_pinned, 4);
}

TEST_F(PinsTest, WhatCannotBePinnedIsNamed) {
  EXPECT_EQ(failure(text(std::string(15, 'x'))), "a.toml:3: pin: its 15 tokens do not fill a block of 16");
  EXPECT_THAT(failure(text(std::string(300, 'x'))),
              HasSubstr("a.toml:3: pin: its 18 blocks are over what --pin-quota leaves: 0 of "));
  EXPECT_THAT(failure(text(std::string(512, 'x'))), HasSubstr("a.toml:3: pin: prompt: 512 tokens"));
  EXPECT_THAT(failure(system("x")), HasSubstr("a.toml:3: pin: chat is not available"));
  EXPECT_EQ(engine_.load().num_pins, 0);
}

}  // namespace
}  // namespace folio
