#pragma once
/// A layer of your own, as an extension of Python hands it to pdnn. Header only: the extension links nothing of pdnn,
/// and what passes between both is in C's types, so compilers and their options may differ.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pdnn {

using Index = std::ptrdiff_t;

namespace custom {

/// Samples, one behind the other, in C order; but an image, whose shape is (channels, height, width), and a line,
/// (channels, length), lie with their channels last: (height, width, channels), (length, channels). Null data: the
/// values are not wanted.
template <class T>
struct Batch {
  T* data;
  Index rows;
  std::span<const Index> sample;  ///< the shape of one

  /// Elements of a sample.
  Index width() const {
    Index product = 1;
    for (const Index extent : sample) product *= extent;
    return product;
  }
};

/// An array that is trained.
struct Parameter {
  std::string name;  ///< an identifier of Python: "weight"
  std::vector<Index> shape;
};

/// `size` things from `begin` on.
struct Range {
  Index begin, size;
};

/// What passes between an extension and pdnn. A change of anything here is another version.
namespace abi {

inline constexpr std::int32_t kVersion = 1;
inline constexpr const char* kCapsule = "pdnn.custom.layer";

/// How a function ended: `aborted` by the error of another thread, at a barrier.
enum class End : std::int32_t { good, invalid_argument, error, aborted };
struct Outcome {
  End end;
  char words[1020];
};

/// A pass over a batch.
struct Call {
  std::int32_t member, members, training;
  std::int32_t (*barrier)(void* team);  // not 0: aborted
  void* team;
  std::uint64_t seed;
  Index first_row, rows, in_axes, out_axes;
  const Index *in, *out;
  const void *params, *x, *dy;
  void *y, *saved, *dx, *grads;
};

struct Layer {
  std::int32_t version, element_bytes;
  void* self;
  void (*destroy)(Layer* layer);
  void (*parameters)(const void* self, void* list,
                     void (*add)(void* list, const char* name, const Index* shape, Index axes), Outcome* outcome);
  void (*output_shape)(const void* self, const Index* in, Index axes, void* list, void (*add)(void* list, Index extent),
                       Outcome* outcome);
  void (*saved)(const void* self, const Index* in, Index axes, Index* elements, Outcome* outcome);
  void (*initialize)(const void* self, std::uint64_t seed, void* params, Outcome* outcome);
  void (*forward)(const void* self, const Call* call, Outcome* outcome);
  void (*backward)(const void* self, const Call* call, Outcome* outcome);
};

struct Aborted : std::exception {};

}  // namespace abi

/// What a call may depend on beside its arrays, and which of the threads that make it together this one is.
class Pass {
 public:
  explicit Pass(const abi::Call& call) : call_(call) {}

  bool training() const { return call_.training != 0; }
  /// Of random numbers: a function of the trainer's seed, the step and the layer. With it, first_row() makes numbers
  /// that do not depend on which thread or rank computes a row.
  std::uint64_t seed() const { return call_.seed; }
  /// The place of this batch's first row in the whole batch, of which threads and ranks may have parts.
  Index first_row() const { return call_.first_row; }
  /// This thread's part of `count` things: of the rows, or of the columns of a weight. All threads call with the same
  /// arguments, and each writes what is its own.
  Range share(Index count) const {
    const Index each = count / call_.members, more = count % call_.members;
    return {call_.member * each + std::min<Index>(call_.member, more), each + (call_.member < more ? 1 : 0)};
  }
  /// Waits for the other threads: they may then read what this one has written. There is one after each call.
  void barrier() const {
    if (call_.barrier(call_.team) != 0) throw abi::Aborted();
  }

