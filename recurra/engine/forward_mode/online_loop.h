// A stream whose weights change after every step: forward, head, loss, influence, gradient and update in one loop.
// Structures are filled by online_loop.py; every field has eight bytes.

struct Head {  // y = V h + b, or y = h where V is null
  int64_t width, outputs;
  const real *weight, *bias;
  const real* feedback;  // (outputs, width): errors come back to the units through it
  real *weight_gradient, *bias_gradient;  // null where they do not learn
};
struct Parameter {
  int64_t size;
  real *value, *gradient, *first, *second;  // moments of the gradient
  int64_t source, skips;  // of the gradient, while `fused` is in force; whether an update then does nothing
};
enum { READ, FUSED, IDLE };  // memory, a word of `advance`, none
struct Part {  // a block of weights in the gradient of its parameter
  int64_t from, sequence_stride;
  real* to;
  int64_t outer, inner, outer_stride, inner_stride;
};
struct Rule {
  int64_t kind;
  double clip;  // 0: none
  const double* factors;  // (steps that count, 2)
  double decay, second_decay, epsilon;
};
enum { SGD, ADAM, RMSPROP };  // kinds of a rule
enum { SQUARED_ERROR, CROSS_ENTROPY };

struct Loop {
  Words forward, back, advance;
  real** regions;
  const int64_t* strides;
  const int32_t* maps;
  int64_t steps, batch, inputs, loss;
  real* x;               // (steps, batch, inputs)
  const void* targets;   // numbers (steps, batch, outputs) or classes (steps, batch)
  const unsigned char* counts; // (steps, batch): whether the target counts
  real* scores;          // (batch, outputs)
  Head head;
  Rule rule;
  int64_t parameter_count, part_count;
  Parameter* parameters;
  const Part* parts;
  real* collected;  // the gradients that parts are added to
  int64_t collected_size;
  real* gradient;  // what parts are read from: of `gradient_batch` sequences
  int64_t gradient_batch;
  const Chunk* chunk;  // null: the influence is of rows, and advanced at every step
  int64_t at, fresh;   // steps in the chunk so far; whether there is no influence before it
  const Estimate* estimate;  // null: an influence is carried
  const Kronecker* kronecker;  // or none of both
  int64_t adds_up;  // no update: gradients of the sum of all losses add up over steps
  real *weight_before, *adapts;  // null, or the feedback, which takes the updates of the head's weight
  double adapt_keep;
  const int64_t* fused;  // null, or for each word of `advance` the parameter that it reads, and where in it
};

// ------------------------------------------------------------------------------------------ head and loss

static void head_forward(const Head& h, const real* state, real* y) {
  for (int64_t o = 0; o < h.outputs; ++o)
    y[o] = h.weight ? dot(h.weight + o * h.width, state, h.width) + (h.bias ? h.bias[o] : real(0)) : state[o];
}

// y becomes ∂loss/∂y; the loss of one item.
static double squared_error(real* y, const real* target, int64_t outputs) {
  double total = 0;
  for (int64_t o = 0; o < outputs; ++o) {
    const real off = y[o] - target[o];
    total += double(off) * off;
    y[o] = 2 * off / real(outputs);
  }
  return total / double(outputs);
}

static double cross_entropy(real* y, int64_t target, int64_t outputs) {
  real most = y[0];
  for (int64_t o = 1; o < outputs; ++o) most = nan_max(most, y[o]);
  const real own = y[target] - most;
  vec sums = {};
  COLUMNS_OF(outputs) {
    const vec e = exp_(load(y + j, count) - splat(most));
    store(y + j, e, count);
    sums += zero_tail(e, count);
  }
  const real sum = horizontal_sum(sums);
  for (int64_t o = 0; o < outputs; ++o) y[o] /= sum;
  y[target] -= 1;
  return double(log_(splat(sum))[0] - own);
}

static void head_backward(const Head& h, const real* state, const real* error, real* cotangent) {
  if (!h.feedback) {
    for (int64_t o = 0; o < h.outputs; ++o) cotangent[o] = error[o];
  } else {
    for (int64_t j = 0; j < h.width; ++j) cotangent[j] = 0;
    for (int64_t o = 0; o < h.outputs; ++o) add_scaled(cotangent, h.feedback + o * h.width, error[o], h.width);
  }
  for (int64_t o = 0; o < h.outputs; ++o) {
    if (h.weight_gradient) add_scaled(h.weight_gradient + o * h.width, state, error[o], h.width);
    if (h.bias_gradient) h.bias_gradient[o] += error[o];
  }
}

