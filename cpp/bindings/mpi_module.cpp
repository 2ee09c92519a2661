/// pdnn._mpi.openmpi or pdnn._mpi.mpich: MPI communicators for that binary interface. Loaded by the package pdnn._mpi.
#include <pybind11/pybind11.h>

#include "bindings/signals.hpp"
#include "pdnn/comm/mpi_communicator.hpp"
#include "pdnn/comm/mpi_recording.hpp"
#include "pdnn/comm/waiting.hpp"

PYBIND11_MODULE(PDNN_MPI_MODULE, m) {
  namespace py = pybind11;
  using namespace pdnn;
  py::module_::import("pdnn._core");
  comm::set_interrupt_hook(bindings::run_signal_handlers);
  m.doc() = "MPI communicators.";
  m.def(
      "interface", [] { return PDNN_INTERFACE; }, "What this module and the other one pass to one another, as a hash.");
  m.def("wrap", comm::wrap_mpi, py::call_guard<bindings::NoGil>(), py::arg("handle"), py::arg("most") = Index{1} << 30,
        "The ranks of mpi4py's `comm.handle`; collective. Calls of more than `most` elements travel in pieces.");
  m.def("record_end", comm::record_end, py::arg("how"),
        "How this process ends: its record says so to ranks that wait for it.");
  m.def("end_with_exit_code", comm::end_with_exit_code,
        "From now on this process finalizes MPI when it exits with 0, and ends the whole job when it exits otherwise.");
}
