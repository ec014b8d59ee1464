/* nvmlDeviceGetFieldValues: a batch, each entry with a type and a return code of its own. */
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { DOUBLE, UINT, ULONG, ULONGLONG, LONGLONG, INT, USHORT };

typedef union { double real; unsigned u32; unsigned long ulong; Wide wide; long long signed_wide; int i32; unsigned short u16; } Value;
typedef struct { unsigned id, scope; long long time, latency; unsigned type; Return code; Value value; } Field;

static Return give(Field *field, unsigned type, Wide value) {
    field->type = type;
    if (type == UINT) field->value.u32 = (unsigned)value;
    else field->value.wide = value;
    return OK;
}

static Return give_link(const Gpu *gpu, Field *field, Wide all, const Wide *each) {
    unsigned links = gpu->nvlinks < MAX_LINKS ? gpu->nvlinks : MAX_LINKS;
    if (!links) return NOT_SUPPORTED;
    if (field->scope != NONE32) return field->scope < links ? give(field, ULONGLONG, each[field->scope]) : INVALID_ARGUMENT;
    return gpu->nvlink_aggregate_ret ? gpu->nvlink_aggregate_ret : give(field, ULONGLONG, all);
}

static Return answer(const Gpu *gpu, Field *field) {
    switch (field->id) {
    case 82: return give(field, UINT, gpu->memtemp);
    case 83: return give(field, ULONGLONG, gpu->energy_mj);
    case 91: return give(field, UINT, gpu->nvlinks);
    case 138: return give_link(gpu, field, gpu->nvlink_tx_kib, gpu->link_tx_kib);
    case 139: return give_link(gpu, field, gpu->nvlink_rx_kib, gpu->link_rx_kib);
    case 142: case 143: case 144: case 145: return give(field, UINT, gpu->remap[field->id - 142]);
    case 186: return give(field, UINT, gpu->power_instant_mw);
    case 197: return give(field, ULONGLONG, gpu->pcie_tx_bytes);
    case 198: return give(field, ULONGLONG, gpu->pcie_rx_bytes);
    case 230: return give(field, UINT, gpu->recovery);
    default: return NOT_SUPPORTED;
    }
}

static void obey(const FieldRule *rule, Field *field) {
    field->code = rule->code;
    field->type = rule->type;
    memset(&field->value, 0xEE, sizeof field->value); /* what is beyond a short type is nobody's */
    switch (rule->type) {
    case DOUBLE: field->value.real = strtod(rule->value, NULL); break;
    case UINT: field->value.u32 = (unsigned)strtoull(rule->value, NULL, 0); break;
    case INT: field->value.i32 = (int)strtoll(rule->value, NULL, 0); break;
    case USHORT: field->value.u16 = (unsigned short)strtoull(rule->value, NULL, 0); break;
    case LONGLONG: field->value.signed_wide = strtoll(rule->value, NULL, 0); break;
    default: field->value.wide = strtoull(rule->value, NULL, 0);
    }
}

API Return nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) {
    ENTER(handle);
    if (count < 1) return leave(INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        Field *field = &fields[i];
        field->time = (long long)(now() * 1e6);
        field->latency = 1;
        field->type = ULONGLONG;
        field->value.wide = 0;
        field->code = answer(gpu, field);
        for (int k = 0; k < gpu->field_rule_count; k++)
            if (gpu->field_rules[k].id == field->id) obey(&gpu->field_rules[k], field);
    }
    if (gpu->field_overrun) memset(&fields[count], 0xEE, sizeof *fields);
    return leave(OK);
}
