// A call that is made again and again: all of it is kept but a few addresses, which are given.

#include <stdint.h>

struct Patch {
  int64_t word, given, offset;  // a word of the call is an address that is given, and so many bytes further on
};

struct Copy {
  int64_t target, source, offset, bytes;  // afterwards, from one address that is given to another
};

struct Kept {
  void (*run)(const int64_t* call);
  int64_t words, buffers;  // of the call and its buffers, and where these begin
  int64_t patches, copies;
};  // these follow, then all words

extern "C" void again(const Kept* kept, const int64_t* given) {
  const Patch* const patches = (const Patch*)(kept + 1);
  const Copy* const copies = (const Copy*)(patches + kept->patches);
  int64_t* const call = (int64_t*)__builtin_alloca(kept->words * sizeof(int64_t));  // each thread has its own
  __builtin_memcpy(call, copies + kept->copies, kept->words * sizeof(int64_t));
  call[0] = (int64_t)(call + kept->buffers);
  for (const Patch* p = patches; p < patches + kept->patches; ++p) call[p->word] = given[p->given] + p->offset;
  kept->run(call);
  for (const Copy* c = copies; c < copies + kept->copies; ++c)
    __builtin_memcpy((void*)given[c->target], (const void*)(given[c->source] + c->offset), c->bytes);
}
