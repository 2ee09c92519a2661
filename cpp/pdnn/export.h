#pragma once
/* What libpdnn shows of itself: everything without this mark stays inside. */
#if defined(__GNUC__) || defined(__clang__)
#define PDNN_API __attribute__((visibility("default")))
#else
#define PDNN_API
#endif
