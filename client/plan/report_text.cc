#include <algorithm>
#include <cstdio>
#include <vector>

#include "client/plan/report.h"
#include "client/plan/sizes.h"
#include "client/text.h"

namespace folio::client {
namespace {

std::string size_at(const PlanJson& object, const char* key) {
  return size_text(object.at(key).get<std::uint64_t>());
}
std::string count_at(const PlanJson& object, const char* key) {
  return count_text(object.at(key).get<std::int64_t>());
}

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string plural(const std::string& count, const std::string& noun) {
  return count + " " + noun + (count == "1" ? "" : "s");
}

std::string line(const std::string& name, const std::string& value, const std::string& more = "") {
  char text[64];
  std::snprintf(text, sizeof text, "%-26s %12s", name.c_str(), value.c_str());
  return text + (more.empty() ? "" : "   " + more) + "\n";
}

// Right-aligned columns, each as wide as its widest cell.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += std::string(widths[i] - row[i].size() + (i == 0 ? 0 : 3), ' ') + row[i];
    }
    out += "\n";
  }
  return out;
}

std::string model_text(const PlanJson& model) {
  std::string out;
  if (model.contains("name")) out += model["name"].get<std::string>();
  if (model.contains("layers")) {
    const bool shared = model["heads"] != model["kv_heads"];
    if (!out.empty()) out += ": ";
    out += plural(count_at(model, "layers"), "layer") + ", " + plural(count_at(model, "heads"), "head") + " of " +
           count_at(model, "head_dim") + (shared ? " that share " + count_at(model, "kv_heads") + " of K and V" : "") +
           " (" + model["attention"].get<std::string>() + ")";
  }
  if (!out.empty()) out += "\n";
  if (model.contains("window")) {
    out += plural(count_at(model, "window_layers"), "layer") + " see the last " + count_at(model, "window") +
           " tokens only. folio keeps the K and V of every layer for the whole context all the same: the window\n"
           "saves time, not memory. Without what no layer can see any more, a user would take " +
           size_at(model, "user_bytes_within_windows") + ".\n";
  }
  return out;
}

std::string sizes_text(const PlanJson& plan) {
  const std::string users = plural(count_at(plan, "users"), "user");
  std::string out = line("a token", size_at(plan, "token_bytes"), "K and V in " + plan["kv_dtype"].get<std::string>());
  out += line("a block of " + count_at(plan, "block_size") + " tokens", size_at(plan, "block_bytes"));
  out += line("a user of " + count_at(plan, "context") + " tokens", size_at(plan, "user_bytes"),
              plural(count_at(plan, "user_blocks"), "block"));
  std::string sharing;
  if (plan["shared_blocks"] != 0) {
    sharing = count_at(plan, "shared_blocks") + " of them shared; " + size_at(plan, "users_bytes_without_sharing") +
              " if nothing were";
  }
  out += line(users, size_at(plan, "users_bytes"),
              plural(count_at(plan, "users_blocks"), "block") + (sharing.empty() ? "" : ", " + sharing));
  if (plan["model"].contains("weight_bytes")) {
    out += line("weights", size_at(plan["model"], "weight_bytes"));
    out += line("in all", size_at(plan, "total_bytes"));
  }
  return out;
}

std::string fit_text(const std::string& where, const PlanJson& fit, const PlanJson& plan) {
  const std::string users = plural(count_at(fit, "users"), "user") + " of " + count_at(plan, "context") + " tokens";
  const std::string planned = plural(count_at(plan, "users"), "user");
  const std::string context = fit["context"] == 0 ? "; " + planned + (plan["users"] == 1 ? " does not" : " do not")
                                                  : ", or " + planned + " of " + count_at(fit, "context") + " tokens";
  return where + ": " + plural(count_at(fit, "blocks"), "block") + ", " + count_at(fit, "tokens") + " tokens. " +
         users + (fit["users"] == 1 ? " fits" : " fit") + context + ".\n";
}