 private:
  const abi::Call& call_;
};

/// Derive from it, for T = float and double. It is called without Python's lock, by several threads, for several
/// batches at once: it has no state that changes. std::invalid_argument becomes ValueError in Python, any other
/// exception RuntimeError.
template <class T>
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::vector<Parameter> parameters() const { return {}; }
  /// The shape of y's samples for x's. Throws std::invalid_argument if they do not fit. That of x's, unless there are
  /// arrays of parameters, which not all samples fit.
  virtual std::vector<Index> output_shape(const std::vector<Index>& in) const {
    for (const Parameter& each : parameters())
      for (const Index extent : each.shape)
        if (extent != 1)
          throw std::invalid_argument("has an array of parameters, " + each.name +
                                      ", so output_shape must say which samples fit it");
    return in;
  }
  /// Elements for each row that forward leaves to backward, beside x and y.
  virtual Index saved(const std::vector<Index>& /*in*/) const { return 0; }
  /// Draws initial parameters, which are 0, one array behind the other: a function of the seed.
  virtual void initialize(std::uint64_t /*seed*/, T* /*params*/) const {}
  /// Writes y, and `saved`, from x. A row of y depends on this row of x alone.
  virtual void forward(const Pass& pass, const T* params, Batch<const T> x, Batch<T> y, T* saved) const = 0;
  /// With dy, the derivative of the loss by y: writes dx if it is wanted, and adds the derivatives by the parameters to
  /// `grads`.
  virtual void backward(const Pass& pass, const T* params, Batch<const T> x, Batch<const T> y, Batch<const T> dy,
                        const T* saved, Batch<T> dx, T* grads) const = 0;
};

namespace abi {

template <class F>
void guarded(Outcome* outcome, F f) noexcept {
  const auto say = [&](End end, const char* words) {
    outcome->end = end;
    std::strncpy(outcome->words, words, sizeof(outcome->words) - 1);
    outcome->words[sizeof(outcome->words) - 1] = 0;
  };
  try {
    f();
    outcome->end = End::good;
  } catch (const Aborted&) {
    outcome->end = End::aborted;
  } catch (const std::invalid_argument& error) {
    say(End::invalid_argument, error.what());
  } catch (const std::exception& error) {
    say(End::error, error.what());
  } catch (...) {
    say(End::error, "an exception that is no std::exception");
  }
}

/// The layer as pdnn takes it.
template <class T>
Layer* wrap(std::unique_ptr<custom::Layer<T>> layer) {
  using Self = const custom::Layer<T>;
  static constexpr auto batch = []<class E>(E* data, const Call& call, const Index* sample, Index axes) {
    return Batch<E>{data, call.rows, {sample, static_cast<std::size_t>(axes)}};
  };
  auto wrapped = std::make_unique<Layer>();
  wrapped->version = kVersion;
  wrapped->element_bytes = sizeof(T);
  wrapped->destroy = [](Layer* whole) {
    delete static_cast<custom::Layer<T>*>(whole->self);
    delete whole;
  };
  wrapped->parameters = [](const void* self, void* list, auto add, Outcome* outcome) {
    guarded(outcome, [&] {
      for (const Parameter& each : static_cast<Self*>(self)->parameters())
        add(list, each.name.c_str(), each.shape.data(), std::ssize(each.shape));
    });
  };
  wrapped->output_shape = [](const void* self, const Index* in, Index axes, void* list, auto add, Outcome* outcome) {
    guarded(outcome, [&] {
      for (const Index extent : static_cast<Self*>(self)->output_shape({in, in + axes})) add(list, extent);
    });
  };
  wrapped->saved = [](const void* self, const Index* in, Index axes, Index* elements, Outcome* outcome) {
    guarded(outcome, [&] { *elements = static_cast<Self*>(self)->saved({in, in + axes}); });
  };
  wrapped->initialize = [](const void* self, std::uint64_t seed, void* params, Outcome* outcome) {
    guarded(outcome, [&] { static_cast<Self*>(self)->initialize(seed, static_cast<T*>(params)); });
  };
  wrapped->forward = [](const void* self, const Call* call, Outcome* outcome) {
    guarded(outcome, [&] {
      static_cast<Self*>(self)->forward(Pass(*call), static_cast<const T*>(call->params),
                                        batch(static_cast<const T*>(call->x), *call, call->in, call->in_axes),
                                        batch(static_cast<T*>(call->y), *call, call->out, call->out_axes),
                                        static_cast<T*>(call->saved));
    });
  };
  wrapped->backward = [](const void* self, const Call* call, Outcome* outcome) {
    guarded(outcome, [&] {
      static_cast<Self*>(self)->backward(
          Pass(*call), static_cast<const T*>(call->params),
          batch(static_cast<const T*>(call->x), *call, call->in, call->in_axes),
          batch(static_cast<const T*>(call->y), *call, call->out, call->out_axes),
          batch(static_cast<const T*>(call->dy), *call, call->out, call->out_axes), static_cast<const T*>(call->saved),
          batch(static_cast<T*>(call->dx), *call, call->in, call->in_axes), static_cast<T*>(call->grads));
    });
  };
  wrapped->self = layer.release();
  return wrapped.release();
}

}  // namespace abi

}  // namespace custom

}  // namespace pdnn
