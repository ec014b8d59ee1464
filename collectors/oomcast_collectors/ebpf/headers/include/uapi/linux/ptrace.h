#ifndef _STUB_PTRACE_H
#define _STUB_PTRACE_H
#include <linux/types.h>
struct pt_regs { unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss; };
#endif
