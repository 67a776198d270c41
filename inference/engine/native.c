/* The engine's kernels for float32 on a CPU. `native.py` compiles this file for the machine that it runs on, and says what each one does.

   A product with fixed weights decides the speed of a model. Weights are packed in panels of as many outputs as one tile sums up in
   registers; a panel is read once from memory and stays in the second-level cache for all rows, and while the first tiles use it, the next
   one is fetched. So few rows cost what reading the weights costs. Every output is summed in the order of its inputs, whatever the number
   of rows: a row's result does not depend on its company. */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
enum { LANES = 16, PANEL = 3, ROWS = 8 }; /* 24 of 32 registers hold sums */
#else
enum { LANES = 8, PANEL = 2, ROWS = 6 }; /* 12 of 16 */
#endif
enum { COLUMNS = LANES * PANEL, LINE = 64, L2_SHARE = 768 * 1024, BLOCK = 64 };

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

int64_t panel_columns(void) { return COLUMNS; }
int64_t threads(void) { return omp_get_max_threads(); }
int64_t vector_lanes(void) { return LANES; }

/* ---- products */

void pack(const float *weight, float *packed, int64_t outputs, int64_t inputs) {
    int64_t panels = (outputs + COLUMNS - 1) / COLUMNS;
    #pragma omp parallel for
    for (int64_t p = 0; p < panels; p++)
        for (int64_t k = 0; k < inputs; k++)
            for (int64_t c = 0; c < COLUMNS; c++) {
                int64_t n = p * COLUMNS + c;
                packed[(p * inputs + k) * COLUMNS + c] = n < outputs ? weight[n * inputs + k] : 0;
            }
}

/* Where one tile's outputs go, and what is added to them; the pointers may be null. */
typedef struct {
    float *y;
    const float *bias, *add;
    int64_t stride, add_stride, columns;
} Sink;

INLINE void store(lanes (*sums)[PANEL], Sink to, const int rows) {
    if (to.columns == COLUMNS) {
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int c = 0; c < PANEL; c++) {
                lanes sum = sums[r][c];
                if (to.bias) sum += *(const loose *)(to.bias + c * LANES);
                if (to.add) sum += *(const loose *)(to.add + r * to.add_stride + c * LANES);
                *(loose *)(to.y + r * to.stride + c * LANES) = sum;
            }
        return;
    }
    for (int r = 0; r < rows; r++)
        for (int64_t n = 0; n < to.columns; n++) {
            float sum = sums[r][n / LANES][n % LANES];
            if (to.bias) sum += to.bias[n];
            if (to.add) sum += to.add[r * to.add_stride + n];
            to.y[r * to.stride + n] = sum;
        }
}

/* `rows` rows of x times one panel; per input, `lines` lines of `next` are fetched. */
INLINE void tile(const float *x, int64_t x_stride, const float *panel, int64_t inputs, const char *next, Sink to, const int rows, const int lines) {
    lanes sums[ROWS][PANEL];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int c = 0; c < PANEL; c++) sums[r][c] = (lanes){0};
    for (int64_t k = 0; k < inputs; k++, panel += COLUMNS) {
        lanes part[PANEL];
        UNROLL for (int c = 0; c < PANEL; c++) part[c] = *(const lanes *)(panel + c * LANES);
        UNROLL for (int l = 0; l < lines; l++, next += LINE) __builtin_prefetch(next, 0, 2);
        UNROLL for (int r = 0; r < rows; r++) {
            float one = x[r * x_stride + k];
            UNROLL for (int c = 0; c < PANEL; c++) sums[r][c] += one * part[c];
        }
    }
    store(sums, to, rows);
}

