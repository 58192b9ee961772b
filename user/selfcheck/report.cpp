// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "selfcheck/selfcheck.h"

namespace servedby {

nlohmann::ordered_json selfcheck_json(const Selfcheck& check, const std::string& tool) {
  nlohmann::ordered_json json{{"schema", "servedby.selfcheck/1"},
                              {"tool", tool},
                              {"kernel", check.kernel},
                              {"path", check.path},
                              {"tier", check.tier},
                              {"exact", check.exact()}};
  json["proofs"] = nlohmann::ordered_json::array();
  for (const Proof& proof : check.proofs) {
    nlohmann::ordered_json one{{"state", proof.state}, {"exact", proof.exact()}};
    if (!proof.skipped.empty()) {
      one["skipped"] = proof.skipped;
    } else {
      one["wanted"] = proof.wanted;
      one["found"] = proof.found;
      one["complete"] = proof.complete;
      if (!proof.problem.empty()) one["problem"] = proof.problem;
    }
    json["proofs"].push_back(std::move(one));
  }
  return json;
}

std::string selfcheck_text(const Selfcheck& check) {
  std::string text;
  const auto made = std::ranges::count_if(check.proofs, [](const Proof& proof) { return proof.skipped.empty(); });
  const auto exact = std::ranges::count_if(check.proofs, &Proof::exact);
  if (check.exact()) {
    text = fmt::format("Exact on this machine: {} of {} states answered to the byte, the kernel's counters agree.\n",
                       exact, made);
  } else {
    text = fmt::format("NOT exact on this machine: {} of {} states answered to the byte.\n", exact, made);
  }
  const auto bytes_text = [](const std::map<std::string, std::uint64_t>& bytes) {
    std::string line;
    for (const auto& [layer, count] : bytes) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", count, layer);
    return line.empty() ? std::string("nothing") : line;
  };
  for (const Proof& proof : check.proofs) {
    const char* mark = !proof.skipped.empty() ? "skipped" : proof.exact() ? "exact" : "WRONG";
    text += fmt::format("\n  {:8} {}\n", mark, proof.state);
    if (!proof.skipped.empty()) {
      text += fmt::format("           {}\n", proof.skipped);
      continue;
    }
    text += fmt::format("           demanded  {}\n           answered  {}\n", bytes_text(proof.wanted),
                        bytes_text(proof.found));
    if (!proof.problem.empty()) text += fmt::format("           {}\n", proof.problem);
  }
  if (!check.kernel.empty()) text += fmt::format("\n{}; hooks of the {} tier\n", check.kernel, check.tier);
  return text;
}

}  // namespace servedby
