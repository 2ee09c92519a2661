/// Communicators. pdnn.comm checks what it hands over; here every call starts on C-ordered arrays and returns a
/// request.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string_view>

#include "bindings/bindings.hpp"
#include "bindings/held.hpp"
#include "bindings/signals.hpp"
#include "bindings/user_line.hpp"
#include "pdnn/comm/missing.hpp"
#include "pdnn/comm/rank_failed.hpp"
#include "pdnn/comm/shared_memory.hpp"
#include "pdnn/comm/thread_group.hpp"
#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::bindings {

namespace {

using comm::Communicator;
using comm::Op;
using Array = std::optional<py::array>;  // none where a rank gives or takes nothing
using Counts = std::vector<Index>;

comm::DType dtype_of(const py::array& array) {
  for (const auto dtype :
       {comm::DType::float32, comm::DType::float64, comm::DType::int32, comm::DType::int64, comm::DType::uint8}) {
    bool same = false;
    comm::with_type(dtype, [&]<class T>(T) { same = py::isinstance<py::array_t<T>>(array); });
    if (same) return dtype;
  }
  throw py::type_error(message("communicator: an array of ", std::string(py::str(array.dtype())),
                               "; it takes float32, float64, int32, int64 and uint8"));
}

comm::ConstView read_view(const Array& array) {
  if (!array) return {};
  require((array->flags() & py::array::c_style) != 0, "communicator: the array is not C-contiguous");
  return {array->data(), array->size(), dtype_of(*array)};
}

comm::View write_view(const Array& array) {
  const comm::ConstView view = read_view(array);
  require(!array || array->writeable(), "communicator: the array is read-only");
  return {const_cast<void*>(view.data), view.count, view.dtype};
}

/// A call under way, with the arrays that it reads or fills.
class HeldRequest {
 public:
  /// Starts a call without the GIL.
  template <class Start>
  HeldRequest(const py::object& self, py::tuple arrays, Start start) : communicator_(self), arrays_(std::move(arrays)) {
    auto& communicator = self.cast<Communicator&>();
    const AtUserLine here;
    const NoGil no_gil;
    request_ = start(communicator);
  }
  HeldRequest(HeldRequest&&) = default;
  HeldRequest& operator=(HeldRequest&&) = delete;
  ~HeldRequest() {  // NOLINT(bugprone-exception-escape): what asks NumPy for a size throws where there is no NumPy
    if (!request_.pending()) return;
    request_.abandon();
    keep();
  }

  bool test() {
    const NoGil no_gil;
    return request_.test();
  }
  std::string calls_side_by_side() const {
    return communicator_.cast<const Communicator&>().calls_side_by_side(request_.entry());
  }
  void wait(const std::optional<std::string>& call) {
    try {
      const NoGil no_gil;
      request_.wait(call ? call->c_str() : nullptr);
    } catch (...) {
      keep();
      throw;
    }
  }

 private:
  /// Arrays that MPI may yet read or write, which the core has pinned, stay for good.
  void keep() {
    bool in_use = false;
    for (const py::handle each : arrays_) {
      if (each.is_none()) continue;
      const auto array = py::reinterpret_borrow<py::array>(each);
      in_use = in_use || pinned(array.data(), array.nbytes());
    }
    if (!in_use) return;
    communicator_.release();
    arrays_.release();
  }

