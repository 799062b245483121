// What a caller may ask and whose cached prefixes it finds, in process. Also run under the thread sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/generation_fixture.h"

namespace folio {
namespace {

using test::GenerationTest;
using ::testing::HasSubstr;

const std::string kPrompt(40, 'q');  // two full blocks and a half one

class GenerationCallerTest : public GenerationTest {
 protected:
  static Caller keyed(const std::string& tenant, bool share = false) { return {tenant, 3, false, share}; }

  std::optional<Error> error_of(const v1::GenerateRequest& request, const Caller& caller) {
    return start(request, kNoDeadline, true, caller)->wait();
  }
  std::int64_t cached(const Caller& caller, const std::string& salt = "") {
    v1::GenerateRequest request = greedy(kPrompt, 1);
    request.mutable_cache()->set_salt(salt);
    const auto call = start(request, kNoDeadline, true, caller);
    EXPECT_FALSE(call->wait());
    return call->whole().usage().cached_tokens();
  }
};

TEST_F(GenerationCallerTest, TenantAndPriorityAreTheKeys) {
  v1::GenerateRequest request = greedy("a", 1);
  request.set_priority(3);
  for (const char* tenant : {"", "gold"}) {
    request.set_tenant(tenant);
    EXPECT_FALSE(error_of(request, keyed("gold"))) << tenant;
  }
  request.set_tenant("silver");
  const auto other = error_of(request, keyed("gold"));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(other->message, HasSubstr("tenant: \"silver\""));
  request.set_tenant("");
  request.set_priority(4);
  const auto above = error_of(request, keyed("gold"));
  ASSERT_TRUE(above);
  EXPECT_EQ(above->code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(above->message, HasSubstr("priority: 4"));
  v1::ChatRequest chat;
  chat.add_messages()->set_role("user");
  chat.set_tenant("silver");
  const auto in_chat = start(chat, kNoDeadline, true, keyed("gold"))->wait();
  ASSERT_TRUE(in_chat);
  EXPECT_EQ(in_chat->code, ErrorCode::kPermissionDenied);
}

TEST_F(GenerationCallerTest, ATenantsPrefixesAreItsOwn) {
  EXPECT_EQ(cached(keyed("a")), 0);
  EXPECT_GE(cached(keyed("a")), 32) << "its own";
  EXPECT_EQ(cached(keyed("b")), 0) << "another's";
  EXPECT_EQ(cached({}), 0) << "nobody's";
  EXPECT_GE(cached(keyed("c", true)), 32) << "one that shares, with nobody's";
  EXPECT_GE(cached({}), 32);
}

// However a salt is spelled, it leads nowhere else.
TEST_F(GenerationCallerTest, NoSaltReachesAnotherTenant) {
  cached(keyed("a"), "x");
  for (const char* salt : {"t1:ax", "1:ax", "ax", "sx", "t1:a"}) {
    EXPECT_EQ(cached({}, salt), 0) << salt;
    EXPECT_EQ(cached(keyed("b"), salt), 0) << salt;
    EXPECT_EQ(cached(keyed("", false), salt), 0) << salt;
    EXPECT_GE(cached(keyed("s", true), salt), 32) << salt << " of a sharing caller is nobody's";
  }
  EXPECT_EQ(cached(keyed("ax")), 0);
  EXPECT_GE(cached(keyed("a"), "x"), 32);
}

}  // namespace
}  // namespace folio
