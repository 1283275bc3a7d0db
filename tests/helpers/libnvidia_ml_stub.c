/* A libnvidia-ml.so.1 for tests: eight devices whose values are functions of the index, and a control file that is read
 * at every call. Lines of the file at $NVML_STUB_CONTROL:
 *   fail <function> <code> [device]   the function returns <code> (for one device, or all)
 *   block <function> <seconds> [device]   the function sleeps first, once for each line "block" that it sees
 *   xid <device> <number>             an Xid event waits to be taken (once)
 *   lost <device>                     every question about the device answers NVML_ERROR_GPU_IS_LOST
 *   mig <device>                      the device is divided into two
 *   count <n>                         number of devices
 *   mixed                             odd devices are of another kind
 * -DNO_<function> leaves a function out, -DOLD_NAMES gives the clock reasons the name they had before driver 535.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int index; int part; } Handle; /* part: -1 whole, else MIG device */
typedef Handle *Device;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct {
    char legacy[16]; unsigned domain, bus, device, pci_device, pci_subsystem; char bus_id[32];
} Pci;
typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; } Value;
typedef struct {
    uint32_t field, scope; int64_t timestamp, latency; int type; int result; Value value;
} Field;
typedef struct { Device device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct { int index; int taken; } EventSet;

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
#define MAX 16
static Handle wholes[MAX], parts[MAX][2];
static EventSet sets[64];
static int num_sets, num_calls, num_blocked;

static int control(const char *function, int device) {
    const char *path = getenv("NVML_STUB_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], name[128];
    int a, b, result = OK, seen = 0;
    double seconds;
    num_calls++;
    if (!file) return OK;
    while (fgets(line, sizeof line, file)) {
        b = -1;
        if (sscanf(line, "fail %127s %d %d", name, &a, &b) >= 2) {
            if (!strcmp(name, function) && (b < 0 || b == device)) result = a;
        } else if (sscanf(line, "lost %d", &a) == 1) {
            if (a == device && result == OK) result = LOST;
        } else if (b = -1, sscanf(line, "block %127s %lf %d", name, &seconds, &b) >= 2) {
            if (++seen > num_blocked && !strcmp(name, function) && (b < 0 || b == device)) {
                num_blocked = seen;
                fclose(file);
                usleep((useconds_t)(seconds * 1e6));
                return OK;
            }
        }
    }
    fclose(file);
    return result;
}

static int number(const char *word, int device, int otherwise) {
    const char *path = getenv("NVML_STUB_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], name[128];
    int a, b, count, found = otherwise;
    if (!file) return otherwise;
    while (fgets(line, sizeof line, file)) {
        count = sscanf(line, "%127s %d %d", name, &a, &b);
        if (count >= 1 && !strcmp(name, word)) {
            if (count == 1) found = 1;
            else if (device < 0) found = a;
            else if (a == device) found = count == 3 ? b : 1;
        }
    }
    fclose(file);
    return found;
}

#define CHECK(device) do { int r_ = control(__func__, (device)->index); if (r_) return r_; } while (0)
#define WHOLE(device) do { CHECK(device); if ((device)->part >= 0) return INVALID; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (int i = 0; i < MAX; i++) {
        wholes[i] = (Handle){i, -1};
        for (int p = 0; p < 2; p++) parts[i][p] = (Handle){i, p};
    }
    return control(__func__, -1);
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "error of the stub"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("count", -1, 8); return control(__func__, -1); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    *device = &wholes[index];
    return control(__func__, (int)index);
}
int nvmlDeviceGetUUID(Device d, char *text, unsigned size) {
    CHECK(d);
    if (d->part < 0) snprintf(text, size, "GPU-%08x-0000-0000-0000-00000000000%x", 0xa0 + d->index, d->index);
    else snprintf(text, size, "MIG-%08x-0000-0000-0000-00000000000%x", 0xa0 + d->index, d->part);
    return OK;
}
int nvmlDeviceGetName(Device d, char *text, unsigned size) {
    CHECK(d);
    snprintf(text, size, number("mixed", -1, 0) && d->index % 2 ? "Stub B100" : d->part < 0 ? "Stub A100" : "Stub A100 MIG");
    return OK;
}
int nvmlDeviceGetPciInfo_v3(Device d, Pci *pci) {
    CHECK(d);
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10u + (unsigned)d->index;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *milliwatts) { WHOLE(d); *milliwatts = 700000; return OK; }
int nvmlDeviceGetMigMode(Device d, unsigned *current, unsigned *pending) {
    CHECK(d);
    *current = *pending = (unsigned)number("mig", d->index, 0);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *count) { CHECK(d); *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned index, Device *part) {
    CHECK(d);
    if (index > 1) return NOT_FOUND;
    *part = &parts[d->index][index];
    return OK;
}
int nvmlDeviceGetUtilizationRates(Device d, Utilization *rates) {
    CHECK(d);
    if (d->part >= 0) return NOT_SUPPORTED;
    rates->gpu = 10u * (unsigned)d->index + 5;
    rates->memory = 3u * (unsigned)d->index;
    return OK;
}
int nvmlDeviceGetMemoryInfo(Device d, Memory *memory) {
    CHECK(d);
    memory->total = d->part < 0 ? 80ull << 30 : 10ull << 30;
    memory->used = (1000000ull + (unsigned)(d->part + 1)) * ((unsigned)d->index + 1);
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetPowerUsage(Device d, unsigned *milliwatts) { WHOLE(d); *milliwatts = 100500u + (unsigned)d->index; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(Device d, unsigned long long *millijoules) {
    WHOLE(d);
    *millijoules = 5000000000250ull + (unsigned)d->index;
    return OK;
}
#ifndef NO_nvmlDeviceGetTemperature
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *celsius) {
    WHOLE(d);
    if (sensor) return INVALID;
    *celsius = 40u + (unsigned)d->index;
    return OK;
}
#endif
int nvmlDeviceGetClockInfo(Device d, int kind, unsigned *megahertz) {
    WHOLE(d);
    if (kind != 1 && kind != 2) return INVALID;
    *megahertz = kind == 1 ? 1980u - (unsigned)d->index : 2619u;
    return OK;
}
#ifdef OLD_NAMES
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *bits) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long *bits) {
#endif
    static const unsigned long long masks[] = {0, 1, 4, 0x24, 0x48, 0x80, 0x8004, 0x100};
    WHOLE(d);
    *bits = masks[d->index % 8];
    return OK;
}
int nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned *is_active) {
    WHOLE(d);
    if (link >= 4) return INVALID;
    *is_active = link < 3;
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, Pci *pci) {
    WHOLE(d);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", link < 2 ? 0xA0 : 0xB0);
    return OK;
}
#ifndef NO_nvmlDeviceGetFieldValues
int nvmlDeviceGetFieldValues(Device d, int count, Field *fields) {
    static unsigned num_reads[MAX];
    WHOLE(d);
    int no_total = number("links_only", -1, 0), wraps = number("wraps", -1, 0);
    for (int i = 0; i < count; i++) {
        Field *f = &fields[i];
        f->result = OK;
        f->type = 3;
        if (f->field == 138 || f->field == 139) {
            if (no_total || f->scope != 0xffffffffu) f->result = NOT_SUPPORTED;
            else f->value.ull = (f->field == 138 ? 2000u : 1000u) + (unsigned)d->index;
        } else if (f->field == 202 || f->field == 204) {
            f->value.ull = (f->field == 202 ? 50u : 40u) * (f->scope + 1);
        } else if (f->field == 197 || f->field == 198) {
            f->value.ull = (f->field == 197 ? 7000u : 9000u) + (unsigned)d->index;
            if (wraps) {
                f->type = 1;
                f->value.ull = 0;
                f->value.ui = (unsigned)(0xfffffff0u + 10u * num_reads[d->index]);
            }
        } else {
            f->result = INVALID;
        }
    }
    if (count && fields[0].field >= 197 && fields[0].field <= 198) num_reads[d->index]++;
    return OK;
}
#endif
int nvmlDeviceGetTotalEccErrors(Device d, int kind, int counter, unsigned long long *count) {
    WHOLE(d);
    if (counter != 0) return INVALID;
    *count = kind == 0 ? 11u + (unsigned)d->index : (unsigned)d->index;
    return OK;
}
int nvmlEventSetCreate(EventSet **set) {
    *set = &sets[num_sets++ % 64];
    **set = (EventSet){-1, 0};
    return control(__func__, -1);
}
int nvmlDeviceRegisterEvents(Device d, unsigned long long types, EventSet *set) {
    int result = control(__func__, d->index);
    if (result && result != LOST) return result;
    if (d->part >= 0 || !(types & 8)) return NOT_SUPPORTED;
    set->index = d->index;
    return OK;
}
int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned milliseconds) {
    (void)milliseconds;
    int xid = number("xid", set->index, 0);
    if (!xid || set->taken) return TIMEOUT;
    set->taken = 1;
    memset(event, 0, sizeof *event);
    event->device = &wholes[set->index];
    event->type = 8;
    event->data = (unsigned long long)xid;
    return OK;
}
