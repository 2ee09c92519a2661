#include "pdnn/reduce/compressed_sum.hpp"

#include "pdnn/core/errors.hpp"
#include "pdnn/kernels/panels.hpp"
#include "pdnn/kernels/table.hpp"
#include "pdnn/reduce/gathered_sum.hpp"
#include "pdnn/reduce/low_rank_sum.hpp"
#include "pdnn/reduce/shared_sum.hpp"

namespace pdnn::reduce {

template <class T>
void CompressedSum<T>::start(std::span<T> gradient) {
  require(slice_.end <= static_cast<Index>(gradient.size()), "CompressedSum: a gradient of ", gradient.size(),
          " elements has no slice [", slice_.begin, ", ", slice_.end, ")");
  values_ = pdnn::slice(gradient, slice_.begin, slice_.size());
  ++stats_.sums;
  const Index ranks = comm_->size();
  stats_.bytes_uncompressed += 2 * (ranks - 1) * slice_.size() * Index{sizeof(T)} / ranks;
  if (ranks > 1) send(values_);
}

template <class T>
std::unique_ptr<CompressedSum<T>> make_compressed_sum(std::shared_ptr<comm::Communicator> comm,
                                                      const Compression& compression, Range slice,
                                                      const std::vector<codec::MatrixAt>& matrices) {
  require(slice.begin >= 0 && slice.begin <= slice.end, "CompressedSum: no slice is [", slice.begin, ", ", slice.end,
          ")");
  std::vector<codec::MatrixAt> inside;
  for (const codec::MatrixAt& m : matrices)
    if (m.offset >= slice.begin && m.offset + m.rows * m.cols <= slice.end)
      inside.push_back({m.offset - slice.begin, m.rows, m.cols, m.panel});
  auto codec = codec::make_codec<T>(compression.codec, slice.size(), std::move(inside));
  if (auto* const low_rank = dynamic_cast<codec::PowerSgd<T>*>(codec.get())) {
    codec.release();  // NOLINT(bugprone-unused-return-value): it lives on as what it is
    return std::make_unique<LowRankSum<T>>(std::move(comm), compression, slice,
                                           std::unique_ptr<codec::PowerSgd<T>>(low_rank));
  }
  const comm::AllReduce* const outside = comm->size() > 1 ? comm->all_reduce_in_use() : nullptr;
  require(!outside, "codec \"", compression.codec.words, "\": all_reduce is \"", outside ? outside->name : "",
          "\", but codes are not added up by an all_reduce; leave out the codec or it");
  const bool gather = compression.form == Form::gather || (compression.form == Form::best && comm->size() <= 2);
  if (gather) return std::make_unique<GatheredSum<T>>(std::move(comm), compression, slice);
  return std::make_unique<SharedSum<T>>(std::move(comm), compression, slice);
}

template <class T>
std::vector<codec::MatrixAt> matrices_of(const Job<T>& job) {
  std::vector<std::vector<Index>> shapes;
  for (const nn::Parameter& parameter : job.model.parameters()) shapes.push_back(parameter.shape);
  std::vector<codec::MatrixAt> matrices = codec::matrices_in(shapes);
  for (codec::MatrixAt& m : matrices) m.panel = job.network.layout().in_panels(m.offset) ? kernels::kPanel<T> : 0;
  return matrices;
}

template class CompressedSum<float>;
template class CompressedSum<double>;
template std::unique_ptr<CompressedSum<float>> make_compressed_sum(std::shared_ptr<comm::Communicator>,
                                                                   const Compression&, Range,
                                                                   const std::vector<codec::MatrixAt>&);
template std::unique_ptr<CompressedSum<double>> make_compressed_sum(std::shared_ptr<comm::Communicator>,
                                                                    const Compression&, Range,
                                                                    const std::vector<codec::MatrixAt>&);
template std::vector<codec::MatrixAt> matrices_of(const Job<float>&);
template std::vector<codec::MatrixAt> matrices_of(const Job<double>&);

}  // namespace pdnn::reduce
