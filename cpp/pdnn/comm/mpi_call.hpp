#pragma once
/// MpiCall: a call under way as the MPI requests that it is made of.
#include <mpi.h>

#include <optional>
#include <vector>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

/// An MPI communicator, as this rank sees it; calls of more than `most` elements travel in pieces.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 0;
  Index most = 0;
};

/// Throws CommunicationError unless a call in this group succeeded; RankFailed, which names no rank, if it says that
/// one has died.
void check_mpi(int code, Kind kind, const MpiGroup& group);

/// The requests, and what MPI reads until they are done.
class MpiCall {
 public:
  struct Step {
    MPI_Request request;
    int expected;  // elements that arrive; -1: not a recv, or not checked
  };

  Call call;
  std::vector<Step> steps;
  std::size_t done = 0;
  std::vector<std::byte> copy;   // of a small call's memory, or of a message to this rank itself
  std::optional<View> result{};  // of a call on copies: where it goes

  /// MPI sees none of the caller's memory, and may go on with the call when it is forgotten.
  void work_on_copies();
  /// Starts it, by calls of MPI that do not block.
  void post(const MpiGroup& group);
  /// True once all of its requests are done.
  bool advance();
  /// Then: what MPI does not do.
  void deliver(int ranks);

 private:
  /// Calls post(at, count, request) for each piece, at least once.
  template <class Post>
  void in_pieces(Index count, Post post);
  void post_parts();
  void post_parts_in_pieces();
  void broadcast(View data, int root);
  void reduce(ConstView in, View out, int root);
  void all_reduce();
  void send(ConstView data, int to, int tag);
  void recv(View data, int from, int tag);

  MpiGroup group_{};
  std::vector<int> counts_, starts_;  // of the ranks' parts, in elements
};

}  // namespace pdnn::comm
