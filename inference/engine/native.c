/* The engine's kernels for float32 on a CPU. `native.py` compiles this file for the machine that it runs on, and says what each one does.

   A product with fixed weights decides the speed of a model. Weights are packed in panels of as many outputs as one tile sums up in
   registers; a panel is read once from memory and stays in the second-level cache for all rows, and while the first tiles use it, the next
   one is fetched. So few rows cost what reading the weights costs. Every output is summed in the order of its inputs, whatever the number
   of rows: up to TILES_FROM rows, a row's result does not depend on its company. */

#ifdef __AMX_BF16__
#include <immintrin.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
enum { LANES = 16, PANEL = 3, ROWS = 8 }; /* 24 of 32 registers hold sums */
#else
enum { LANES = 8, PANEL = 2, ROWS = 6 }; /* 12 of 16 */
#endif
enum { COLUMNS = LANES * PANEL, LINE = 64, L2_SHARE = 768 * 1024, BLOCK = 64, TILES_FROM = 192 };

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

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

static void linear_rows(const float *x, int64_t x_stride, const float *packed, const float *bias, const float *add, int64_t add_stride,
                        float *y, int64_t rows, int64_t outputs, int64_t inputs) {
    enum { LINES = COLUMNS * 4 / LINE }; /* of a panel, per input */
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

/* ---- products of many rows on a processor that has tiles (AMX): twice the operations of its vectors, in float32's precision */

#ifdef __AMX_BF16__
enum { TILE = 16, DEPTH = 32, PARTS = 3, TILE_BYTES = 1024, A_BYTES = 1300 * 1024, MOST_INPUTS = 640 };
typedef uint16_t half;

static int tiles_allowed;
int64_t use_tiles(void) { return tiles_allowed = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* the tiles' data */) == 0; }

/* A float as three bfloat16 whose sum it is: its upper half, that of what this leaves, and that of what is left then. */
INLINE void split(__m512 x, __m512i *parts) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    UNROLL for (int i = 0; i < PARTS; i++) {
        parts[i] = _mm512_and_si512(_mm512_castps_si512(x), upper);
        x = _mm512_sub_ps(x, _mm512_castsi512_ps(parts[i]));
    }
}

/* 16 rows of x, those beyond the last as zeros: [inputs / 32][part][16 rows][32 inputs] */
static void split_rows(const float *x, int64_t stride, int64_t rows, int64_t inputs, half *to) {
    for (int64_t d = 0; d < (inputs + DEPTH - 1) / DEPTH; d++)
        for (int64_t r = 0; r < TILE; r++)
            for (int64_t k = d * DEPTH; k < (d + 1) * DEPTH; k += LANES) {
                int64_t left = inputs - k;
                __mmask16 mask = r >= rows || left <= 0 ? 0 : left >= LANES ? 0xffff : (1u << left) - 1;
                __m512i parts[PARTS];
                split(_mm512_maskz_loadu_ps(mask, x + r * stride + k), parts);
                UNROLL for (int i = 0; i < PARTS; i++)
                    _mm256_storeu_si256((__m256i *)(to + ((d * PARTS + i) * TILE + r) * DEPTH + k % DEPTH),
                                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(parts[i], 16)));
            }
}

/* 16 outputs of a panel: [inputs / 32][part][2, of which this is one][16 pairs of inputs][16 outputs][2] */
static void split_columns(const float *column, int64_t inputs, half *to) {
    for (int64_t pair = 0; pair < (inputs + DEPTH - 1) / DEPTH * TILE; pair++) {
        const float *at = column + pair * 2 * COLUMNS;
        __m512i even[PARTS], odd[PARTS];
        split(pair * 2 < inputs ? _mm512_loadu_ps(at) : _mm512_setzero_ps(), even);
        split(pair * 2 + 1 < inputs ? _mm512_loadu_ps(at + COLUMNS) : _mm512_setzero_ps(), odd);
        UNROLL for (int i = 0; i < PARTS; i++)
            _mm512_storeu_si512(to + ((pair / TILE * PARTS + i) * 2 * TILE + pair % TILE) * DEPTH,
                                _mm512_or_si512(odd[i], _mm512_srli_epi32(even[i], 16)));
    }
}