// Scores of all sequences to cotangents and gradients of the head; the sum of the losses.
static double learn_head(const Loop& l, int64_t t, int64_t count) {
  const Head& h = l.head;
  if (h.weight_gradient && !l.adds_up) __builtin_memset(h.weight_gradient, 0, h.outputs * h.width * sizeof(real));
  if (h.bias_gradient && !l.adds_up) __builtin_memset(h.bias_gradient, 0, h.outputs * sizeof(real));
  double total = 0;
  for (int64_t b = 0; b < l.batch; ++b) {
    const int64_t item = t * l.batch + b;
    const real* const state = l.regions[OUTPUTS] + b * l.strides[OUTPUTS];
    real *const y = l.scores + b * h.outputs, *const cotangent = l.regions[COTANGENT] + b * l.strides[COTANGENT];
    if (!l.counts[item]) {
      __builtin_memset(cotangent, 0, h.width * sizeof(real));
      continue;
    }
    head_forward(h, state, y);
    total += l.loss == SQUARED_ERROR ? squared_error(y, (const real*)l.targets + item * h.outputs, h.outputs)
                                     : cross_entropy(y, ((const int64_t*)l.targets)[item], h.outputs);
    for (int64_t o = 0; o < h.outputs && !l.adds_up; ++o) y[o] /= real(count);
    head_backward(h, state, y, cotangent);
  }
  return total;
}

// ------------------------------------------------------------------------------------------ gradient and update

extern "C" void collect(const Loop& l) {  // what the program left, summed over sequences, in the order of the parameters
  __builtin_memset(l.collected, 0, l.collected_size * sizeof(real));
  for (int64_t p = 0; p < l.part_count; ++p) {
    const Part& part = l.parts[p];
    for (int64_t b = 0; b < l.gradient_batch; ++b) {
      const real* const from = l.gradient + part.from + b * part.sequence_stride;
      for (int64_t i = 0; i < part.outer; ++i) {
        real* const to = part.to + i * part.outer_stride;
        const real* const row = from + i * part.inner;
        if (part.inner_stride == 1) add_scaled(to, row, 1, part.inner);
        else for (int64_t j = 0; j < part.inner; ++j) to[j * part.inner_stride] += row[j];
      }
    }
  }
}

// The heads and losses of many steps, (steps, batch) outputs and cotangents; gradients of the head add up.
extern "C" double learn_heads(const Loop* given, real* outputs, real* cotangents) {
  const Loop& l = *given;
  double total = 0;
  for (int64_t t = 0; t < l.steps; ++t) {
    l.regions[OUTPUTS] = outputs + t * l.batch * l.strides[OUTPUTS];
    l.regions[COTANGENT] = cotangents + t * l.batch * l.strides[COTANGENT];
    total += learn_head(l, t, 1);
  }
  return total;
}

static real clip_factor(const Loop& l) {
  if (!(l.rule.clip > 0)) return 1;
  double total = 0;
  for (int64_t p = 0; p < l.parameter_count; ++p) {
    const Parameter& own = l.parameters[p];
    total += double(dot(own.gradient, own.gradient, own.size));
  }
  const double factor = l.rule.clip / (__builtin_sqrt(total) + 1e-6);
  return factor < 1 ? real(factor) : total == total ? real(1) : real(__builtin_nan(""));
}

template <int kind> struct Update {  // of the numbers from `value` on, by their gradient
  real *value, *first, *second, factor, root, keep, keep2, gain, gain2, epsilon, scale;
  __attribute__((always_inline)) void operator()(int64_t at, vec g, int count) const {
    g *= scale;
    vec step = g;
    if (kind == ADAM || (kind == SGD && first)) {
      const vec before = load(first + at, count);
      step = kind == ADAM ? before + (g - before) * gain : before * keep + g;
      store(first + at, step, count);
    }
    if (kind != SGD) {
      const vec after = load(second + at, count) * keep2 + g * g * gain2;
      store(second + at, after, count);
      step /= sqrt_(after) * root + epsilon;
    }
    store(value + at, load(value + at, count) - step * factor, count);
  }
};

template <int kind> static Update<kind> update_of(const Loop& l, int64_t number, const Parameter& own, real scale) {
  const Rule& r = l.rule;
  const real factor = real(r.factors[2 * number]), root = real(r.factors[2 * number + 1]);
  const real gain = real(1 - r.decay), gain2 = real(1 - r.second_decay);
  return {own.value, own.first, own.second, factor, root, real(r.decay), real(r.second_decay), gain, gain2, real(r.epsilon), scale};
}

// Weights without a gradient whose moments are zero stay as they are.
static void find_skipped(const Loop& l) {
  for (Parameter* own = l.parameters; own < l.parameters + l.parameter_count; ++own) {
    own->skips = own->source != READ;
    if (own->source != IDLE) continue;
    const real* const moments[] = {own->first, own->second};
    for (const real* moment : moments)
      for (int64_t j = 0; moment && own->skips && j < own->size; ++j) own->skips = moment[j] == 0;
  }
}

