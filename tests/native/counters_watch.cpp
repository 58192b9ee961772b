// SPDX-License-Identifier: Apache-2.0
// counters_watch CMD ARGS…: runs CMD under the sampler of the counters tier and prints what it inferred, as JSON on
// stdout. CMD's own output goes to stderr. Exit code: CMD's.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "host/inference.h"
#include "host/sampling.h"
#include "stack/layers.h"

int main(int argc, char** argv) {
  using namespace servedby;
  if (argc < 2) {
    fmt::print(stderr, "counters_watch: no command\n");
    return 2;
  }
  int gate[2];
  if (::pipe(gate) != 0) return 125;
  const pid_t child = ::fork();
  if (child < 0) return 125;
  if (child == 0) {
    char byte = 0;
    ::close(gate[1]);
    if (::read(gate[0], &byte, 1) != 1) ::_exit(125);
    ::close(gate[0]);
    ::dup2(2, 1);
    ::execvp(argv[1], argv + 1);
    ::_exit(127);
  }
  const StorageStack stack = whole_machine();
  Sampler sampler(Root(), stack, static_cast<std::uint32_t>(child));
  sampler.start();
  ::close(gate[0]);
  if (::write(gate[1], "x", 1) != 1) return 125;
  ::close(gate[1]);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  const Sampled sampled = sampler.stop();
  ::waitpid(child, nullptr, 0);
  const Inference inference = infer(sampled.before, sampled.after, sampled.reads, stack, sampled.open_on);
  nlohmann::json out{{"rchar", sampled.reads.rchar},     {"read_bytes", sampled.reads.read_bytes},
                     {"known", sampled.reads.known},     {"ended_unseen", sampled.reads.ended_unseen},
                     {"samples", sampled.points.size()}, {"doubt", inference.doubt}};
  for (const PlacedBytes& part : inference.served_by)
    out["served_by"].push_back({{"via", part.via}, {"bytes", part.bytes}});
  for (const auto& [dev, bytes] : sampled.open_on) out["open_on"][stack.name_of(dev)] = bytes;
  for (const auto& [dev, block] : sampled.after.block) {
    const auto first = sampled.before.block.find(dev);
    if (first == sampled.before.block.end() || block.read_bytes == first->second.read_bytes) continue;
    out["devices"][stack.name_of(dev)] = block.read_bytes - first->second.read_bytes;
  }
  fmt::print("{}\n", out.dump(2));
  return ended.si_code == CLD_EXITED ? ended.si_status : 125;
}
