/// The machine and the build, as Python sees them.
#include <pybind11/stl.h>

#include <map>

#include "bindings.hpp"
#include "pdnn/core/random.hpp"
#include "pdnn/kernels/table.hpp"
#include "pdnn/threads/cores.hpp"
#include "pdnn/threads/round_trip.hpp"

namespace pdnn::bindings {

namespace {

std::map<std::string, std::string> build_info() {
  std::map<std::string, std::string> info;
  info["version"] = PDNN_VERSION;
#if defined(__clang__)
  info["compiler"] = "clang " __clang_version__;
#elif defined(__GNUC__)
  info["compiler"] = "g++ " __VERSION__;
#else
  info["compiler"] = "unknown";
#endif
  info["standard"] = std::to_string(__cplusplus);
  return info;
}

}  // namespace

void bind_core(py::module_& m) {
  m.def("build_info", build_info, "Version, compiler and C++ standard of this build.");
  m.def(
      "active_isa", [] { return std::string(kernels::name(kernels::active_isa())); },
      "The instruction set that the kernels run on: v2, v3, v4, v4-bf16 or v4-amx; on arm64 v2, neon or neon-bf16. "
      "PDNN_ISA forces one.");
  m.def(
      "default_isa", [] { return std::string(kernels::name(kernels::default_isa())); },
      "The instruction set that is taken unless PDNN_ISA forces one.");
  m.def(
      "supported_isas",
      [] {
        std::vector<std::string> names;
        for (const auto isa : kernels::kIsas)
          if (kernels::supported(isa)) names.emplace_back(kernels::name(isa));
        return names;
      },
      "The instruction sets that run here.");
  m.def(
      "isa_obstacles",
      [] {
        std::map<std::string, std::string> obstacles;
        for (const auto isa : kernels::kIsas)
          if (!kernels::supported(isa)) obstacles.emplace(kernels::name(isa), kernels::obstacle(isa));
        return obstacles;
      },
      "The instruction sets that do not run here, and why.");
  m.def(
      "measure_bfloat16",
      [](const std::string& isa, double seconds) {
        return kernels::measure_bfloat16(kernels::choose_isa(isa), seconds);
      },
      py::arg("isa"), py::arg("seconds"), py::call_guard<NoGil>(),
      "Operations a second of a product of 64 x 256 by 256 x 256 numbers in bfloat16 on an instruction set.");
  m.def(
      "read_cores",
      [] {
        const threads::Cores cores = threads::read_cores();
        return py::make_tuple(cores.online, cores.affinity, cores.quota);
      },
      "(cores online, cores in this process's affinity mask, the cgroup's quota in cores or 0.0 for none).");
  m.def("available_cores", threads::available_cores, "Cores that this process may use: min(affinity, quota).");
  m.def("measure_round_trip", threads::measure_round_trip, py::call_guard<NoGil>(),
        "Seconds that a word takes from one core to another and back, measured now.");
  m.def(
      "uniform", [](std::uint64_t seed, std::uint64_t index) { return Rng(seed).uniform(index); }, py::arg("seed"),
      py::arg("index"), "Element `index` of the uniform [0, 1) stream of a seed.");
}

}  // namespace pdnn::bindings