void linear(const float *x, int64_t x_stride, const float *packed, const float *bias, const float *add, int64_t add_stride, float *y,
            int64_t rows, int64_t outputs, int64_t inputs) {
    enum { LINES = COLUMNS * 4 / LINE }; /* of a panel, per input */
    if (rows == 0) return;
    int64_t panels = (outputs + COLUMNS - 1) / COLUMNS, tiles = (rows + ROWS - 1) / ROWS;
    int64_t together = L2_SHARE / (4 * inputs * ROWS) + 1; /* tiles whose part of x stays in the second-level cache */
    int few = tiles >= LINES ? 1 : (LINES + tiles - 1) / tiles;
    #pragma omp parallel
    for (int64_t first = 0; first < tiles; first += together) {
        int64_t last = first + together < tiles ? first + together : tiles;
        #pragma omp for schedule(static) nowait
        for (int64_t p = 0; p < panels; p++) {
            const float *panel = packed + p * inputs * COLUMNS;
            const char *next = (const char *)(panel + inputs * COLUMNS);
            int64_t n = p * COLUMNS, left = outputs - n;
            for (int64_t t = first; t < last; t++) {
                int64_t r = rows * t / tiles, count = rows * (t + 1) / tiles - r, done = (t - first) * few;
                Sink to = {y + r * outputs + n, bias ? bias + n : 0, add ? add + r * add_stride + n : 0, outputs, add_stride,
                           left < COLUMNS ? left : COLUMNS};
                switch (count * 4 + (done < LINES ? few : 0)) {
#define CASE(m, l) case m * 4 + l: tile(x + r * x_stride, x_stride, panel, inputs, next + done * inputs * LINE, to, m, l); break;
#define CASES(m) CASE(m, 0) CASE(m, 1) CASE(m, 2) CASE(m, 3)
                    CASES(1) CASES(2) CASES(3) CASES(4) CASES(5) CASES(6)
#ifdef __AVX512F__
                    CASES(7) CASES(8)
#endif
                }
            }
        }
    }
}

/* ---- what goes on between products */

INLINE float exp_of(float x) { /* to the last digits; 0 below -87, infinite above 88 */
    float bound = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = rintf(bound * 1.44269504f);
    float r = bound - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    union { int32_t bits; float value; } power = {((int32_t)n + 127) << 23};
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : (p * r * r + r + 1.0f) * power.value;
}

void rms_norm(const float *x, int64_t x_stride, const float *weight, float *y, int64_t rows, int64_t size, float eps) {
    #pragma omp parallel for if (rows >= 16)
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float *out = y + row * size, squares = 0;
        #pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < size; i++) squares += in[i] * in[i];
        float scale = 1.0f / sqrtf(squares / size + eps);
        #pragma omp simd
        for (int64_t i = 0; i < size; i++) out[i] = in[i] * scale * weight[i];
    }
}

void silu_mul(const float *gate_up, float *y, int64_t rows, int64_t size) {
    #pragma omp parallel for if (rows >= 4)
    for (int64_t row = 0; row < rows; row++) {
        const float *gate = gate_up + row * 2 * size, *up = gate + size;
        float *out = y + row * size;
        #pragma omp simd
        for (int64_t i = 0; i < size; i++) out[i] = gate[i] / (1.0f + exp_of(-gate[i])) * up[i];
    }
}

void rotate(float *x, int64_t x_stride, const float *rotation, const int64_t *positions, int64_t tokens, int64_t heads, int64_t dim) {
    #pragma omp parallel for if (tokens >= 8)
    for (int64_t token = 0; token < tokens; token++) {
        const float *turn = rotation + positions[token] * dim;
        for (int64_t head = 0; head < heads; head++) {
            float *pair = x + token * x_stride + head * dim;
            #pragma omp simd
            for (int64_t i = 0; i < dim / 2; i++) {
                float re = pair[2 * i], im = pair[2 * i + 1], cosine = turn[2 * i], sine = turn[2 * i + 1];
                pair[2 * i] = re * cosine - im * sine;
                pair[2 * i + 1] = re * sine + im * cosine;
            }
        }
    }
}

/* ---- attention of decoding rows */