  py::object communicator_, arrays_;
  comm::Request request_;
};

HeldRequest start_broadcast(const py::object& self, const py::array& data, int root) {
  const comm::ConstView view = read_view(data);
  if (self.cast<Communicator&>().rank() != root) write_view(data);
  return {self, py::make_tuple(data), [&](Communicator& comm) {
            return comm.start_broadcast({const_cast<void*>(view.data), view.count, view.dtype}, root);
          }};
}

HeldRequest start_reduce(const py::object& self, const py::array& in, const Array& out, int root, Op op) {
  return {self, py::make_tuple(in, out), [&, in = read_view(in), out = write_view(out)](Communicator& comm) {
            return comm.start_reduce(in, out, root, op);
          }};
}

HeldRequest start_all_reduce(const py::object& self, const py::array& in, const py::array& out, Op op) {
  return {self, py::make_tuple(in, out), [&, in = read_view(in), out = write_view(out)](Communicator& comm) {
            return comm.start_all_reduce(in, out, op);
          }};
}

HeldRequest start_scatter(const py::object& self, const Array& all, const Counts& counts, const py::array& mine,
                          int root) {
  return {self, py::make_tuple(all, mine), [&, all = read_view(all), mine = write_view(mine)](Communicator& comm) {
            return comm.start_scatter(all, counts, mine, root);
          }};
}

HeldRequest start_gather(const py::object& self, const py::array& mine, const Array& all, const Counts& counts,
                         int root) {
  return {self, py::make_tuple(mine, all), [&, mine = read_view(mine), all = write_view(all)](Communicator& comm) {
            return comm.start_gather(mine, all, counts, root);
          }};
}

HeldRequest start_all_gather(const py::object& self, const py::array& mine, const py::array& all, const Counts& counts,
                             const char* announces) {
  return {self, py::make_tuple(mine, all), [&, mine = read_view(mine), all = write_view(all)](Communicator& comm) {
            const comm::Labeled labeled({.what = announces, .announces = *announces != '\0'});
            return comm.start_all_gather(mine, all, counts);
          }};
}

HeldRequest start_reduce_scatter(const py::object& self, const py::array& all, const py::array& mine,
                                 const Counts& counts, Op op) {
  return {self, py::make_tuple(all, mine), [&, all = read_view(all), mine = write_view(mine)](Communicator& comm) {
            return comm.start_reduce_scatter(all, mine, counts, op);
          }};
}

HeldRequest start_send(const py::object& self, const py::array& data, int dest, int tag) {
  return {self, py::make_tuple(data),
          [&, data = read_view(data)](Communicator& comm) { return comm.start_send(data, dest, tag); }};
}

HeldRequest start_recv(const py::object& self, const py::array& data, int source, int tag) {
  return {self, py::make_tuple(data),
          [&, data = write_view(data)](Communicator& comm) { return comm.start_recv(data, source, tag); }};
}

HeldRequest start_barrier(const py::object& self) {
  return {self, py::make_tuple(), [](Communicator& comm) { return comm.start_barrier(); }};
}

std::optional<std::shared_ptr<comm::SharedMemory>> share(Communicator& comm, Index bytes) {
  if (auto memory = comm::share(comm, bytes)) return memory;
  return std::nullopt;
}

/// What the logs of a job say, of which this process is a rank or has started one; none without such a job.
std::optional<std::tuple<std::string, std::string, bool>> state_of_job(std::int64_t process) {
  const comm::Logs logs = comm::logs_of(process);
  if (logs.empty()) return std::nullopt;
  const bool told = std::ranges::any_of(logs, [](const auto& log) { return (*log)->told_missing.load(); });
  return std::tuple(comm::ranks_of_job(logs), comm::waits_of_job(logs), told);
}

/// Adds up a copy, so that an array that Python keeps stays valid.
void use_all_reduce(Communicator& comm, const std::string& name, const py::object& function) {
  const auto sum = [held = hold(function)](Communicator& group, comm::View data) {
    const Gil gil;
    comm::with_type(data.dtype, [&]<class T>(T) {
      auto* const values = static_cast<T*>(data.data);
      const py::array_t<T> copy(data.count, values);
      (*held)(group.shared_from_this(), copy);
      std::copy_n(copy.data(), data.count, values);
    });
  };
  comm.use(std::make_shared<comm::AllReduce>(comm::AllReduce{name, sum}));
}

std::optional<std::string> all_reduce_name(const Communicator& comm) {
  const comm::AllReduce* const used = comm.all_reduce_in_use();
  return used ? std::optional(used->name) : std::nullopt;
}

/// Lines after the first become notes of the exception, which a traceback shows (Python 3.11).
void raise_with_notes(const py::handle& kind, const char* what) {
  const auto words = [](std::string_view part) {  // which may quote bytes of any encoding
    return py::reinterpret_steal<py::str>(
        PyUnicode_DecodeUTF8(part.data(), static_cast<Py_ssize_t>(part.size()), "replace"));
  };
  const std::string_view text(what);
  const std::size_t line = text.find("\n  ");
  py::object error = kind(words(text.substr(0, line)));
  if (line == std::string_view::npos || !py::hasattr(error, "add_note")) {
    error = kind(words(text));
  } else {
    error.attr("add_note")(words(text.substr(line + 1)));
  }
  PyErr_SetObject(kind.ptr(), error.ptr());
}

void bind_errors(py::module_& m) {
  auto failed = py::register_exception<CommunicationError>(m, "CommunicationError", PyExc_RuntimeError);
  static const py::handle communication_error = failed.inc_ref();
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ValueError& error) {
      raise_with_notes(PyExc_ValueError, error.what());
    } catch (const CommunicationError& error) {
      raise_with_notes(communication_error, error.what());
    } catch (const std::runtime_error& error) {  // as of an extension's layer
      if (typeid(error) != typeid(std::runtime_error)) throw;
      raise_with_notes(PyExc_RuntimeError, error.what());
    } catch (const OutOfMemory&) {
      throw;  // which says how much
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError,
                      "no memory for what was asked for, such as so many threads, leaves, micro-batches or rows");
    }
  });
  failed.attr("__doc__") = "The world's fault: MPI failed, a rank was lost, or a wait took longer than PDNN_TIMEOUT.";
  auto aborted = py::register_exception<Aborted>(m, "Aborted", failed);
  aborted.attr("__doc__") = "A wait was cut short because another rank failed.";
  static const py::exception<comm::Died> died(m, "Died", PyExc_BaseException);
  died.attr("__doc__") = "Ends a thread that is a rank and has died; nobody should catch it.";
  static const py::exception<comm::RankFailed> rank_failed(m, "RankFailed", failed);
  rank_failed.attr("__doc__") =
      "Another rank died. The ranks that are left can go on in the group that `Communicator.shrink` makes.";
  const py::cpp_function ranks([](const py::object& self) { return self.attr("_ranks").cast<std::vector<int>>(); },
                               py::is_method(rank_failed),
                               "Those that died, as the group counts them that all others were split off.");
  rank_failed.attr("ranks") = py::module_::import("builtins").attr("property")(ranks);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const comm::RankFailed& error) {
      const py::object raised = py::reinterpret_borrow<py::object>(rank_failed)(error.what());
      raised.attr("_ranks") = error.ranks;
      PyErr_SetObject(rank_failed.ptr(), raised.ptr());
    } catch (const comm::Died&) {
      PyErr_SetString(died.ptr(), "this rank died");
    }
  });
}

}  // namespace

