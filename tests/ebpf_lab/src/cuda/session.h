/* What the files of the stand-in for libcuda ask of session.c. */
#ifndef LAB_CUDA_SESSION_H
#define LAB_CUDA_SESSION_H

#include "driver.h"

CUresult need_context(void);             /* CUDA_SUCCESS where the thread has a context, or why not */
CUresult need_stream(CUstream stream);   /* the same, and of a stream that there is; NULL is the default stream */

#endif
