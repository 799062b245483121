// Sampling on the device is its plain twin's to the id, and the host sampler's.
#include "tests/gpu/parts.h"
#include "tests/simt/sampling_case.h"

namespace folio::gpu {
namespace {

void check_vocabulary(Report& report, std::size_t vocab, int rows, std::mt19937& random) {
  cuda::SamplingCase work;
  std::vector<cuda::SampleRow> sample_rows;
  std::vector<std::int32_t> plain;
  SamplerScratch scratch;
  int of_host = 0;
  for (int r = 0; r < rows; ++r) {
    work.logits.push_back(cuda::random_logits(random, vocab));
    work.params.push_back(cuda::random_params(random));
  }
  for (std::size_t r = 0; r < work.logits.size(); ++r) {
    const SampleRequest request = cuda::request_of(work, r, 17);
    sample_rows.push_back(cuda::make_sample_row(request, static_cast<std::int32_t>(vocab)));
    plain.push_back(cuda::sample_plainly(sample_rows.back(), work.logits[r]));
    std::vector<float> logits = work.logits[r];
    if (sample_row(request, logits, scratch).id == plain.back()) ++of_host;
  }
  const std::vector<std::int32_t> got = cuda::sample_on_device(work, sample_rows);
  int equal = 0;
  for (std::size_t r = 0; r < got.size(); ++r) equal += got[r] == plain[r] ? 1 : 0;
  const std::string of_rows = " of " + std::to_string(rows) + " rows";
  const std::string name = "vocabulary of " + std::to_string(vocab);
  report.check(name + ", the plain rule", equal == rows, std::to_string(equal) + of_rows);
  report.check(name + ", the host's sampler", of_host == rows, std::to_string(of_host) + of_rows);
}

}  // namespace

void check_sampling(Report& report) {
  std::mt19937 random(4);
  for (const std::size_t vocab : {1U, 2U, 31U, 257U, 1000U, 1028U, 5003U, 20000U}) {
    check_vocabulary(report, vocab, 64, random);
  }
  for (const std::size_t vocab : {49152U, 128256U, 262144U}) check_vocabulary(report, vocab, 12, random);
}

void check_sample(Report& report) {
  std::mt19937 random(4);
  check_vocabulary(report, 1028, 4, random);
  check_small_attention(report);
}

}  // namespace folio::gpu
