#pragma once
/// What MPI does about the death of a rank, where it can: Open MPI's extension ULFM, from version 5 on. It is looked up
/// when it is first needed, so that a program also runs with an MPI that has none of it.
#include <cstdint>
#include <functional>
#include <vector>

namespace pdnn::comm {

struct MpiGroup;

/// Whether this MPI goes on when a rank dies: it has the extension, and the launcher has switched it on.
bool ulfm_is_on();
/// Whether an error of a call in this group tells that a rank has died, or that another rank has said so.
bool tells_of_death(int code, const MpiGroup& group);
/// Every call in this group fails from now on, on all of its ranks, also those under way.
void revoke(const MpiGroup& group);
/// Those ranks of a group that are known to have died.
std::vector<int> dead_ranks(const MpiGroup& group);
/// Collective over the ranks that live: the bits that all have given. Calls `look` while it waits.
std::uint32_t agree_of_living(const MpiGroup& group, std::uint32_t bits, const std::function<void()>& look);
/// Collective in the same way: the ranks that live, as a new communicator.
MpiGroup shrunk(const MpiGroup& group);

}  // namespace pdnn::comm
