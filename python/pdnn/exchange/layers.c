/* y = x w + b; w is (inputs, outputs), b may be 0. */
static void linear(const float *x, const float *w, const float *b, int inputs, int outputs, float *y)
{
    for (int j = 0; j < outputs; ++j)
        y[j] = b ? b[j] : 0.0f;
    for (int i = 0; i < inputs; ++i)
        for (int j = 0; j < outputs; ++j)
            y[j] += x[i] * w[i * outputs + j];
}

/* Rows of w, which has so many of this width, for indices in x; NAN for what is none. */
static void embedding(const float *x, const float *w, int places, int count, int width, float *y)
{
    for (int p = 0; p < places; ++p)
        for (int j = 0; j < width; ++j)
            *y++ = x[p] >= 0.0f && x[p] < (float)count && x[p] == floorf(x[p]) ? w[(int)x[p] * width + j]
                                                                                : (float)NAN;
}

/* y, (columns, rows), has the elements of x, (rows, columns). */
static void transpose(const float *x, int rows, int columns, float *y)
{
    for (int j = 0; j < columns; ++j)
        for (int i = 0; i < rows; ++i)
            *y++ = x[i * columns + j];
}

/* Images are (channels, height, width); w is (outputs, channels / groups, kernel, kernel), b may be 0. The numbers of
   windows are those of height and width: kernel, stride s, padding pad, dilation d. */
static void conv2d(const float *x, const float *w, const float *b, int channels, int height, int width,
                   int outputs, int groups, int kernel_y, int kernel_x, int sy, int sx, int pad_y, int pad_x,
                   int dy, int dx, float *y)
{
    const int rows = (height + 2 * pad_y - (kernel_y - 1) * dy - 1) / sy + 1;
    const int columns = (width + 2 * pad_x - (kernel_x - 1) * dx - 1) / sx + 1;
    const int each = channels / groups;
    for (int o = 0; o < outputs; ++o) {
        const float *group = x + o / (outputs / groups) * each * height * width;
        for (int p = 0; p < rows; ++p)
            for (int q = 0; q < columns; ++q) {
                float sum = b ? b[o] : 0.0f;
                for (int c = 0; c < each; ++c)
                    for (int i = 0; i < kernel_y; ++i)
                        for (int j = 0; j < kernel_x; ++j) {
                            const int row = p * sy + i * dy - pad_y;
                            const int column = q * sx + j * dx - pad_x;
                            if (0 <= row && row < height && 0 <= column && column < width)
                                sum += group[(c * height + row) * width + column] *
                                       w[((o * each + c) * kernel_y + i) * kernel_x + j];
                        }
                *y++ = sum;
            }
    }
}

/* The largest element of each window; NAN if it has one. */
static void max_pool2d(const float *x, int channels, int height, int width, int kernel_y, int kernel_x, int sy,
                       int sx, int pad_y, int pad_x, float *y)
{
    const int rows = (height + 2 * pad_y - kernel_y) / sy + 1, columns = (width + 2 * pad_x - kernel_x) / sx + 1;
    for (int c = 0; c < channels; ++c, x += height * width)
        for (int p = 0; p < rows; ++p)
            for (int q = 0; q < columns; ++q) {
                float largest = -INFINITY;
                for (int i = 0; i < kernel_y; ++i)
                    for (int j = 0; j < kernel_x; ++j) {
                        const int row = p * sy + i - pad_y, column = q * sx + j - pad_x;
                        if (0 <= row && row < height && 0 <= column && column < width)
                            if (x[row * width + column] > largest || isnan(x[row * width + column]))
                                largest = x[row * width + column];
                    }
                *y++ = largest;
            }
}

/* The mean of each window, padding counted as zeros. */
static void avg_pool2d(const float *x, int channels, int height, int width, int kernel_y, int kernel_x, int sy,
                       int sx, int pad_y, int pad_x, float *y)
{
    const int rows = (height + 2 * pad_y - kernel_y) / sy + 1, columns = (width + 2 * pad_x - kernel_x) / sx + 1;
    for (int c = 0; c < channels; ++c, x += height * width)
        for (int p = 0; p < rows; ++p)
            for (int q = 0; q < columns; ++q) {
                float sum = 0.0f;
                for (int i = 0; i < kernel_y; ++i)
                    for (int j = 0; j < kernel_x; ++j) {
                        const int row = p * sy + i - pad_y, column = q * sx + j - pad_x;
                        if (0 <= row && row < height && 0 <= column && column < width)
                            sum += x[row * width + column];
                    }
                *y++ = sum / (float)(kernel_y * kernel_x);
            }
}

