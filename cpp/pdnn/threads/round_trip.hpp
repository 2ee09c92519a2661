#pragma once
/// The round trip between two cores, the unit of every wait of two threads for each other.

namespace pdnn::threads {

/// Seconds until a word that one thread writes comes back from another, both spinning: the fastest of some runs in a
/// millisecond. Where the threads have no core each, a run lasts milliseconds, and so does the result.
double measure_round_trip();

}  // namespace pdnn::threads
