/// Where operations are not recorded: in C++, so that no Ctrl-C is heard between what begins or ends it and what Python
/// does next.
#include "bindings.hpp"

namespace pdnn::bindings {

namespace {

/// Base of a context manager within which operations are not recorded.
class Pause {};

/// The pauses entered in this context, in order.
class Entered {
 public:
  py::tuple get() const {
    PyObject* pauses = nullptr;
    if (PyContextVar_Get(variable_.ptr(), nullptr, &pauses) < 0) throw py::error_already_set();
    return py::reinterpret_steal<py::tuple>(pauses);
  }
  void set(const py::tuple& pauses) const {
    PyObject* const token = PyContextVar_Set(variable_.ptr(), pauses.ptr());
    if (!token) throw py::error_already_set();
    Py_DECREF(token);
  }

 private:
  py::object variable_ = py::reinterpret_steal<py::object>(PyContextVar_New("pdnn_paused", py::tuple().ptr()));
};

}  // namespace

void bind_recording(py::module_& m) {
  const Entered entered;
  m.def(
      "recording", [entered] { return entered.get().empty(); },
      "Whether operations are recorded, which a Pause that is entered turns off.");
  py::class_<Pause>(m, "Pause", "Operations are not recorded within it.")
      .def(py::init<>())
      .def("__enter__",
           [entered](const py::object& self) {
             entered.set(py::tuple(entered.get() + py::make_tuple(self)));
             return self;
           })
      .def("__exit__", [entered](const py::object& self, const py::object& /*kind*/, const py::object& /*error*/,
                                 const py::object& /*traceback*/) {
        py::list left(entered.get());
        // It may not be there: a generator may enter it in one thread, and leave it in another.
        if (left.contains(self)) left.attr("remove")(self);
        entered.set(py::tuple(left));
      });
}

}  // namespace pdnn::bindings
