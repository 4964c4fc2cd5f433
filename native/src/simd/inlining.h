// How the kernels' functions are compiled. Everything is inlined into one loop over fields, unless TORCHCAPS_PROFILE
// keeps the larger steps apart, so that a profile names them.
#pragma once

#define TC_INLINE static inline __attribute__((always_inline))
#define TC_INLINE_MEMBER inline __attribute__((always_inline))

#ifdef TORCHCAPS_PROFILE
#define TC_STEP static __attribute__((noinline))
#define TC_STEP_MEMBER __attribute__((noinline))
#else
#define TC_STEP TC_INLINE
#define TC_STEP_MEMBER TC_INLINE_MEMBER
#endif