template <int kind> static void update_by(const Loop& l, int64_t number, bool fused) {
  const real scale = clip_factor(l);
  for (int64_t p = 0; p < l.parameter_count; ++p) {
    const Parameter& own = l.parameters[p];
    if (fused && own.skips) continue;
    const Update<kind> update = update_of<kind>(l, number, own, scale);
    COLUMNS_OF(own.size) update(j, load(own.gradient + j, count), count);
  }
}

// The last program, with the update of each weight as soon as its gradient is known, and of the head.
template <int kind> static void advance_and_update(const Loop& l, int64_t number) {
  const Memory m{l.regions, l.strides, l.maps, 0};
  const int64_t *at = l.advance.at, *const end = at + l.advance.length;
  for (int64_t i = 0; at < end; ++i) {
    Own o;
    at = read_own(m, at + 1, o);
    Parameter own = l.parameters[l.fused[2 * i]];
    const int64_t start = l.fused[2 * i + 1];
    own.value += start, own.first += own.first ? start : 0, own.second += own.second ? start : 0;
    own_update(o, update_of<kind>(l, number, own, 1));
  }
  update_by<kind>(l, number, true);
}

static void update(const Loop& l, int64_t number) {
  if (l.rule.kind == ADAM) update_by<ADAM>(l, number, false);
  else if (l.rule.kind == SGD) update_by<SGD>(l, number, false);
  else update_by<RMSPROP>(l, number, false);
}

// ------------------------------------------------------------------------------------------ the loop

static void execute(const Loop& l, const Words& words) {
  run(words.at, words.length, l.regions, l.strides, l.maps, l.batch);
}

// Memory of the step after `at` steps of a chunk, which keeps what every step has left.
static void enter_chunk(const Loop& l, const real* x, int64_t at) {
  const Chunk& c = *l.chunk;
  const int64_t numbers = l.batch * l.inputs;
  __builtin_memcpy(c.x + at * numbers, x, numbers * sizeof(real));
  l.regions[INPUT] = c.x + at * numbers;
  l.regions[SCRATCH] = c.scratch + at * l.batch * c.scratch_size;
  l.regions[STATE] = c.state + at * l.batch * c.states;
  l.regions[NEW] = c.state + (at + 1) * l.batch * c.states;
}

// The estimates of all sequences after one step, and the gradient that they assign to its losses.
static void estimate(const Loop& l, int64_t t, bool losses) {
  const Estimate& e = *l.estimate;
  const Memory first{l.regions, l.strides, l.maps, 0};
  const real* const cotangents = l.regions[COTANGENT];
  if (!l.adds_up) __builtin_memset(e.gradient, 0, e.weights * sizeof(real));
  for (Memory m = first; m.sequence < l.batch; ++m.sequence) {
    real* const roots = m.at(e.root_cotangents);
    __builtin_memset(roots, 0, 2 * e.roots * sizeof(real));
    for (int64_t r = 0; losses && r < e.readout_count; ++r)
      for (int64_t j = 0; j < e.readout_width[r]; ++j)
        roots[e.readout_root[r] + j] += cotangents[m.sequence * l.strides[COTANGENT] + e.readout_column[r] + j];
    const real* const signs = e.signs + (t * l.batch + m.sequence) * e.states;
    if (e.kind == RANK_ONE) __builtin_memcpy(roots + e.roots, signs, e.states * sizeof(real));
    __builtin_memset(m.at(e.tangent_rows), 0, e.tangent_size * sizeof(real));
    __builtin_memcpy(m.at(e.state_tangent), e.state_part + m.sequence * e.states, e.states * sizeof(real));
    if (e.kind == DIRECTION) push_direction(e, m);
  }
  if (e.kind == RANK_ONE) execute(l, l.back);
  execute(l, l.advance);
  for (Memory m = first; m.sequence < l.batch; ++m.sequence) {
    if (e.kind == RANK_ONE) rank_one(e, m, e.signs + (t * l.batch + m.sequence) * e.states, losses);
    else along_direction(e, m, cotangents + m.sequence * l.strides[COTANGENT], losses);
  }
}

// The same for Kronecker factors.
static void factors(const Loop& l, int64_t t, bool losses) {
  const Kronecker& e = *l.kronecker;
  if (!l.adds_up) __builtin_memset(e.gradient, 0, e.weights * sizeof(real));
  for (Memory m{l.regions, l.strides, l.maps, 0}; m.sequence < l.batch; ++m.sequence) {
    const real* const signs = e.signs + t * e.group_count * 2 * l.batch + m.sequence;
    kronecker(e, m, l.regions[COTANGENT] + m.sequence * l.strides[COTANGENT], signs, l.batch, losses);
  }
}

