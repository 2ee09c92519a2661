/// Sums over ranks: how they are encoded, and arrays that are added up in buckets.
#include "bindings.hpp"
#include "locked.hpp"
#include "numpy.hpp"
#include "pdnn/reduce/bucketed_all_reduce.hpp"
#include "pdnn/reduce/node_tree.hpp"
#include "user_line.hpp"

namespace pdnn::bindings {

namespace {

/// With the array that is added up, from start() to finish(). If this goes before, MPI may write into it yet: the array
/// stays for good.
template <class T>
struct HeldSum : Locked<reduce::BucketedAllReduce<T>> {
  using Locked<reduce::BucketedAllReduce<T>>::Locked;
  ~HeldSum() { array.release(); }

  /// What was under way in a sum that fails is abandoned, and an error that is fed back may count half of it: neither
  /// this sum nor a later one would be right.
  template <class Call>
  auto unless_failed(Call call) {
    require(!failed, "all-reduce: an earlier sum has failed, and other ranks may be at another one; make a new object");
    try {
      return this->without_gil(call);
    } catch (...) {
      failed = true;
      throw;
    }
  }

  py::object array;
  bool failed = false;
};

}  // namespace

void bind_reduce(py::module_& m) {
  using reduce::Compression, reduce::Form, reduce::ReducerOptions;
  m.def(
      "nodes_of_ranks",
      [](Index leaves, int ranks) {
        const reduce::NodeTree tree(leaves, ranks);
        std::vector<Index> counts;
        for (int rank = 0; rank < ranks; ++rank) counts.push_back(tree.of_rank(rank).size());
        return counts;
      },
      py::arg("leaves"), py::arg("ranks"),
      "How many nodes of the tree over a batch's leaves each rank makes, of the largest that lie whole in its run.");
  py::class_<Compression>(m, "Compression")
      .def(py::init([](codec::Spec codec, std::optional<bool> feedback, Index measure_every, const std::string& form) {
             const Form which = form == "gather" ? Form::gather : form == "shares" ? Form::shares : Form::best;
             require(which != Form::best || form == "best", "all-reduce with a codec: form is \"", form,
                     "\"; expected \"gather\", \"shares\" or \"best\"");
             return Compression{std::move(codec), feedback, which, measure_every};
           }),
           py::arg("codec"), py::arg("feedback"), py::arg("measure_every"), py::arg("form") = "best");
  py::class_<ReducerOptions>(m, "ReducerOptions")
      .def(py::init([](std::optional<bool> shared_memory, Index bucket_bytes, std::optional<Compression> compression) {
             using enum ReducerOptions::Memory;
             return ReducerOptions{.memory = !shared_memory   ? measured
                                             : *shared_memory ? shared
                                                              : messages,
                                   .bucket_bytes = bucket_bytes,
                                   .compression = std::move(compression)};
           }),
           py::arg("shared_memory") = py::none(), py::arg("bucket_bytes") = 0, py::arg("compression") = py::none());
}

template <class T>
void bind_reduce(py::module_& m) {
  using AllReduce = reduce::BucketedAllReduce<T>;
  using Sum = HeldSum<T>;
  py::class_<Sum>(m, "BucketedAllReduce")
      .def(py::init([](std::shared_ptr<comm::Communicator> comm, const std::vector<std::pair<Index, Index>>& buckets,
                       const std::optional<reduce::Compression>& compression,
                       const std::vector<std::vector<Index>>& shapes) {
             std::vector<Range> ranges;
             for (const auto& [begin, end] : buckets) ranges.push_back({begin, end});
             return std::make_unique<Sum>(std::make_unique<AllReduce>(std::move(comm), std::move(ranges), compression,
                                                                      codec::matrices_in(shapes)));
           }),
           py::arg("comm"), py::arg("buckets"), py::arg("compression"), py::arg("shapes"))
      .def(
          "start",
          [](Sum& self, py::array& array, const std::vector<double>& counts, bool mean) {
            require(!self.array || self.failed, "all-reduce: a sum is under way already; call finish() first");
            const std::span<T> values = write<T>("all-reduce", array);
            const AtUserLine here;
            self.unless_failed([&](AllReduce& sum) { sum.start(values, counts, mean); });
            self.array = array;
          },
          py::arg("array"), py::arg("counts") = std::vector<double>(), py::arg("mean") = false,
          "`counts` are added up beside; with `mean` the array is divided by the sum of the first, unless that is 0.")
      .def(
          "ready",
          [](Sum& self, Index begin, Index end) {
            require(static_cast<bool>(self.array), "all-reduce: nothing is under way; call start() first");
            self.unless_failed([&](AllReduce& sum) { sum.ready({begin, end}); });
          },
          py::arg("begin"), py::arg("end"), "These elements are final: starts and moves along what can be.")
      .def(
          "test", [](Sum& self) { return self.unless_failed([](AllReduce& sum) { return sum.poll(); }); },
          "Moves it along; whether all that was started is there.")
      .def(
          "finish",
          [](Sum& self) {
            require(static_cast<bool>(self.array), "all-reduce: nothing is under way; call start() first");
            const AtUserLine here;
            const std::span<const double> counts = self.unless_failed([](AllReduce& sum) { return sum.finish(); });
            self.array = {};
            return std::vector<double>(counts.begin(), counts.end());
          },
          "Starts what was not ready, and waits for all; returns the sums of the counts.")
      .def_property_readonly(
          "array", [](const Sum& self) { return self.array ? self.array : py::none(); },
          "What is added up, from start() to finish(); None otherwise.")
      .def_property_readonly(
          "started", [](const Sum& self) { return self.object->started(); }, "Buckets of the latest sum.")
      .def_property_readonly(
          "bytes_sent", [](const Sum& self) { return self.object->bytes_sent(); },
          "Bytes that leave this rank in a sum by the codec.")
      .def_property_readonly("stats", [](const Sum& self) { return self.object->stats(); });
}

template void bind_reduce<float>(py::module_&);
template void bind_reduce<double>(py::module_&);

}  // namespace pdnn::bindings
