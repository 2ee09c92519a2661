#include "pdnn/library/strategy_spec.hpp"

#include <charconv>
#include <cmath>

#include "pdnn/codec/make_codec.hpp"

namespace pdnn::library {

namespace {

using namespace strategy;
using codec::Spec;
using reduce::Compression;

constexpr Index kPieces = 8;         // of a pool's batch
constexpr Index kMeasureEvery = 16;  // encodings of gradients of which one tells its error

/// The words of a string, taken from its front.
class Words {
 public:
  explicit Words(std::string_view text) : left_(text) {}

  bool empty() const { return left_.empty(); }
  std::string_view rest() const { return left_; }
  bool take(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  /// A whole number from 1.
  bool take(Index& number) { return take_number(number) && number >= 1 && number < Index{1} << 31U; }
  bool take(int& number) { return take_number(number) && number >= 1; }
  bool take(double& number) { return take_number(number); }

 private:
  template <class Number>
  bool take_number(Number& number) {
    if (left_.empty() || std::string_view("0123456789.").find(left_[0]) == std::string_view::npos) return false;
    const auto found = std::from_chars(left_.data(), left_.data() + left_.size(), number);
    left_.remove_prefix(static_cast<std::size_t>(found.ptr - left_.data()));
    return found.ec == std::errc();
  }
  std::string_view left_;
};

struct SpelledEngine {
  EngineConfig config{};
  int threads = 1;
  Index leaves = 0;
  bool pool = false;
};

/// "/8" behind an engine or "ddp"; false if something else is there.
bool take_leaves(Words& words, Index& leaves) { return !words.take("/") || words.take(leaves); }

class Parser {
 public:
  Parser(const std::string& spec, int ranks) : spec_(spec), ranks_(ranks) {}

  SpelledStrategy parse() const {
    std::string_view text = trimmed(spec_);
    std::vector<std::string_view> factors;
    for (std::size_t at = text.find(" x "); at != std::string_view::npos; at = text.find(" x ")) {
      factors.push_back(trimmed(text.substr(0, at)));
      text = trimmed(text.substr(at + 3));
    }
    const std::size_t plus = text.find('+');
    SpelledEngine engine;
    const bool named = plus != std::string_view::npos;
    if (named) {
      engine = engine_of(trimmed(text.substr(plus + 1)));
      text = trimmed(text.substr(0, plus));
    }
    factors.push_back(trimmed(text));
    if (factors.size() > 1 || text.starts_with("pipeline:") || text.starts_with("tp:")) return grid(factors, engine);
    if (text.starts_with("ddp")) return data_parallel(text, engine, named);
    if (text.starts_with("average:")) return averaging(text, engine);
    if (text.starts_with("elastic-average:")) return elastic(text, engine);
    if (named) fail();
    if (text.starts_with("hogwild")) return hogwild(text);
    if (text.starts_with("scatter-gather")) return scatter_gather(text);
    return alone(engine_of(text));
  }

 private:
  [[noreturn]] void fail() const {
    throw ValueError(
        message("strategy \"", spec_,
                "\"; expected one of \"serial\", \"team:2\", \"pool:5/25\", \"ddp\", \"ddp+team:2\", \"ddp:int8\", "
                "\"average:8\", \"elastic-average:10\", \"hogwild:4\", \"hogwild-processes:4\", \"scatter-gather\", "
                "\"pipeline:2/8\", \"tp:2\", and products like \"pipeline:2 x tp:2 x ddp+team:2\""));
  }
  void need(bool understood) const {
    if (!understood) fail();
  }
  template <class... Why>
  void fit(bool fits, const Why&... why) const {
    require(fits, "strategy \"", spec_, "\" ", why...);
  }

  static std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
  }

  SpelledEngine engine_of(std::string_view text) const {
    Words words(text);
    SpelledEngine engine;
    if (words.take("serial")) {
      need(take_leaves(words, engine.leaves));
    } else if (words.take("team:")) {
      need(words.take(engine.threads) && take_leaves(words, engine.leaves));
    } else {
      need(words.take("pool:") && words.take(engine.threads));
      engine.leaves = kPieces;
      need(take_leaves(words, engine.leaves));
      engine.pool = true;
      engine.config = PoolConfig{engine.threads, engine.leaves};
    }
    need(words.empty());
    if (!engine.pool) engine.config = TeamConfig{engine.threads};
    return engine;
  }

  /// The codec that the rest spells, behind a colon.
  Spec codec_of(Words& words) const {
    if (words.empty()) return {};
    need(words.take(":"));
    const Spec spec{std::string(words.rest())};
    codec::make_codec<float>(spec, 0);  // refuses what is none
    return spec;
  }

  SpelledStrategy alone(const SpelledEngine& engine) const {
    fit(ranks_ == 1, "is for one process, this world has ", ranks_, " ranks; \"ddp+", trimmed(spec_), "\" fits");
    return {.config = DataParallelConfig{.engine = engine.config, .leaves = engine.leaves}, .threads = engine.threads};
  }

  DataParallelConfig read_data_parallel(std::string_view text) const {
    Words words(text);
    DataParallelConfig config;
    need(words.take("ddp") && take_leaves(words, config.leaves));
    config.sum_of_means = words.take(":sum");
    if (const Spec spec = codec_of(words); !spec.empty())
      config.reducer.compression = Compression{.codec = spec, .feedback = {}, .measure_every = kMeasureEvery};
    const bool apart = config.sum_of_means || config.reducer.compression;
    fit(!apart || config.leaves == 0, "does not take part in reproducible sums; leave the leaves out");
    return config;
  }

