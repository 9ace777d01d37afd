// A call that is made again and again: all of it is kept but a few addresses, which are given.

#include <stdint.h>

struct Patch {
  int64_t word, given, offset;  // a word of the call is an address that is given, and so many bytes further on
};

struct Copy {
  int64_t target, to, source, from, bytes;  // from one address that is given, and further on, to another; no source: zeros
};

struct Kept {
  void (*run)(const int64_t* call);
  int64_t words, rest;  // of the call and all it points to, and where that begins: the first word points there
  int64_t patches, before, after;  // copies before the call, and after it
};  // these follow, then all words

static void copy(const Copy* copies, int64_t count, const int64_t* given) {
  for (const Copy* c = copies; c < copies + count; ++c) {
    void* const target = (void*)(given[c->target] + c->to);
    if (c->source < 0) __builtin_memset(target, 0, c->bytes);
    else __builtin_memcpy(target, (const void*)(given[c->source] + c->from), c->bytes);
  }
}

extern "C" void again(const Kept* kept, const int64_t* given) {
  const Patch* const patches = (const Patch*)(kept + 1);
  const Copy* const copies = (const Copy*)(patches + kept->patches);
  const int64_t count = kept->before + kept->after;
  int64_t* const call = (int64_t*)__builtin_alloca(kept->words * sizeof(int64_t));  // each thread has its own
  __builtin_memcpy(call, copies + count, kept->words * sizeof(int64_t));
  call[0] = (int64_t)(call + kept->rest);
  for (const Patch* p = patches; p < patches + kept->patches; ++p)
    call[p->word] = (p->given < 0 ? (int64_t)call : given[p->given]) + p->offset;
  copy(copies, kept->before, given);
  kept->run(call);
  copy(copies + kept->before, kept->after, given);
}
