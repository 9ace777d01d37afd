// Features of sequences: random recurrent units, each read by four counters that run along the sequence.
//
// A unit has a value u_t at every step and a threshold b. Its counters give, over the steps it is read at:
//   0  the share of steps with u_t > b            1  the mean of u_t - b over those steps (0 without any)
//   2  their mean position, from 0 to 1 (-0.1)    3  the longest run of them, as a share of all steps
//
// Sequences lie behind each other: sequence s is a block of `views` rows of `lengths[s]` floats at x + starts[s] * views.

#include <algorithm>
#include <cstdint>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

constexpr int64_t LANES = 16, TAPS = 9, FILTERS = 84, BLOCKS = 6, RIVALS = 8, UNITS = 8, COUNTERS = 4;
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(64), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))

INLINE lanes splat(float v) { return v - lanes{}; }
INLINE lanes load(const float* p) { return *(const lanes*)p; }
INLINE void store(float* p, lanes v) { *(lanes*)p = v; }

struct Sequences {
  int64_t count, views, threads;
  const float* x;
  const int64_t *starts, *lengths;
  const float* row(int64_t s, int64_t view) const { return x + starts[s] * views + view * lengths[s]; }
};

struct Counter {
  lanes count, sum, position, run, longest;
  Counter() : count(splat(0)), sum(count), position(count), run(count), longest(count) {}
  inline __attribute__((always_inline)) void read(lanes u, lanes threshold, float t) {
    const lanes above = u - threshold, zero = splat(0);
    const lanes one = above > zero ? splat(1) : zero;
    count += one;
    sum += above > zero ? above : zero;
    position += one * t;
    run = one * (run + 1.0f);
    longest = run > longest ? run : longest;
  }
  void write(float* out, int64_t stride, int64_t steps) const {
    const lanes zero = splat(0), none = splat(-0.1f), per = splat(1.0f / float(steps));
    const lanes some = count > zero ? count : splat(1);
    store(out, count * per);
    store(out + stride, sum / some);
    store(out + 2 * stride, count > zero ? position / some * per : none);
    store(out + 3 * stride, longest * per);
  }
};

// ------------------------------------------------------------------------------------------ delay lines

// x at the nine delays -4d … 4d; beyond its ends x is 0.
static void delay(const float* x, int64_t steps, int64_t dilation, float* delayed) {
  for (int64_t tap = 0; tap < TAPS; ++tap) {
    const int64_t shift = (tap - 4) * dilation;
    const int64_t low = std::min(steps, std::max<int64_t>(0, -shift));
    const int64_t high = std::max(low, std::min(steps, steps - shift));
    float* out = delayed + tap * steps;
    std::fill(out, out + low, 0.0f);
    std::copy(x + low + shift, x + high + shift, out + low);
    std::fill(out + high, out + steps, 0.0f);
  }
}

struct Filters {  // the 84 ways to choose three of nine taps: their weight is 2, that of the others -1; then zeros
  float weights[BLOCKS][TAPS][LANES] = {};
  Filters() {
    int64_t at = 0;
    for (int64_t i = 0; i < TAPS; ++i)
      for (int64_t j = i + 1; j < TAPS; ++j)
        for (int64_t k = j + 1; k < TAPS; ++k, ++at)
          for (int64_t tap = 0; tap < TAPS; ++tap)
            weights[at / LANES][tap][at % LANES] = tap == i || tap == j || tap == k ? 2.0f : -1.0f;
  }
};
static const Filters filters;

// The values of 16 filters, (steps, 16).
static void filter(int64_t block, const float* delayed, int64_t steps, float* out) {
  lanes w[TAPS];
  for (int64_t tap = 0; tap < TAPS; ++tap) w[tap] = load(filters.weights[block][tap]);
  for (int64_t t = 0; t < steps; ++t) {
    lanes sum = w[0] * delayed[t];
    for (int64_t tap = 1; tap < TAPS; ++tap) sum += w[tap] * delayed[tap * steps + t];
    store(out + t * LANES, sum);
  }
}

// At 16 steps, of eight filters: the largest value, which filter has it, and which has the smallest.
static void compete(const float* delayed, int64_t stride, const float* w, int64_t t, float* most, int32_t* winner,
                    int32_t* loser) {
  lanes d[TAPS], high = splat(-1e30f), low = splat(1e30f);
  whole first{}, last{};
  for (int64_t tap = 0; tap < TAPS; ++tap) d[tap] = load(delayed + tap * stride);
  for (int32_t k = 0; k < RIVALS; ++k, w += TAPS) {
    lanes value = w[0] * d[0];
    for (int64_t tap = 1; tap < TAPS; ++tap) value += w[tap] * d[tap];
    first = value > high ? k - whole{} : first, high = value > high ? value : high;
    last = value < low ? k - whole{} : last, low = value < low ? value : low;
  }
  store(most + t, high);
  *(whole*)(winner + t) = first, *(whole*)(loser + t) = last;
}