static void adapt_feedback(const Loop& l) {
  const real keep = real(l.adapt_keep);
  COLUMNS_OF(l.head.width * l.head.outputs) {
    const vec change = load(l.head.weight + j, count) - load(l.weight_before + j, count);
    store(l.adapts + j, (load(l.adapts + j, count) + change) * keep, count);
  }
}

// The sum of the losses. Without a chunk, `regions` of the old and the new state change places after every step.
extern "C" double learn_steps(const Loop* given) {
  const Loop& l = *given;
  const bool fuses = l.fused && !l.chunk && !l.estimate && !l.kronecker && !l.adds_up && !(l.rule.clip > 0);
  if (fuses) find_skipped(l);
  double total = 0;
  int64_t updates = 0;
  for (int64_t t = 0; t < l.steps; ++t) {
    real* const x = l.x + t * l.batch * l.inputs;
    l.regions[INPUT] = x;
    if (l.chunk) enter_chunk(l, x, l.at + t);
    execute(l, l.forward);
    int64_t count = 0;
    for (int64_t b = 0; b < l.batch; ++b) count += l.counts[t * l.batch + b];
    real* const cotangent = l.regions[COTANGENT];
    const int64_t sequence = l.strides[COTANGENT];
    if (count) total += learn_head(l, t, count);
    else for (int64_t b = 0; b < l.batch; ++b) __builtin_memset(cotangent + b * sequence, 0, l.head.width * sizeof(real));
    if (l.kronecker) factors(l, t, count > 0);
    else if (l.estimate) estimate(l, t, count > 0);
    else if (!l.chunk) execute(l, l.back), fuses && count ? void() : execute(l, l.advance);
    else if (count) chunk_gradient(*l.chunk, l.at + t + 1, l.batch, cotangent, sequence, l.fresh);
    if (count && !l.adds_up) {
      if (l.adapts) __builtin_memcpy(l.weight_before, l.head.weight, l.head.width * l.head.outputs * sizeof(real));
      if (!fuses) collect(l), update(l, updates++);
      else if (l.rule.kind == ADAM) advance_and_update<ADAM>(l, updates++);
      else if (l.rule.kind == SGD) advance_and_update<SGD>(l, updates++);
      else advance_and_update<RMSPROP>(l, updates++);
      if (l.adapts) adapt_feedback(l);
    }
    real* const state = l.regions[STATE];
    l.regions[STATE] = l.regions[NEW];
    l.regions[NEW] = state;
  }
  return total;
}

// The gradient of the sum of all losses times `scale`, in pieces of up to `length` steps; an update with `updates`.
extern "C" double learn_call(const Loop* given, const RowChunk* rows, int64_t length, int64_t fresh, int64_t goes_on,
                             double scale, int64_t updates) {
  const Loop& l = *given;
  double total = 0;
  __builtin_memset(rows->regions[GRADIENT], 0, l.gradient_batch * l.strides[GRADIENT] * sizeof(real));
  if (l.head.weight_gradient) __builtin_memset(l.head.weight_gradient, 0, l.head.outputs * l.head.width * sizeof(real));
  if (l.head.bias_gradient) __builtin_memset(l.head.bias_gradient, 0, l.head.outputs * sizeof(real));
  row_chunk_turn(rows);
  real *const outputs = rows->regions[OUTPUTS], *const cotangents = rows->regions[COTANGENT];
  for (int64_t start = 0; start < l.steps; start += length) {
    const int64_t steps = l.steps - start < length ? l.steps - start : length, items = steps * l.batch;
    rows->regions[INPUT] = l.x + start * l.batch * l.inputs;
    row_chunk_forward(rows, items);
    for (int64_t t = 0; t < steps; ++t) {
      l.regions[OUTPUTS] = outputs + t * l.batch * l.strides[OUTPUTS];
      l.regions[COTANGENT] = cotangents + t * l.batch * l.strides[COTANGENT];
      total += learn_head(l, start + t, 1);
    }
    row_chunk_backward(rows, items, cotangents, fresh, goes_on || start + length < l.steps);
    fresh = 0;
  }
  collect(l);
  const real factor = real(scale);
  for (int64_t p = 0; p < l.parameter_count; ++p)
    COLUMNS_OF(l.parameters[p].size) {
      real* const g = l.parameters[p].gradient + j;
      store(g, load(g, count) * factor, count);
    }
  if (updates) update(l, 0);
  return total;
}

// One update from gradients that are at hand.
extern "C" void update_once(const Loop* given) { update(*given, 0); }