INLINE float sum_of(lanes x) {
    float sum = 0;
    UNROLL for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

/* The queries that share one key/value head. `next` is what is read afterwards. */
INLINE void attend_head(const float *query, const float *keys, const float *values, const float *next, float *out, float *scores, int64_t length,
                        int64_t group, float scale, const int width) {
    const int dim = width * LANES;
    for (int64_t start = 0; start < length; start += BLOCK) {
        int64_t stop = start + BLOCK < length ? start + BLOCK : length;
        for (int64_t t = start; t < stop; t++)
            UNROLL for (int w = 0; w < dim * 4 / LINE; w++) __builtin_prefetch((const char *)(values + t * dim) + w * LINE, 0, 2);
        for (int64_t g = 0; g < group; g++) {
            lanes q[width];
            UNROLL for (int w = 0; w < width; w++) q[w] = *(const loose *)(query + g * dim + w * LANES) * scale;
            for (int64_t t = start; t < stop; t++) {
                lanes sum = q[0] * *(const loose *)(keys + t * dim);
                UNROLL for (int w = 1; w < width; w++) sum += q[w] * *(const loose *)(keys + t * dim + w * LANES);
                scores[g * length + t] = sum_of(sum);
            }
        }
    }
    for (int64_t g = 0; g < group; g++) {
        float *row = scores + g * length, best = row[0], total = 0;
        #pragma omp simd reduction(max : best)
        for (int64_t t = 0; t < length; t++) best = row[t] > best ? row[t] : best;
        #pragma omp simd reduction(+ : total)
        for (int64_t t = 0; t < length; t++) {
            row[t] = exp_of(row[t] - best);
            total += row[t];
        }
        float share = 1.0f / total;
        for (int64_t t = 0; t < length; t++) row[t] *= share;
    }
    memset(out, 0, group * dim * sizeof(float));
    for (int64_t start = 0; start < length; start += BLOCK) {
        int64_t stop = start + BLOCK < length ? start + BLOCK : length;
        for (int64_t t = start; t < stop; t++)
            UNROLL for (int w = 0; w < dim * 4 / LINE; w++) __builtin_prefetch((const char *)(next + t * dim) + w * LINE, 0, 2);
        for (int64_t g = 0; g < group; g++) {
            lanes sums[width];
            UNROLL for (int w = 0; w < width; w++) sums[w] = *(const loose *)(out + g * dim + w * LANES);
            for (int64_t t = start; t < stop; t++)
                UNROLL for (int w = 0; w < width; w++) sums[w] += scores[g * length + t] * *(const loose *)(values + t * dim + w * LANES);
            UNROLL for (int w = 0; w < width; w++) *(loose *)(out + g * dim + w * LANES) = sums[w];
        }
    }
}

void attend_rows(const float *query, int64_t query_stride, const float *fresh, int64_t fresh_stride, float *storage, int64_t plane, const int64_t *lengths, float *out,
                 float *scratch, int64_t rows, int64_t kv_heads, int64_t group, int64_t dim, int64_t capacity, float scale) {
    #pragma omp parallel for schedule(static)
    for (int64_t item = 0; item < rows * kv_heads; item++) {
        int64_t row = item / kv_heads, head = item % kv_heads, length = lengths[row];
        float *keys = storage + item * capacity * dim, *values = keys + plane;
        memcpy(keys + (length - 1) * dim, fresh + row * fresh_stride + head * dim, dim * sizeof(float));
        memcpy(values + (length - 1) * dim, fresh + row * fresh_stride + (kv_heads + head) * dim, dim * sizeof(float));
        const float *queries = query + row * query_stride + head * group * dim, *next = keys + capacity * dim;
        float *to = out + item * group * dim, *scores = scratch + omp_get_thread_num() * group * capacity;
        switch (dim / LANES) {
#define WIDTH(w) case w: attend_head(queries, keys, values, next, to, scores, length, group, scale, w); break;
            WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6) WIDTH(7) WIDTH(8) WIDTH(16)
        }
    }
}
