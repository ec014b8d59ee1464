#ifndef _STUB_TYPES_H
#define _STUB_TYPES_H
typedef unsigned char __u8, u8; typedef signed char __s8, s8; typedef unsigned short __u16, u16; typedef short __s16, s16;
typedef unsigned int __u32, u32; typedef int __s32, s32; typedef unsigned long long __u64, u64; typedef long long __s64, s64;
typedef __u16 __le16, __be16, __sum16; typedef __u32 __le32, __be32, __wsum; typedef __u64 __le64, __be64;
typedef _Bool bool; typedef unsigned long size_t, uintptr_t; typedef long ssize_t, off_t, loff_t; typedef int pid_t; typedef __s8 int8_t; typedef __s16 int16_t; typedef __s32 int32_t; typedef __s64 int64_t; typedef __u8 uint8_t; typedef __u16 uint16_t; typedef __u32 uint32_t; typedef __u64 uint64_t; typedef unsigned int uid_t, gid_t;
enum { false = 0, true = 1 };
#define __aligned_u64 __u64 __attribute__((aligned(8)))
#ifndef NULL
#define NULL ((void *)0)
#endif
#define __always_inline inline __attribute__((always_inline))
#define offsetof(t, m) __builtin_offsetof(t, m)
#endif
