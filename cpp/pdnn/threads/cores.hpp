#pragma once
/// How many cores this process may really use: its affinity mask, cut by its cgroup's quota.

namespace pdnn::threads {

struct Cores {
  int online = 1;    ///< in the machine
  int affinity = 1;  ///< in this process's affinity mask
  double quota = 0;  ///< the cgroup's CPU quota in cores; 0: none
};

/// Read from the system at each call.
Cores read_cores();

/// min(affinity, quota), at least 1; read once.
int available_cores();

}  // namespace pdnn::threads
