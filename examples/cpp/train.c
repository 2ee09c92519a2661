/* Learns the product of two signs from C: classes of points in a square, which no line divides. */
#include <pdnn/pdnn.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 400 };

static void check(pdnn_status status) {
  if (status == PDNN_OK) return;
  fprintf(stderr, "%s\n", pdnn_last_error());
  exit(1);
}

static int tell(void* context, size_t epoch, uint64_t steps, const pdnn_scores* training, int finished) {
  (void)context;
  if (finished && epoch % 10 == 9) printf("step %d: loss %.4f\n", (int)steps, training->loss);
  return 1; /* go on */
}

int main(int count, char** words) {
  static float x[ROWS][2];
  static int32_t classes[ROWS];
  for (int row = 0; row < ROWS; ++row) {
    x[row][0] = (float)(row % 20) / 10.0F - 0.95F;
    x[row][1] = (float)(row / 20) / 10.0F - 0.95F;
    classes[row] = x[row][0] * x[row][1] > 0;
  }
  const pdnn_samples samples = {x, PDNN_FLOAT32, ROWS, 1, {2}, 1, 0};
  const pdnn_data data = {samples, classes, NULL, 0, NULL};

  pdnn_model* model;
  check(
      pdnn_model_create("{\"dtype\": \"float32\", \"layers\": ["
                        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 16}, {\"type\": \"Tanh\"},"
                        "{\"type\": \"Linear\", \"in_features\": 16, \"out_features\": 2}]}",
                        7, &model));
  pdnn_trainer* trainer;
  check(pdnn_trainer_create(model, "{\"type\": \"CrossEntropyLoss\"}", "{\"type\": \"Adam\", \"lr\": 0.02}",
                            count > 1 ? words[1] : "serial", 7, &trainer));
  check(pdnn_trainer_fit(trainer, &data, 30, 20, tell, NULL));

  pdnn_scores scores;
  check(pdnn_trainer_evaluate(trainer, &data, &scores));
  char fingerprint[65];
  check(pdnn_model_fingerprint(model, fingerprint));
  printf("accuracy %.3f, fingerprint %s\n", scores.accuracy, fingerprint);

  static float outputs[ROWS][2];
  check(pdnn_model_predict(model, &samples, outputs));
  int right = 0;
  for (int row = 0; row < ROWS; ++row) right += (outputs[row][1] > outputs[row][0]) == classes[row];
  printf("%d of %d right\n", right, (int)ROWS);
  check(pdnn_model_save(model, "signs.safetensors"));
  pdnn_trainer_free(trainer);
  pdnn_model_free(model);
}
