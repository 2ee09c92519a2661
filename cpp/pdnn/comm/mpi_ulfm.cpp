#include "pdnn/comm/mpi_ulfm.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string_view>

#include "pdnn/comm/mpi_call.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

// Classes of errors of Open MPI 5, also for a build on the headers of an older one.
constexpr int kFailed = 75, kFailedPending = 76, kRevoked = 77;

template <class... Arguments>
int absent(Arguments... /*unused*/) {
  return MPI_ERR_OTHER;
}

struct Ulfm {
  int (*revoke)(MPI_Comm) = &absent;
  int (*shrink)(MPI_Comm, MPI_Comm*) = &absent;
  int (*iagree)(MPI_Comm, int*, MPI_Request*) = &absent;
  int (*get_failed)(MPI_Comm, MPI_Group*) = &absent;
  int (*is_revoked)(MPI_Comm, int*) = &absent;
  int found = 0;

  bool whole() const { return found == 5; }
};

#ifdef OPEN_MPI

/// From the library that is loaded already, which need not be visible to the whole program.
Ulfm look_up() {
  Ulfm ulfm;
  Dl_info about{};
  if (dladdr(reinterpret_cast<void*>(&MPI_Comm_rank), &about) == 0) return ulfm;
  void* const library = dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return ulfm;
  const auto find = [&]<class F>(const char* name, F*& function) {
    void* const symbol = dlsym(library, name);
    if (!symbol) return;
    function = reinterpret_cast<F*>(symbol);
    ++ulfm.found;
  };
  find("MPIX_Comm_revoke", ulfm.revoke);
  find("MPIX_Comm_shrink", ulfm.shrink);
  find("MPIX_Comm_iagree", ulfm.iagree);
  find("MPIX_Comm_get_failed", ulfm.get_failed);
  find("MPIX_Comm_is_revoked", ulfm.is_revoked);
  return ulfm;
}

#else

Ulfm look_up() { return {}; }

#endif

const Ulfm& ulfm() {
  static const Ulfm functions = look_up();
  return functions;
}

int class_of(int code) {
  int kind = code;
  MPI_Error_class(code, &kind);
  return kind;
}

bool is_of_death(int code) {
  const int kind = class_of(code);
  return kind == kFailed || kind == kFailedPending || kind == kRevoked;
}

}  // namespace

bool ulfm_is_on() {
  const char* const text = std::getenv("OMPI_MCA_mpi_ft_enable");  // by mpiexec --with-ft
  const std::string_view enabled = text ? text : "";
  return (enabled == "1" || enabled == "true") && ulfm().whole();
}

/// A collective call that meets a death in one of its later rounds may end with MPI_ERR_OTHER.
bool tells_of_death(int code, const MpiGroup& group) {
  if (code == MPI_SUCCESS || !ulfm_is_on()) return false;
  if (class_of(code) != MPI_ERR_OTHER) return is_of_death(code);
  int revoked = 0;
  return (ulfm().is_revoked(group.comm, &revoked) == MPI_SUCCESS && revoked) || !dead_ranks(group).empty();
}

void revoke(const MpiGroup& group) {
  if (ulfm_is_on()) ulfm().revoke(group.comm);
}

std::vector<int> dead_ranks(const MpiGroup& group) {
  MPI_Group dead = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  if (ulfm().get_failed(group.comm, &dead) != MPI_SUCCESS) return {};
  int count = 0;
  MPI_Comm_group(group.comm, &all);
  MPI_Group_size(dead, &count);
  std::vector<int> numbers(static_cast<std::size_t>(count)), ranks(numbers.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  MPI_Group_translate_ranks(dead, count, numbers.data(), all, ranks.data());
  MPI_Group_free(&dead);
  MPI_Group_free(&all);
  return ranks;
}

std::uint32_t agree_of_living(const MpiGroup& group, std::uint32_t bits, const std::function<void()>& look) {
  auto flags = std::make_unique<int>(static_cast<int>(bits));
  MPI_Request request = MPI_REQUEST_NULL;
  int code = ulfm().iagree(group.comm, flags.get(), &request);
  try {
    for (int done = 0; code == MPI_SUCCESS && !done;) {
      code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (code == MPI_SUCCESS && !done) look();
    }
  } catch (...) {
    [[maybe_unused]] const int* left = flags.release();  // MPI may write there yet
    throw;
  }
  if (!is_of_death(code)) check_mpi(code, Kind::barrier, group);  // the flags are agreed on nevertheless
  return static_cast<std::uint32_t>(*flags);
}

MpiGroup shrunk(const MpiGroup& group) {
  MpiGroup left = group;
  check_mpi(ulfm().shrink(group.comm, &left.comm), Kind::barrier, group);
  check_mpi(MPI_Comm_set_errhandler(left.comm, MPI_ERRORS_RETURN), Kind::barrier, group);
  check_mpi(MPI_Comm_rank(left.comm, &left.rank), Kind::barrier, group);
  check_mpi(MPI_Comm_size(left.comm, &left.size), Kind::barrier, group);
  return left;
}

}  // namespace pdnn::comm