std::string memory_text(const PlanJson& plan) {
  const std::string memory = size_at(plan, "memory_bytes");
  if (plan["model"].value("weight_bytes", std::uint64_t{0}) < plan["memory_bytes"].get<std::uint64_t>()) {
    return fit_text(memory, plan["fit"], plan);
  }
  return memory + ": the weights alone, " + size_at(plan["model"], "weight_bytes") + ", leave nothing for K and V.\n";
}

std::string variants_text(const PlanJson& rows, const PlanJson& plan) {
  const bool by_heads = rows[0].contains("kv_heads");
  const bool has_fit = rows[0].contains("users_fit");
  std::vector<std::vector<std::string>> cells(1);
  if (by_heads) cells[0] = {"attention", "K/V heads"};
  if (!by_heads) cells[0] = {"K and V in"};
  cells[0].insert(cells[0].end(), {"a token", "a user", plural(count_at(plan, "users"), "user")});
  if (has_fit) cells[0].push_back("users that fit");
  for (const PlanJson& row : rows) {
    std::vector<std::string> next;
    if (by_heads) next = {row["attention"].get<std::string>(), count_at(row, "kv_heads")};
    if (!by_heads) next = {row["kv_dtype"].get<std::string>()};
    next.insert(next.end(), {size_at(row, "token_bytes"), size_at(row, "user_bytes"), size_at(row, "users_bytes")});
    if (has_fit) next.push_back(count_at(row, "users_fit"));
    cells.push_back(next);
  }
  return "\n" + table(cells);
}

std::string forecast_text(const PlanJson& server) {
  const PlanJson& times = server["step_times"];
  const PlanJson& forecast = server["forecast"];
  if (forecast.is_null()) {
    return "No forecast: the server has seen " + plural(count_at(times, "num_samples"), "step") +
           ", and knows how long they take after 20. Send it some requests first.\n";
  }
  std::string out = "Expected with " + plural(count_at(forecast, "users"), "user") + " of " +
                    count_at(forecast, "context") + " tokens: a token every " +
                    number("%.1f ms", forecast["itl_ms"].get<double>()) + "; the first token of a prompt of " +
                    count_at(forecast, "prompt_tokens") + " (" + count_at(forecast, "cached_tokens") +
                    " cached) after " + number("%.0f ms", forecast["ttft_ms"].get<double>()) + " in " +
                    plural(count_at(forecast, "steps"), "step") + ".\n";
  if (!forecast["is_seen"].get<bool>()) {
    out += "The server has not seen steps of so many tokens (it trusts its model up to " +
           count_at(times, "trusted_rows") + "): take this as a guess.\n";
  }
  return out + "Its predictions were wrong by " + number("%.2f ms", times["usual_error_ms"].get<double>()) +
         " a step lately.\n";
}

std::string server_text(const PlanJson& plan) {
  const PlanJson& server = plan["server"];
  std::string out = "\nThe server at " + server["address"].get<std::string>() + " (" +
                    server["model"].get<std::string>() + ", folio " + server["version"].get<std::string>() + ")\n";
  out += line("a block", size_at(server, "block_bytes"), "K and V in " + server["kv_dtype"].get<std::string>());
  out += line("its KV memory", size_at(server, "kv_bytes"));
  out += line("held now", size_at(server, "held_bytes"),
              plural(count_at(server, "blocks_held"), "block") + "; " + count_at(server, "blocks_cached") +
                  " cached, " + count_at(server, "blocks_free") + " free; " + count_at(server, "num_running") +
                  " running, " + count_at(server, "num_waiting") + " waiting");
  out += fit_text("Its pool", server["fit"], plan);
  for (const PlanJson& difference : server["differences"]) out += "DIFFERS: " + difference.get<std::string>() + ".\n";
  if (server["differences"].empty()) out += "The server is as planned.\n";
  return out + forecast_text(server);
}

}  // namespace

std::string plan_text(const PlanJson& plan) {
  std::string out = model_text(plan["model"]);
  out += sizes_text(plan);
  if (plan.contains("fit")) out += "\n" + memory_text(plan);
  if (plan.contains("by_heads")) out += variants_text(plan["by_heads"], plan) + variants_text(plan["by_dtype"], plan);
  if (plan.contains("server")) out += server_text(plan);
  return out;
}

}  // namespace folio::client