void bind_comm(py::module_& m) {
  comm::set_interrupt_hook(run_signal_handlers);
  const py::module_ path = py::module_::import("os.path");
  const py::object folder = path.attr("join")(path.attr("dirname")(m.attr("__file__")), "");
  own_folder() = py::cast<std::string>(folder.attr("encode")("utf-8", "backslashreplace"));  // it need not be UTF-8
  bind_errors(m);
  m.def(
      "interface", [] { return PDNN_INTERFACE; }, "What this module and the other one pass to one another, as a hash.");
  py::enum_<Op>(m, "Op", "What a reduction does with the ranks' values.")
      .value("sum", Op::sum)
      .value("mean", Op::mean)
      .value("max", Op::max)
      .value("min", Op::min);
  py::class_<HeldRequest>(m, "Request", "A call under way; it keeps its arrays alive.")
      .def("test", &HeldRequest::test, "Whether the call is done.")
      .def("calls_side_by_side", &HeldRequest::calls_side_by_side,
           "The ranks' calls at this collective one if they differ, a line each after a new line; else empty.")
      .def("wait", &HeldRequest::wait, py::arg("call") = py::none(),
           "Returns when the call is done; a message about a wait that lasts too long speaks of `call`.");
  py::class_<comm::SharedMemory, std::shared_ptr<comm::SharedMemory>>(m, "SharedMemory", py::buffer_protocol(),
                                                                      "Bytes that several ranks see.")
      .def_buffer([](comm::SharedMemory& memory) {
        return py::buffer_info(reinterpret_cast<std::uint8_t*>(memory.data()), memory.bytes());
      });
  py::class_<comm::Traffic>(m, "Traffic", "What a rank has sent to others, and how long it has waited.")
      .def_readonly("bytes", &comm::Traffic::bytes,
                    "Sent; of a collective call what a good algorithm for it sends (docs/algorithms.md).")
      .def_readonly("shared_bytes", &comm::Traffic::shared_bytes,
                    "Read where other ranks wrote, in memory that they share.")
      .def_readonly("seconds", &comm::Traffic::seconds, "In waits for calls.");
  py::class_<Communicator, std::shared_ptr<Communicator>>(m, "Communicator", "One rank's end of a group.")
      .def_property_readonly("rank", &Communicator::rank, "This rank's number, from 0.")
      .def_property_readonly("size", &Communicator::size, "How many ranks there are.")
      .def_property_readonly("step", &Communicator::step, "What at_step was told last; -1 at first.")
      .def_property_readonly(
          "traffic", [](const Communicator& comm) { return comm.traffic(); },
          "Of all calls of this rank in this group so far, as a copy.")
      .def("at_step", &Communicator::at_step, py::arg("step"), "Tells which training step this rank is at.")
      .def("end_record", &Communicator::end_record, py::arg("how"),
           "This rank makes no more calls, as those are told that wait for it.")
      .def("use_all_reduce", use_all_reduce, py::arg("name"), py::arg("function"),
           "Sums of floats are made by function(communicator, array), in place; inherited by groups split off.")
      .def(
          "use_own_all_reduce", [](Communicator& comm) { comm.use(nullptr); }, "Ends use_all_reduce().")
      .def_property_readonly("all_reduce_name", all_reduce_name, "What use_all_reduce() was told; None at first.")
      .def("split", &Communicator::split, py::arg("color"), py::arg("key"), py::call_guard<AtUserLine, NoGil>(),
           "Collective: the group of the ranks with this rank's color, ordered by (key, rank).")
      .def("start_broadcast", start_broadcast, py::arg("data"), py::arg("root"))
      .def("start_reduce", start_reduce, py::arg("input"), py::arg("out"), py::arg("root"), py::arg("op"))
      .def("start_all_reduce", start_all_reduce, py::arg("input"), py::arg("out"), py::arg("op"))
      .def("start_scatter", start_scatter, py::arg("all"), py::arg("counts"), py::arg("mine"), py::arg("root"))
      .def("start_gather", start_gather, py::arg("mine"), py::arg("all"), py::arg("counts"), py::arg("root"))
      .def("start_all_gather", start_all_gather, py::arg("mine"), py::arg("all"), py::arg("counts"),
           py::arg("announces") = "")
      .def("start_reduce_scatter", start_reduce_scatter, py::arg("all"), py::arg("mine"), py::arg("counts"),
           py::arg("op"))
      .def("start_send", start_send, py::arg("data"), py::arg("dest"), py::arg("tag"))
      .def("start_recv", start_recv, py::arg("data"), py::arg("source"), py::arg("tag"))
      .def("start_barrier", start_barrier)
      .def_property_readonly("survives", &Communicator::survives,
                             "Whether the ranks that are left when one dies can go on.")
      .def("agree", &Communicator::agree, py::arg("bits"), py::arg("patient"), py::call_guard<AtUserLine, NoGil>(),
           "Collective over the ranks that live: the bits that all of them have given.")
      .def("shrink", &Communicator::shrink, py::call_guard<AtUserLine, NoGil>(),
           "Collective over the ranks that live: the group of those.")
      .def("die", &Communicator::die, "This rank dies.")
      .def("share", share, py::arg("bytes"), py::call_guard<AtUserLine, NoGil>(),
           "Collective: memory that all ranks see; None, on all of them, if one of them cannot.")
      .def("ranks_of_machine", comm::ranks_of_machine, py::call_guard<AtUserLine, NoGil>(),
           "Collective: the group of the ranks of this one's machine.");
  py::class_<comm::ThreadGroup>(m, "ThreadGroup", "Ranks that are threads of this process.")
      .def(py::init<int>(), py::arg("size"))
      .def("communicator", &comm::ThreadGroup::communicator, py::arg("rank"),
           "The end of one rank, for the thread that will be it.")
      .def("abort", &comm::ThreadGroup::abort, py::arg("rank") = py::none(),
           "Releases all ranks that wait, now or later, with Aborted, which names the rank that failed.");
  m.def("die_after", &Communicator::die_after, py::arg("calls"),
        "This thread, which is a rank, dies at its so many-th call of any group of several ranks; 0: it does not.");
  m.def(
      "state_of_job", state_of_job, py::arg("process"),
      "What each rank of a job does, who waits for whom, and whether a rank has said so when it gave up; None without "
      "a record of a job of which `process` is a rank or has started one.");
  m.def(
      "remove_record", [](std::int64_t process) { comm::remove_files(comm::logs_of(process)); }, py::arg("process"),
      "Removes the files of that job's record.");
  m.def("make_self", comm::make_self, "The group of this rank alone.");
}

}  // namespace pdnn::bindings