#define ROWS_PART(i) _tile_loadd(4, a0 + (i) * TILE_BYTES, LINE); _tile_loadd(5, a1 + (i) * TILE_BYTES, LINE);
#define COLUMNS_PART(j) _tile_loadd(6, b + (j) * 2 * TILE_BYTES, LINE); _tile_loadd(7, b + ((j) * 2 + 1) * TILE_BYTES, LINE);
#define PRODUCTS _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
#define FETCH(from, tiles) UNROLL for (int l = 0; l < (tiles) * TILE; l++) _mm_prefetch((from) + l * LINE, _MM_HINT_T0);

/* 32 rows times 32 outputs. Of the nine products of parts, the three smallest are below the last digit. */
INLINE void multiply(const char *a0, const char *a1, const char *b, int64_t depths, float sums[2][2][TILE][TILE]) {
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int64_t d = 0; d < depths; d++) {
        const char *next0 = a0 + PARTS * TILE_BYTES, *next1 = a1 + PARTS * TILE_BYTES, *next = b + PARTS * 2 * TILE_BYTES;
        ROWS_PART(0) COLUMNS_PART(2) PRODUCTS FETCH(next0, 1) FETCH(next1, 1)
        COLUMNS_PART(1) PRODUCTS FETCH(next + 4 * TILE_BYTES, 2)
        COLUMNS_PART(0) PRODUCTS FETCH(next + 2 * TILE_BYTES, 2)
        ROWS_PART(1) PRODUCTS FETCH(next, 2)
        COLUMNS_PART(1) PRODUCTS FETCH(next0 + TILE_BYTES, 1) FETCH(next1 + TILE_BYTES, 1)
        ROWS_PART(2) COLUMNS_PART(0) PRODUCTS FETCH(next0 + 2 * TILE_BYTES, 1) FETCH(next1 + 2 * TILE_BYTES, 1)
        a0 = next0, a1 = next1, b = next;
    }
    _tile_stored(0, sums[0][0], LINE); _tile_stored(1, sums[0][1], LINE); _tile_stored(2, sums[1][0], LINE); _tile_stored(3, sums[1][1], LINE);
}

static void store_tile(float sums[TILE][TILE], int64_t rows, Sink to) {
    __mmask16 mask = to.columns >= TILE ? 0xffff : (1u << to.columns) - 1;
    for (int64_t r = 0; r < rows; r++) {
        __m512 sum = _mm512_loadu_ps(sums[r]);
        if (to.bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to.bias));
        if (to.add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, to.add + r * to.add_stride));
        _mm512_mask_storeu_ps(to.y + r * to.stride, mask, sum);
    }
}

