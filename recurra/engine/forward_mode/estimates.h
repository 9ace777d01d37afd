// Estimates of the influence that cost what a step costs, beside each sequence. Programs of sweeps.py take cotangents
// back through the step and a tangent forward; a weight is read as δ ⊗ v. Structures are filled by estimate_loop.py.

struct Use { int64_t delta, tangent, operand, operand_step; };  // addresses; `delta` has a row for the loss, one for signs
struct Weights { int64_t units, deep, along_units, at, first_use, use_count; };  // a block
struct Estimate {
  int64_t kind, states, roots, weights;
  int64_t root_cotangents, state_cotangents, state_tangent, root_tangents, tangent_rows, tangent_size;
  int64_t readout_count;
  const int64_t *readout_column, *readout_root, *readout_width;
  const Weights* blocks;
  int64_t block_count;
  const Use* uses;
  const real* signs;  // (steps, batch, states)
  real *state_part, *weight_part;  // (batch, states), (batch, weights); with a direction: its tangent, and itself
  real* gradient;  // (weights)
};
enum { RANK_ONE, DIRECTION };
static const real TINY = real(1e-30);  // keeps a factor finite where a norm is zero
static const int TERMS = 16;

static real norm(const real* v, int64_t width) { return real(__builtin_sqrt(double(dot(v, v, width)))) + TINY; }

static real squares(Row v, int64_t width) {
  if (v.step == 1) return dot(v.p, v.p, width);
  if (v.step == 0) return *v.p * *v.p * real(width);
  real total = 0;
  for (int64_t j = 0; j < width; ++j) total += v[j] * v[j];
  return total;
}

struct Terms {  // the uses of a block at this step
  Row loss[TERMS], sign[TERMS], operand[TERMS];
  int count;
  Terms(const Estimate& e, const Weights& w, const Memory& m) : count(int(w.use_count)) {
    for (int t = 0; t < count; ++t) {
      const Use& use = e.uses[w.first_use + t];
      real* const delta = m.at(use.delta);
      loss[t] = {delta, 1}, sign[t] = {delta + w.units, 1}, operand[t] = {m.at(use.operand), use.operand_step};
    }
  }
};

// Σ over uses of δ ⊗ v, for what `take(here, loss, sign, count)` does with `count` numbers from weight `here` on.
template <bool by_unit, class Take> INLINE void each(const Weights& w, const Terms& terms, bool losses, Take take) {
  const int64_t outer = by_unit ? w.deep : w.units, inner = by_unit ? w.units : w.deep;
  for (int64_t i = 0; i < outer; ++i)
    COLUMNS_OF(inner) {
      vec loss = {}, sign = {};
      for (int t = 0; t < terms.count; ++t) {
        const vec v = by_unit ? splat(terms.operand[t][i]) : terms.operand[t].get(j, count);
        sign += v * (by_unit ? terms.sign[t].get(j, count) : splat(terms.sign[t][i]));
        if (losses) loss += v * (by_unit ? terms.loss[t].get(j, count) : splat(terms.loss[t][i]));
      }
      take(w.at + i * inner + j, loss, sign, count);
    }
}

template <class Take> static void each_weight(const Weights& w, const Terms& terms, bool losses, Take take) {
  if (w.along_units) each<true>(w, terms, losses, take);
  else each<false>(w, terms, losses, take);
}

// The norm of the immediate influence of the signs, νᵀ(∂s'/∂w).
static real immediate_norm(const Estimate& e, const Memory& m) {
  double total = 0;
  for (int64_t b = 0; b < e.block_count; ++b) {
    const Weights& w = e.blocks[b];
    const Terms terms(e, w, m);
    if (terms.count == 1) total += double(squares(terms.sign[0], w.units)) * squares(terms.operand[0], w.deep);
    if (terms.count < 2) continue;
    vec sum = {};
    each_weight(w, terms, false, [&](int64_t, vec, vec sign, int count) { sum += zero_tail(sign * sign, count); });
    total += double(horizontal_sum(sum));
  }
  return real(__builtin_sqrt(total)) + TINY;
}

// s̃ ← ρ₀ (∂s'/∂s) s̃ + ρ₁ ν and w̃ ← w̃ / ρ₀ + νᵀ(∂s'/∂w) / ρ₁; the gradient takes what they were before.
static void rank_one(const Estimate& e, const Memory& m, const real* signs, bool losses) {
  real *const state = e.state_part + m.sequence * e.states, *const weight = e.weight_part + m.sequence * e.weights;
  const real* const forward = m.at(e.root_tangents);
  const real through = losses ? dot(m.at(e.state_cotangents), state, e.states) : real(0);
  const real keep = real(__builtin_sqrt(double(norm(weight, e.weights) / norm(forward, e.states))));
  const real add = real(__builtin_sqrt(double(immediate_norm(e, m) / norm(signs, e.states))));
  for (int64_t j = 0; j < e.states; ++j) state[j] = keep * forward[j] + add * signs[j];
  const vec old = splat(real(1) / keep), now = splat(real(1) / add), factor = splat(through);
  for (int64_t b = 0; b < e.block_count; ++b)
    each_weight(e.blocks[b], Terms(e, e.blocks[b], m), losses, [&](int64_t here, vec loss, vec sign, int count) {
      const vec before = load(weight + here, count);
      if (losses) add_row(e.gradient + here, factor * before + loss, count);
      store(weight + here, before * old + sign * now, count);
    });
}

// Tangents of all products, from those of their weights: the direction times what they are multiplied by.
static void push_direction(const Estimate& e, const Memory& m) {
  const real* const weight = e.weight_part + m.sequence * e.weights;
  for (int64_t b = 0; b < e.block_count; ++b) {
    const Weights& w = e.blocks[b];
    for (int64_t u = w.first_use; u < w.first_use + w.use_count; ++u) {
      real* const to = m.at(e.uses[u].tangent);
      const Row v{m.at(e.uses[u].operand), e.uses[u].operand_step};
      if (w.along_units) for (int64_t k = 0; k < w.deep; ++k) add_scaled(to, weight + w.at + k * w.units, v[k], w.units);
      else for (int64_t i = 0; i < w.units; ++i) {
        const real* const own = weight + w.at + i * w.deep;
        vec sum = {};
        COLUMNS_OF(w.deep) sum += zero_tail(load(own + j, count) * v.get(j, count), count);
        to[i] += horizontal_sum(sum);
      }
    }
  }
}

// The derivative of the loss along the direction, times the direction.
static void along_direction(const Estimate& e, const Memory& m, const real* cotangent, bool losses) {
  const real *const tangent = m.at(e.root_tangents), *const direction = e.weight_part + m.sequence * e.weights;
  real slope = 0;
  for (int64_t r = 0; losses && r < e.readout_count; ++r)
    slope += dot(cotangent + e.readout_column[r], tangent + e.readout_root[r], e.readout_width[r]);
  if (losses) add_scaled(e.gradient, direction, slope, e.weights);
  __builtin_memcpy(e.state_part + m.sequence * e.states, tangent, e.states * sizeof(real));
}
