#pragma once
/* pdnn's C interface: opaque handles, a status from every call that may fail, and no exception that crosses it. A
 * handle that could not be made is NULL. Layers, losses and optimizers are described by JSON, as a model file has them:
 *   {"type": "Linear", "in_features": 784, "out_features": 10}   {"type": "SGD", "lr": 0.1, "momentum": 0.9}
 * Handles may be used by one thread at a time. Arrays are in C order, and are read and written where they lie. */
#include <stddef.h>  // NOLINT(modernize-deprecated-headers): this is C, too
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

#include "pdnn/export.h"

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(modernize-use-using, readability-identifier-naming): this is C
typedef struct pdnn_model pdnn_model;
typedef struct pdnn_trainer pdnn_trainer;

typedef enum pdnn_status {
  PDNN_OK = 0,
  PDNN_INVALID = 1, /* an argument is wrong */
  PDNN_FAILED = 2,  /* a file, a rank, memory, or a loss that is not finite */
} pdnn_status;

typedef enum pdnn_element { PDNN_UINT8 = 0, PDNN_FLOAT32 = 1, PDNN_FLOAT64 = 2, PDNN_INT32 = 3 } pdnn_element;

/* Samples: `rows` of the shape (shape[0], …, shape[rank - 1]), whose values are scale · raw + shift. */
typedef struct pdnn_samples {
  const void* data;
  pdnn_element element; /* not PDNN_INT32 */
  size_t rows;
  size_t rank; /* 1 to 3 */
  size_t shape[3];
  double scale, shift;
} pdnn_samples;

/* Samples with what their outputs should be: `classes` of int32_t, or `values`, `width` a row, of the model's type. */
typedef struct pdnn_data {
  pdnn_samples x;
  const int32_t* classes; /* or NULL */
  const void* values;     /* or NULL */
  size_t width;           /* of values */
  const double* weights;  /* what each row counts in losses; NULL: 1 each */
} pdnn_data;

/* A parameter of a model, where it lies. */
typedef struct pdnn_array {
  const char* name; /* until the model is freed */
  void* data;
  size_t rank, shape[4];
} pdnn_array;

typedef struct pdnn_scores {
  double loss;
  double accuracy; /* NaN where predictions cannot be right or wrong */
} pdnn_scores;

/* What the last call on this thread that did not return PDNN_OK found wrong. */
PDNN_API const char* pdnn_last_error(void);
PDNN_API const char* pdnn_version(void);

/* `architecture`: {"dtype": "float32", "layers": [{"type": "Linear", …}, …]}, also "float64" or "bfloat16". */
PDNN_API pdnn_status pdnn_model_create(const char* architecture, uint64_t seed, pdnn_model** model);
PDNN_API pdnn_status pdnn_model_load(const char* path, pdnn_model** model);
PDNN_API pdnn_status pdnn_model_save(const pdnn_model* model, const char* path);
/* PDNN_FLOAT32 or PDNN_FLOAT64: of parameters and outputs. */
PDNN_API pdnn_status pdnn_model_element(const pdnn_model* model, pdnn_element* element);
/* 64 hexadecimal digits and a final 0: equal if and only if all bits of two models are. */
PDNN_API pdnn_status pdnn_model_fingerprint(const pdnn_model* model, char digits[65]);
/* How many there are, and one of them. */
PDNN_API pdnn_status pdnn_model_parameters(const pdnn_model* model, size_t* count);
PDNN_API pdnn_status pdnn_model_parameter(const pdnn_model* model, size_t index, pdnn_array* array);
/* Elements of one output for such samples. */
PDNN_API pdnn_status pdnn_model_outputs(const pdnn_model* model, const pdnn_samples* x, size_t* outputs);
/* Writes rows · outputs elements of the model's type. */
PDNN_API pdnn_status pdnn_model_predict(const pdnn_model* model, const pdnn_samples* x, void* outputs);
/* NULL is no model; trainers of a model keep what they need of it. */
PDNN_API void pdnn_model_free(pdnn_model* model);

/* `strategy` as Python spells it: "serial", "team:2", "pool:5/25", "hogwild:4", … */
PDNN_API pdnn_status pdnn_trainer_create(const pdnn_model* model, const char* loss, const char* optimizer,
                                         const char* strategy, uint64_t seed, pdnn_trainer** trainer);
/* Called a few times a second and after each epoch, which is then `finished`; 0 ends the training. Between steps the
 * model still has the parameters of the epoch's beginning. */
typedef int (*pdnn_progress)(void* context, size_t epoch, uint64_t steps, const pdnn_scores* training, int finished);
/* Trains; a second call continues where the first ended. `progress` may be NULL. */
PDNN_API pdnn_status pdnn_trainer_fit(pdnn_trainer* trainer, const pdnn_data* data, size_t epochs, size_t batch_size,
                                      pdnn_progress progress, void* context);
PDNN_API pdnn_status pdnn_trainer_evaluate(const pdnn_trainer* trainer, const pdnn_data* data, pdnn_scores* scores);
PDNN_API pdnn_status pdnn_trainer_set_learning_rate(pdnn_trainer* trainer, double rate);
PDNN_API void pdnn_trainer_free(pdnn_trainer* trainer);
// NOLINTEND(modernize-use-using, readability-identifier-naming)

#ifdef __cplusplus
}
#endif