/* `panel` is the first one's part for these inputs, `panel_size` how far the next one is. */
static void linear_part(const float *x, int64_t x_stride, const float *panel, int64_t panel_size, const float *bias, const float *add,
                        int64_t add_stride, float *y, int64_t rows, int64_t outputs, int64_t inputs) {
    int64_t row_tiles = (rows + 2 * TILE - 1) / (2 * TILE) * 2, depths = (inputs + DEPTH - 1) / DEPTH;
    int64_t a_size = depths * PARTS * TILE_BYTES, b_size = 2 * a_size;
    int64_t together = A_BYTES / a_size / 2 * 2; /* tiles of rows that stay in the second-level cache */
    char *a = aligned_alloc(LINE, row_tiles * a_size), *b = aligned_alloc(LINE, omp_get_max_threads() * b_size);
    #pragma omp parallel
    {
        struct { uint8_t palette, start, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } config = {.palette = 1};
        for (int t = 0; t < 8; t++) config.bytes[t] = LINE, config.rows[t] = TILE;
        _tile_loadconfig(&config);
        char *own = b + omp_get_thread_num() * b_size;
        float sums[2][2][TILE][TILE] __attribute__((aligned(LINE)));
        #pragma omp for schedule(static)
        for (int64_t t = 0; t < row_tiles; t++) split_rows(x + t * TILE * x_stride, x_stride, rows - t * TILE, inputs, (half *)(a + t * a_size));
        for (int64_t first = 0; first < row_tiles; first += together) {
            int64_t last = first + together < row_tiles ? first + together : row_tiles;
            #pragma omp for schedule(static) nowait
            for (int64_t n = 0; n < outputs; n += 2 * TILE) {
                for (int64_t j = 0; j < 2 && n + j * TILE < outputs; j++) {
                    int64_t column = n + j * TILE;
                    split_columns(panel + column / COLUMNS * panel_size + column % COLUMNS, inputs, (half *)(own + j * TILE_BYTES));
                }
                for (int64_t t = first; t < last; t += 2) {
                    multiply(a + t * a_size, a + (t + 1) * a_size, own, depths, sums);
                    for (int64_t i = 0; i < 2; i++)
                        for (int64_t j = 0; j < 2 && n + j * TILE < outputs; j++) {
                            int64_t r = (t + i) * TILE, column = n + j * TILE;
                            Sink to = {y + r * outputs + column, bias ? bias + column : 0, add ? add + r * add_stride + column : 0, outputs,
                                       add_stride, outputs - column};
                            store_tile(sums[i][j], rows - r < TILE ? rows - r : TILE, to);
                        }
                }
            }
        }
        _tile_release();
    }
    free(a);
    free(b);
}

/* As many inputs at a time as leave room in the cache for many rows. */
static void linear_tiles(const float *x, int64_t x_stride, const float *packed, const float *bias, const float *add, int64_t add_stride,
                         float *y, int64_t rows, int64_t outputs, int64_t inputs) {
    int64_t parts = (inputs + MOST_INPUTS - 1) / MOST_INPUTS, size = (inputs + parts * DEPTH - 1) / (parts * DEPTH) * DEPTH;
    for (int64_t k = 0; k < inputs; k += size)
        linear_part(x + k, x_stride, packed + k * COLUMNS, inputs * COLUMNS, k ? 0 : bias, k ? y : add, k ? outputs : add_stride, y, rows, outputs,
                    inputs - k < size ? inputs - k : size);
}
#else
static const int tiles_allowed = 0;
int64_t use_tiles(void) { return 0; }
#define linear_tiles linear_rows
#endif