/* The mean of each channel. */
static void global_avg_pool2d(const float *x, int channels, int pixels, float *y)
{
    for (int c = 0; c < channels; ++c, x += pixels) {
        float sum = 0.0f;
        for (int i = 0; i < pixels; ++i)
            sum += x[i];
        y[c] = sum / (float)pixels;
    }
}

/* y = (x - mean) scale + bias for each channel; features are channels of one pixel. */
static void batch_norm(const float *x, const float *mean, const float *scale, const float *bias, int channels,
                       int pixels, float *y)
{
    for (int c = 0; c < channels; ++c)
        for (int i = c * pixels; i < (c + 1) * pixels; ++i)
            y[i] = (x[i] - mean[c]) * scale[c] + bias[c];
}

/* y = (x - mean) / sqrt(variance + eps) w + b over the n features. */
static void layer_norm(const float *x, const float *w, const float *b, float eps, int n, float *y)
{
    float mean = 0.0f, rest = 0.0f, variance = 0.0f;
    for (int i = 0; i < n; ++i)
        mean += x[i] / (float)n;
    for (int i = 0; i < n; ++i) {
        y[i] = x[i] - mean;
        rest += y[i] / (float)n; /* what rounding has left of the mean */
    }
    for (int i = 0; i < n; ++i) {
        y[i] -= rest;
        variance += y[i] * y[i] / (float)n;
    }
    const float scale = 1.0f / sqrtf(variance + eps);
    for (int i = 0; i < n; ++i)
        y[i] = y[i] * scale * w[i] + b[i];
}

static void relu(const float *x, int n, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] = x[i] <= 0.0f ? 0.0f : x[i]; /* which NAN stays */
}

static void leaky_relu(const float *x, float slope, int n, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] = x[i] > 0.0f ? x[i] : slope * x[i];
}

static void sigmoid(const float *x, int n, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] = 1.0f / (1.0f + expf(-x[i]));
}

static void hyperbolic_tangent(const float *x, int n, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] = tanhf(x[i]);
}

static void elu(const float *x, float alpha, int n, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] = x[i] > 0.0f ? x[i] : alpha * expm1f(x[i]);
}

/* y = log(1 + exp(beta x)) / beta, or x where beta x > threshold. */
static void softplus(const float *x, float beta, float threshold, int n, float *y)
{
    for (int i = 0; i < n; ++i) {
        const float z = beta * x[i], end = z > 0.0f ? z : 0.0f; /* exp(z) may overflow */
        y[i] = z > threshold ? x[i] : (end + log1pf(expf(z - 2.0f * end))) / beta;
    }
}

/* y = x (1 + erf(x / sqrt(2))) / 2. */
static void gelu(const float *x, int n, float *y)
{
    for (int i = 0; i < n; ++i) {
        const float factor = x[i] < -1000.0f ? -1000.0f : x[i]; /* -infinity times 0 would be NaN */
        y[i] = 0.5f * factor * erfcf(x[i] * -0.70710678118654752f);
    }
}

static void silu(const float *x, int n, float *y)
{
    for (int i = 0; i < n; ++i) {
        const float above = x[i] < -1000.0f ? -1000.0f : x[i]; /* -infinity / infinity would be NaN */
        y[i] = above / (1.0f + expf(-x[i]));
    }
}

/* y = exp(x) / sum exp(x). */
static void softmax(const float *x, int n, float *y)
{
    float largest = x[0], sum = 0.0f;
    for (int i = 1; i < n; ++i)
        if (x[i] > largest)
            largest = x[i];
    for (int i = 0; i < n; ++i)
        sum += y[i] = expf(x[i] - largest);
    for (int i = 0; i < n; ++i)
        y[i] /= sum;
}

/* y = x - log sum exp(x). */
static void log_softmax(const float *x, int n, float *y)
{
    float largest = x[0], sum = 0.0f;
    for (int i = 1; i < n; ++i)
        if (x[i] > largest)
            largest = x[i];
    for (int i = 0; i < n; ++i)
        sum += expf(x[i] - largest);
    for (int i = 0; i < n; ++i)
        y[i] = x[i] - largest - logf(sum);
}

/* z = x + y. */
static void add(const float *x, const float *y, int n, float *z)
{
    for (int i = 0; i < n; ++i)
        z[i] = x[i] + y[i];
}

static void copy(const float *x, int n, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] = x[i];
}
