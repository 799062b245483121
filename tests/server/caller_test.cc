#include "server/caller.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

namespace folio {
namespace {

Caller keyed(const std::string& tenant, bool share = false) {
  return {tenant, 5, false, share};
}

TEST(Caller, NobodyMayEverything) {
  EXPECT_FALSE(check_caller({}, "any", std::numeric_limits<std::int32_t>::max()));
  EXPECT_FALSE(check_admin({}));
  EXPECT_EQ(tenant_of({}, "any"), "any");
  EXPECT_EQ(tenant_of({}, ""), "");
}

TEST(Caller, ARequestStaysWithinItsKey) {
  const Caller caller = keyed("gold");
  for (const char* tenant : {"", "gold"}) EXPECT_FALSE(check_caller(caller, tenant, 5));
  for (const char* tenant : {"", "gold"}) EXPECT_EQ(tenant_of(caller, tenant), "gold");
  for (const char* tenant : {"Gold", "gold ", "golden", "gol"}) {
    const auto refused = check_caller(caller, tenant, 0);
    ASSERT_TRUE(refused) << tenant;
    EXPECT_EQ(refused->code, ErrorCode::kPermissionDenied);
    EXPECT_EQ(refused->message, "tenant: \"" + std::string(tenant) + "\" is not the API key's, which is \"gold\"");
  }
  EXPECT_FALSE(check_caller(caller, "", std::numeric_limits<std::int32_t>::min()));
  const auto refused = check_caller(caller, "", 6);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(refused->message, "priority: 6 is above the API key's 5");
  EXPECT_EQ(check_admin(caller)->code, ErrorCode::kPermissionDenied);
}

TEST(Caller, ATenantWithoutANameIsOne) {
  EXPECT_FALSE(check_caller(keyed(""), "", 0));
  EXPECT_TRUE(check_caller(keyed(""), "gold", 0));
  EXPECT_EQ(tenant_of(keyed(""), ""), "");
}

// Names and salts that look like the encoding itself, and those that run into each other.
TEST(CacheDomain, TwoPairsNeverMeet) {
  const std::vector<std::string> words = {"",
                                          "a",
                                          "b",
                                          "ab",
                                          "a:",
                                          ":",
                                          "1",
                                          "1:",
                                          "11:",
                                          "1:a",
                                          "t1:a",
                                          "s",
                                          "sa",
                                          "t",
                                          "t0:",
                                          "0:",
                                          "2:ab",
                                          "t2:ab",
                                          "1:ab",
                                          "t1:ab",
                                          "\n",
                                          "gold",
                                          "4:gold",
                                          "t4:gold",
                                          "4gold",
                                          "-1:",
                                          "01:a",
                                          "1 :a",
                                          "s1:a",
                                          "\xC3\xA4",
                                          "10:",
                                          "0123456789",
                                          std::string("a\0b", 3),
                                          std::string("\0", 1),
                                          std::string("1:\0", 3)};
  std::set<std::string> seen;
  for (const std::string& salt : words) {
    EXPECT_TRUE(seen.insert(cache_domain({}, salt)).second) << salt;
    for (const std::string& tenant : words) {
      EXPECT_TRUE(seen.insert(cache_domain(keyed(tenant), salt)).second) << tenant << " " << salt;
      EXPECT_EQ(cache_domain(keyed(tenant, true), salt), cache_domain({}, salt));
    }
  }
}

}  // namespace
}  // namespace folio