void linear(const float *x, int64_t x_stride, const float *packed, const float *bias, const float *add, int64_t add_stride, float *y,
            int64_t rows, int64_t outputs, int64_t inputs) {
    if (rows == 0) return;
    (tiles_allowed && rows >= TILES_FROM ? linear_tiles : linear_rows)(x, x_stride, packed, bias, add, add_stride, y, rows, outputs, inputs);
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

/* Keys and values of one layer in pages, [2, pages, page, kv_heads, dim]; `values` is how far they are from the keys. */
typedef struct {
    float *pool;
    int64_t values, page, kv_heads, dim;
} Pages;

INLINE float *page_of(Pages pages, int64_t number, int64_t head) {
    return pages.pool + (number * pages.page * pages.kv_heads + head) * pages.dim;
}

/* The queries that share one key/value head. The `next_count` pages of `next` are what is read afterwards. */
INLINE void attend_head(const float *query, Pages pages, const int32_t *table, int64_t head, int64_t length, const int32_t *next,
                        int64_t next_head, int64_t next_count, float *out, float *scores, int64_t group, float scale, const int width) {
    enum { NUMBERS = LINE / 4 }; /* of a line */
    const int dim = width * LANES;
    int64_t step = pages.kv_heads * dim, count = (length + pages.page - 1) / pages.page;
    for (int64_t p = 0; p < count; p++) {
        const float *keys = page_of(pages, table[p], head);
        int64_t first = p * pages.page, tokens = length - first < pages.page ? length - first : pages.page;
        for (int64_t t = 0; t < tokens; t++)
            UNROLL for (int i = 0; i < dim; i += NUMBERS) __builtin_prefetch(keys + pages.values + t * step + i, 0, 2);
        for (int64_t g = 0; g < group; g++) {
            lanes q[width];
            UNROLL for (int w = 0; w < width; w++) q[w] = *(const loose *)(query + g * dim + w * LANES) * scale;
            for (int64_t t = 0; t < tokens; t++) {
                lanes sum = q[0] * *(const loose *)(keys + t * step);
                UNROLL for (int w = 1; w < width; w++) sum += q[w] * *(const loose *)(keys + t * step + w * LANES);
                scores[g * length + first + t] = sum_of(sum);
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
    for (int64_t p = 0; p < count; p++) {
        const float *values = page_of(pages, table[p], head) + pages.values;
        int64_t first = p * pages.page, tokens = length - first < pages.page ? length - first : pages.page;
        if (p < next_count)
            for (int64_t t = 0; t < pages.page; t++)
                UNROLL for (int i = 0; i < dim; i += NUMBERS) __builtin_prefetch(page_of(pages, next[p], next_head) + t * step + i, 0, 2);
        for (int64_t g = 0; g < group; g++) {
            lanes sums[width];
            UNROLL for (int w = 0; w < width; w++) sums[w] = *(const loose *)(out + g * dim + w * LANES);
            for (int64_t t = 0; t < tokens; t++)
                UNROLL for (int w = 0; w < width; w++) sums[w] += scores[g * length + first + t] * *(const loose *)(values + t * step + w * LANES);
            UNROLL for (int w = 0; w < width; w++) *(loose *)(out + g * dim + w * LANES) = sums[w];
        }
    }
}

static void attend(const float *query, int64_t query_stride, const float *fresh, int64_t fresh_stride, Pages pages, const int32_t *table,
                   int64_t table_width, const int64_t *lengths, float *out, float *scratch, int64_t scratch_size, int64_t rows, int64_t group,
                   float scale) {
    int64_t items = rows * pages.kv_heads, dim = pages.dim;
    #pragma omp parallel for schedule(static)
    for (int64_t item = 0; item < items; item++) {
        int64_t row = item / pages.kv_heads, head = item % pages.kv_heads, length = lengths[row], last = length - 1;
        const int32_t *own = table + row * table_width;
        if (fresh) {
            float *key = page_of(pages, own[last / pages.page], head) + last % pages.page * pages.kv_heads * dim;
            const float *from = fresh + row * fresh_stride + head * dim;
            memcpy(key, from, dim * sizeof(float));
            memcpy(key + pages.values, from + pages.kv_heads * dim, dim * sizeof(float));
        }
        int64_t next_row = (item + 1) / pages.kv_heads, next_head = (item + 1) % pages.kv_heads;
        const int32_t *next = table + next_row * table_width;
        int64_t next_count = next_row < rows ? (lengths[next_row] + pages.page - 1) / pages.page : 0;
        const float *queries = query + row * query_stride + head * group * dim;
        float *to = out + item * group * dim, *scores = scratch + omp_get_thread_num() * scratch_size;
        switch (dim / LANES) {
#define WIDTH(w) case w: attend_head(queries, pages, own, head, length, next, next_head, next_count, to, scores, group, scale, w); break;
            WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6) WIDTH(7) WIDTH(8) WIDTH(16)
        }
    }
}

void attend_pages(const float *query, int64_t query_stride, float *pool, int64_t values, int64_t page, const int32_t *table, int64_t table_width,
                  const int64_t *lengths, float *out, float *scratch, int64_t scratch_size, int64_t rows, int64_t kv_heads, int64_t group,
                  int64_t dim, float scale) {
    Pages pages = {pool, values, page, kv_heads, dim};
    attend(query, query_stride, 0, 0, pages, table, table_width, lengths, out, scratch, scratch_size, rows, group, scale);
}

/* ---- choosing tokens, row by row of a vocabulary */

void highest(const float *x, int64_t x_stride, float *best, int64_t *at, int64_t rows, int64_t size) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float most = -INFINITY;
        int strange = 0;
        #pragma omp simd reduction(max : most) reduction(| : strange)
        for (int64_t i = 0; i < size; i++) {
            most = in[i] > most ? in[i] : most;
            strange |= in[i] != in[i];
        }
        int64_t first = 0;
        while (first < size - 1 && in[first] != most) first++;
        best[row] = strange ? NAN : most;
        at[row] = first;
    }
}

/* The `count` highest in order, equal ones by place. */
void largest(const float *x, int64_t x_stride, float *values, int64_t *at, int64_t rows, int64_t size, int64_t count) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float *found = values + row * count;
        int64_t *where = at + row * count, have = 0;
        for (int64_t start = 0; start < size; start += BLOCK) {
            int64_t stop = start + BLOCK < size ? start + BLOCK : size;
            float least = have < count ? -INFINITY : found[count - 1];
            int any = have < count;
            #pragma omp simd reduction(| : any)
            for (int64_t i = start; i < stop; i++) any |= in[i] > least;
            if (!any) continue;
            for (int64_t i = start; i < stop; i++) {
                if (have == count && !(in[i] > found[count - 1])) continue;
                int64_t to = have < count ? have++ : count - 1;
                for (; to > 0 && in[i] > found[to - 1]; to--) found[to] = found[to - 1], where[to] = where[to - 1];
                found[to] = in[i], where[to] = i;
            }
        }
    }
}