  SpelledStrategy data_parallel(std::string_view text, const SpelledEngine& engine, bool named) const {
    DataParallelConfig config = read_data_parallel(text);
    const bool apart = config.sum_of_means || config.reducer.compression;
    need(!named || config.leaves == 0);
    fit(!apart || engine.pool || engine.leaves == 0, "does not take part in reproducible sums; leave the leaves out");
    if (!apart && engine.leaves > 0) config.leaves = engine.leaves;
    fit(config.leaves == 0 || config.leaves >= ranks_, "cuts a batch into ", config.leaves, " leaves, this world has ",
        ranks_, " ranks");
    config.engine = engine.config;
    return {.config = config, .threads = engine.threads};
  }

  void refuse_leaves(const SpelledEngine& engine) const {
    fit(engine.pool || engine.leaves == 0,
        "does not take part in reproducible sums: each rank trains a model of its own");
  }

  SpelledStrategy averaging(std::string_view text, const SpelledEngine& engine) const {
    refuse_leaves(engine);
    Words words(text);
    ModelAveragingConfig config{.engine = engine.config};
    need(words.take("average:") && (words.take("end") || words.take(config.every)));
    config.by_master = words.take(":master");
    const bool own_init = words.take(":own-init");
    if (const Spec spec = codec_of(words); !spec.empty()) {
      fit(!config.by_master && !own_init, "has a codec, which is of sums that all ranks make from the same model");
      config.compression = Compression{.codec = spec, .feedback = {}, .measure_every = 1};
    }
    return {.config = config,
            .threads = engine.threads,
            .models_apart = true,
            .same_init = !own_init,
            .same_updates = false};
  }

  SpelledStrategy elastic(std::string_view text, const SpelledEngine& engine) const {
    refuse_leaves(engine);
    Words words(text);
    ElasticAveragingConfig config{.engine = engine.config};
    need(words.take("elastic-average:") && words.take(config.every));
    need(words.empty() || (words.take(":") && words.take(config.moving_rate) && words.empty()));
    fit(config.moving_rate > 0 && config.moving_rate <= 1, "has a moving rate outside (0, 1]");
    return {.config = config, .threads = engine.threads, .models_apart = true, .same_updates = false};
  }

  SpelledStrategy hogwild(std::string_view text) const {
    Words words(text);
    need(words.take("hogwild"));
    const bool processes = words.take("-processes");
    int workers = 0;
    need(words.take(":") && words.take(workers) && words.empty());
    fit(ranks_ == (processes ? workers : 1), "is for ", processes ? workers : 1, " ranks, this world has ", ranks_);
    const int threads = processes ? 1 : workers;
    return {.config = HogwildConfig{threads}, .threads = threads, .same_updates = false};
  }

  SpelledStrategy scatter_gather(std::string_view text) const {
    Words words(text);
    need(words.take("scatter-gather"));
    const bool once = words.take(":once");
    need(words.empty());
    return {.config = ScatterGatherConfig{.engine = {}, .once = once}, .whole_batch = once};
  }

  void read_pipeline(Words& words, GridConfig& config, bool& counted) const {
    need(words.take(config.stages));
    config.pipeline.micro_batches = Index{4} * config.stages;
    counted = words.take("/");
    need(!counted || words.take(config.pipeline.micro_batches));
    for (const char* const schedule : {"1f1b", "gpipe", "interleaved"})
      if (words.take(std::string(":") + schedule)) {
        config.pipeline.schedule = schedule;
        break;
      }
    config.chunks = config.pipeline.schedule == "interleaved" ? 2 : 1;
    config.pipeline.codec = codec_of(words);
    fit(!codec::wants_matrices(config.pipeline.codec), "has a codec for sums, and activations are not added up");
  }

  SpelledStrategy grid(const std::vector<std::string_view>& factors, const SpelledEngine& engine) const {
    GridConfig config;
    bool pipeline = false, tensor = false, data = false, counted = false;
    for (const std::string_view factor : factors) {
      Words words(factor);
      if (words.take("pipeline:")) {
        need(!std::exchange(pipeline, true));
        read_pipeline(words, config, counted);
      } else if (words.take("tp:")) {
        need(!std::exchange(tensor, true) && words.take(config.tensor) && words.empty());
      } else {
        need(!std::exchange(data, true));
        const DataParallelConfig replicas = read_data_parallel(factor);
        config.sum_of_means = replicas.sum_of_means;
        config.reducer = replicas.reducer;
        config.leaves = replicas.leaves;
      }
    }
    need(!engine.pool && engine.leaves == 0);
    const bool reproducible = pipeline && !tensor && !counted && config.pipeline.codec.empty();
    fit(config.leaves == 0 || reproducible, "does not take part in reproducible sums; leave the leaves out");
    const Index held_by = Index{config.stages} * config.tensor, replicas = ranks_ / held_by;
    fit(data ? ranks_ % held_by == 0 : ranks_ == held_by, "deals the network out to ", held_by,
        " ranks, this world has ", ranks_);
    fit(config.leaves == 0 || config.leaves >= replicas, "cuts a batch into ", config.leaves, " leaves for ", replicas,
        " replicas");
    config.pipeline.threads = engine.threads;
    return {.config = config, .threads = engine.threads};
  }

  const std::string& spec_;
  int ranks_;
};

}  // namespace

SpelledStrategy spelled_strategy(const std::string& spec, int ranks) { return Parser(spec, ranks).parse(); }

}  // namespace pdnn::library