extern "C" {

// Group g reads a view at one dilation with all 84 filters and counts[g] thresholds for each, which lie as (counts[g],
// 84) at offsets[g]. Odd groups read only steps whose nine taps lie inside the sequence. out: (count, 4, features).
void delay_lines(const Sequences* given, int64_t groups, const int64_t* views, const int64_t* dilations,
                 const int64_t* counts, const int64_t* offsets, const float* thresholds, int64_t features, float* out) {
#pragma omp parallel num_threads(given->threads)
  {
    std::vector<float> delayed, values;
#pragma omp for schedule(dynamic)
    for (int64_t s = 0; s < given->count; ++s) {
      const int64_t steps = given->lengths[s];
      delayed.resize(TAPS * steps), values.resize(LANES * steps);
      for (int64_t g = 0; g < groups; ++g) {
        delay(given->row(s, views[g]), steps, dilations[g], delayed.data());
        const int64_t margin = g % 2 && steps > 8 * dilations[g] ? 4 * dilations[g] : 0;
        for (int64_t block = 0; block < BLOCKS; ++block) {
          filter(block, delayed.data(), steps, values.data());
          const int64_t width = std::min(LANES, FILTERS - block * LANES);
          for (int64_t j = 0; j < counts[g]; ++j) {
            const int64_t at = offsets[g] + j * FILTERS + block * LANES;
            float padded[LANES] = {0}, found[COUNTERS][LANES];
            std::copy(thresholds + at, thresholds + at + width, padded);
            const lanes threshold = load(padded);
            Counter counter;
            for (int64_t t = margin; t < steps - margin; ++t)
              counter.read(load(values.data() + t * LANES), threshold, float(t - margin));
            counter.write(found[0], LANES, steps - 2 * margin);
            for (int64_t k = 0; k < COUNTERS; ++k)
              std::copy(found[k], found[k] + width, out + (s * COUNTERS + k) * features + at);
          }
        }
      }
    }
  }
}

// Eight rivals with random weights at nine delays: at every step the largest and the smallest are noted.
// weights: (groups, heats, 8, 9); out: (count, groups, heats, 16): the mean of the winning values of each rival, where
// it wins, and the share of steps at which it is the smallest.
void competitions(const Sequences* given, int64_t groups, int64_t heats, const int64_t* views, const int64_t* dilations,
                  const float* weights, float* out) {
#pragma omp parallel num_threads(given->threads)
  {
    std::vector<float> row, delayed, most;
    std::vector<int32_t> winner, loser;
#pragma omp for schedule(dynamic)
    for (int64_t s = 0; s < given->count; ++s) {
      const int64_t steps = given->lengths[s];
      const int64_t width = (steps + LANES - 1) / LANES * LANES;  // rows end with padding, which is not counted
      row.assign(width, 0.0f), delayed.resize(TAPS * width), most.resize(width), winner.resize(width), loser.resize(width);
      for (int64_t g = 0; g < groups; ++g) {
        std::copy(given->row(s, views[g]), given->row(s, views[g]) + steps, row.begin());
        delay(row.data(), width, dilations[g], delayed.data());
        for (int64_t h = 0; h < heats; ++h) {
          const float* w = weights + (g * heats + h) * RIVALS * TAPS;
          for (int64_t t = 0; t < steps; t += LANES)
            compete(delayed.data() + t, width, w, t, most.data(), winner.data(), loser.data());
          float sums[2 * RIVALS] = {0};
          for (int64_t t = 0; t < steps; ++t) sums[winner[t]] += most[t], sums[RIVALS + loser[t]] += 1.0f;
          float* o = out + ((s * groups + g) * heats + h) * 2 * RIVALS;
          for (int64_t k = 0; k < 2 * RIVALS; ++k) o[k] = sums[k] / float(steps);
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------------------ recurrent units

// Resonators z ← a z + x (complex) beside leaky integrators y ← b y + x: u = Re(c̄ z) - g y. They start where a sequence
// that had always been x_1 would have brought them. Lanes are units; rows of parameters: Re a, Im a, Re c, Im c, b, g.
struct Resonator {
  lanes ar, ai, cr, ci, b, g, zr, zi, y;
  Resonator(const float* p, int64_t stride, float x)
      : ar(load(p)), ai(load(p + stride)), cr(load(p + 2 * stride)), ci(load(p + 3 * stride)), b(load(p + 4 * stride)),
        g(load(p + 5 * stride)) {
    const lanes size = (1.0f - ar) * (1.0f - ar) + ai * ai;
    zr = x * (1.0f - ar) / size, zi = x * ai / size, y = x / (1.0f - b);
  }
  inline __attribute__((always_inline)) lanes step(float x) {
    const lanes real = ar * zr - ai * zi + x;
    zi = ar * zi + ai * zr;
    zr = real;
    y = b * y + x;
    return cr * zr + ci * zi - g * y;
  }
};

// parameters: (6, units); views and backward are per 16 units. out: (count, 4, units).
void resonators(const Sequences* given, int64_t units, const int64_t* views, const int64_t* backward,
                const float* parameters, const float* thresholds, float* out) {
#pragma omp parallel for schedule(dynamic) num_threads(given->threads)
  for (int64_t s = 0; s < given->count; ++s) {
    const int64_t steps = given->lengths[s];
    for (int64_t unit = 0; unit < units; unit += LANES) {
      const int64_t block = unit / LANES, step = backward[block] ? -1 : 1;
      const float* x = given->row(s, views[block]) + (backward[block] ? steps - 1 : 0);
      const lanes threshold = load(thresholds + unit);
      Resonator resonator(parameters + unit, units, *x);
      Counter counter;
      for (int64_t t = 0; t < steps; ++t, x += step) counter.read(resonator.step(*x), threshold, float(t));
      counter.write(out + s * COUNTERS * units + unit, units, steps);
    }
  }
}

// The values of 16 resonators on the first view of the first sequence. parameters: (6, 16); out: (steps, 16).
void resonator_values(const Sequences* given, const float* parameters, float* out) {
  Resonator resonator(parameters, LANES, given->x[0]);
  for (int64_t t = 0; t < given->lengths[0]; ++t) store(out + t * LANES, resonator.step(given->x[t]));
}

// A Padé approximant of tanh, exact to 1e-4, which vectorises.
INLINE lanes squash(lanes x) {
  const lanes top = splat(4.97f), bottom = -top;
  x = x > top ? top : x < bottom ? bottom : x;
  const lanes q = x * x;
  return x * (135135.0f + q * (17325.0f + q * (378.0f + q))) / (135135.0f + q * (62370.0f + q * (3150.0f + 28.0f * q)));
}

// Networks of eight leaky tanh units: h ← h + leak (tanh(W h + U x + b) - h). Lanes are networks. W: (blocks, 8, 8, 16);
// U, b and thresholds: (blocks, 8, 16); leak: (blocks, 16). out: (count, 4, blocks · 8 · 16).
void leaky_networks(const Sequences* given, int64_t blocks, const int64_t* views, const int64_t* backward, const float* W,
                    const float* U, const float* bias, const float* leak, const float* thresholds, float* out) {
  const int64_t features = blocks * UNITS * LANES;
#pragma omp parallel for schedule(dynamic) num_threads(given->threads)
  for (int64_t s = 0; s < given->count; ++s) {
    const int64_t steps = given->lengths[s];
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t step = backward[block] ? -1 : 1, at = block * UNITS * LANES;
      const float* x = given->row(s, views[block]) + (backward[block] ? steps - 1 : 0);
      const lanes speed = load(leak + block * LANES);
      lanes h[UNITS], target[UNITS];
      for (int64_t i = 0; i < UNITS; ++i) h[i] = splat(0);
      Counter counters[UNITS];
      for (int64_t t = 0; t < steps; ++t, x += step) {
        for (int64_t i = 0; i < UNITS; ++i) {
          lanes sum = load(U + at + i * LANES) * *x + load(bias + at + i * LANES);
          const float* w = W + (block * UNITS + i) * UNITS * LANES;
          for (int64_t j = 0; j < UNITS; ++j) sum += load(w + j * LANES) * h[j];
          target[i] = squash(sum);
        }
        for (int64_t i = 0; i < UNITS; ++i) {
          h[i] += speed * (target[i] - h[i]);
          counters[i].read(h[i], load(thresholds + at + i * LANES), float(t));
        }
      }
      for (int64_t i = 0; i < UNITS; ++i)
        counters[i].write(out + s * COUNTERS * features + at + i * LANES, features, steps);
    }
  }
}
}