/* The logarithm of the sum of the exponentials; `best` is each row's highest. */
void log_sums(const float *x, int64_t x_stride, const float *best, float *sums, int64_t rows, int64_t size) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float most = best[row];
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < size; i++) sum += exp_of(in[i] - most);
        sums[row] = most + log(sum);
    }
}

/* How many numbers of a row are above one. */
void count_above(const float *x, int64_t x_stride, const float *one, int64_t *counts, int64_t rows, int64_t size) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float bound = one[row];
        int count = 0;
        #pragma omp simd reduction(+ : count)
        for (int64_t i = 0; i < size; i++) count += in[i] > bound;
        counts[row] = count;
    }
}

/* exp((x - best) / temperature), without what is below min_p. */
void weigh(const float *x, int64_t x_stride, const float *best, const double *temperature, const double *min_p, float *weights, int64_t rows,
           int64_t size) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; row++) {
        const float *in = x + row * x_stride;
        float *out = weights + row * size, most = best[row], scale = 1 / temperature[row], least = min_p[row];
        #pragma omp simd
        for (int64_t i = 0; i < size; i++) {
            float weight = exp_of((in[i] - most) * scale);
            out[i] = weight < least ? 0 : weight;
        }
    }
}

/* The next of a stream of numbers from 0 to 1 that each one's predecessor determines (splitmix64). */
static double next_uniform(double uniform) {
    union { double value; uint64_t bits; } from = {uniform};
    uint64_t z = from.bits + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return ((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Where the cumulative weight passes `left`; always a token that weighs something. */
INLINE int64_t token_at(const float *weights, const double *masses, double left, int64_t size, const int span) {
    int64_t chosen = 0, token = 0;
    for (int64_t s = 0; s * span < size; s++) {
        if (masses[s] > 0) chosen = s;
        if (left < masses[s]) break;
        left -= masses[s];
    }
    for (int64_t i = chosen * span; i < size && i < (chosen + 1) * span; i++) {
        if (weights[i] > 0) token = i;
        if (left < weights[i]) break;
        left -= weights[i];
    }
    return token;
}

/* A token drawn by its weight, and again, up to `rounds` times in all, until what weighs more than it is less than top_p of the total. */
void draw(const float *weights, const double *uniform, const double *top_p, int64_t *tokens, uint8_t *kept, int64_t rows, int64_t size,
          int64_t rounds) {
    enum { SPAN = 256 };
    #pragma omp parallel for schedule(dynamic, 1)
    for (int64_t row = 0; row < rows; row++) {
        const float *in = weights + row * size;
        double masses[(size + SPAN - 1) / SPAN], total = 0, at = uniform[row];
        for (int64_t s = 0; s * SPAN < size; s++) {
            int64_t stop = (s + 1) * SPAN < size ? (s + 1) * SPAN : size;
            double mass = 0;
            #pragma omp simd reduction(+ : mass)
            for (int64_t i = s * SPAN; i < stop; i++) mass += in[i];
            total += masses[s] = mass;
        }
        for (int64_t round = 0; round < rounds; round++, at = next_uniform(at)) {
            float own = in[tokens[row] = token_at(in, masses, at * total, size, SPAN)];
            if (!top_p) break;
            double before = 0;
            #pragma omp simd reduction(+ : before)
            for (int64_t i = 0; i < size; i++) before += in[i] > own ? in[i] : 0;
            if ((kept[row] = before < top_p[row] * total)) break;
        }
    }
}

/* ---- a step of decoding rows through all layers. Between two calls from Python lie caches full of weights: each costs ten times what it
   would by itself, and there are eight in a layer. */

typedef struct {
    const float *input_norm, *qkv, *qkv_bias, *query_norm, *key_norm, *out, *out_bias, *post_norm, *gate_up, *gate_up_bias, *down, *down_bias;
} Layer;

typedef struct {
    int64_t layers, hidden, heads, kv_heads, dim, inner;
    float eps, scale;
    const float *rotation;
} Shape;

/* hidden: [tokens, hidden], in and out. pool: [layers, 2, pages, page, kv_heads, dim]. scratch: tokens times hidden + 2 * heads * dim +
   2 * kv_heads * dim + 3 * inner, then for each thread `scores_size` for the scores. */
void decode_layers(const Layer *layers, const Shape *shape, float *pool, int64_t layer_size, int64_t values, int64_t page, const int32_t *table,
                   int64_t table_width, const int64_t *lengths, const int64_t *positions, float *hidden, int64_t tokens, float *scratch,
                   int64_t scores_size) {
    int64_t query_size = shape->heads * shape->dim, qkv_size = query_size + 2 * shape->kv_heads * shape->dim;
    float *normed = scratch, *qkv = normed + tokens * shape->hidden, *attended = qkv + tokens * qkv_size;
    float *gate_up = attended + tokens * query_size, *inner = gate_up + tokens * 2 * shape->inner, *scores = inner + tokens * shape->inner;
    for (int64_t l = 0; l < shape->layers; l++) {
        const Layer *at = layers + l;
        rms_norm(hidden, shape->hidden, at->input_norm, normed, tokens, shape->hidden, shape->eps);
        linear(normed, shape->hidden, at->qkv, at->qkv_bias, 0, 0, qkv, tokens, qkv_size, shape->hidden);
        if (at->query_norm)
            for (int64_t t = 0; t < tokens; t++) {
                float *query = qkv + t * qkv_size, *key = query + query_size;
                rms_norm(query, shape->dim, at->query_norm, query, shape->heads, shape->dim, shape->eps);
                rms_norm(key, shape->dim, at->key_norm, key, shape->kv_heads, shape->dim, shape->eps);
            }
        rotate(qkv, qkv_size, shape->rotation, positions, tokens, shape->heads + shape->kv_heads, shape->dim);
        Pages pages = {pool + l * layer_size, values, page, shape->kv_heads, shape->dim};
        attend(qkv, qkv_size, qkv + query_size, qkv_size, pages, table, table_width, lengths, attended, scores, scores_size, tokens,
               shape->heads / shape->kv_heads, shape->scale);
        linear(attended, query_size, at->out, at->out_bias, hidden, shape->hidden, hidden, tokens, shape->hidden, query_size);
        rms_norm(hidden, shape->hidden, at->post_norm, normed, tokens, shape->hidden, shape->eps);
        linear(normed, shape->hidden, at->gate_up, at->gate_up_bias, 0, 0, gate_up, tokens, 2 * shape->inner, shape->hidden);
        silu_mul(gate_up, inner, tokens, shape->inner);
        linear(inner, shape->inner, at->down, at->down_bias, hidden, shape->hidden, hidden, tokens, shape->hidden, shape->inner);
    }
}
