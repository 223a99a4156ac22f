/* A fake libdcmi.so without NPUs: the same functions and layouts, controlled by a script.
 *
 * lib.rs in this folder documents the script. Its path is FAKE_DCMI_SCRIPT, else libdcmi.script in the folder of the
 * library. It is read when the library is loaded and watched for appended lines.
 *
 * -DWITHOUT_V1, -DWITHOUT_V2 and -DWITHOUT_<function> omit functions.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The ABI */

struct dcmi_dms_fault_event {
    unsigned int event_id;
    unsigned short deviceid;
    unsigned char node_type;
    unsigned char node_id;
    unsigned char sub_node_type;
    unsigned char sub_node_id;
    unsigned char severity;
    unsigned char assertion;
    int event_serial_num;
    int notify_serial_num;
    unsigned long long alarm_raised_time;
    char event_name[256];
    char additional_info[32];
    unsigned char resv[32];
};

struct dcmi_event {
    unsigned int type;
    union {
        struct dcmi_dms_fault_event dms_event;
    } event_t;
};

struct dcmi_event_filter {
    unsigned long long filter_flag;
    unsigned int event_id;
    unsigned char severity;
    unsigned char node_type;
    unsigned char resv[32];
};

typedef void (*fault_event_callback)(struct dcmi_event *event);

_Static_assert(sizeof(struct dcmi_dms_fault_event) == 352, "dcmi_dms_fault_event");
_Static_assert(offsetof(struct dcmi_dms_fault_event, assertion) == 11, "assertion");
_Static_assert(offsetof(struct dcmi_dms_fault_event, notify_serial_num) == 16, "notify_serial_num");
_Static_assert(offsetof(struct dcmi_dms_fault_event, alarm_raised_time) == 24, "alarm_raised_time");
_Static_assert(offsetof(struct dcmi_dms_fault_event, event_name) == 32, "event_name");
_Static_assert(offsetof(struct dcmi_dms_fault_event, additional_info) == 288, "additional_info");
_Static_assert(offsetof(struct dcmi_dms_fault_event, resv) == 320, "resv");
_Static_assert(sizeof(struct dcmi_event) == 360, "dcmi_event");
_Static_assert(offsetof(struct dcmi_event, event_t) == 8, "event_t");
_Static_assert(sizeof(struct dcmi_event_filter) == 48, "dcmi_event_filter");
_Static_assert(offsetof(struct dcmi_event_filter, event_id) == 8, "event_id");
_Static_assert(offsetof(struct dcmi_event_filter, resv) == 14, "resv");

enum {
    OK = 0,
    BAD_PARAMETER = -8001,
    INTERNAL = -8005,
    BAD_DEVICE = -8007,
    BUSY = -8020,
};

enum { CARDS = 64, DEVICES_OF_A_CARD = 4, DEVICES = 64, CODES = 128 };

/* The state, which the script sets */

enum function {
    INIT, CARD_LIST, DEVICE_NUM, DEVICE_TYPE, LOGIC_ID, PHYSICAL_ID, HEALTH, ERROR_CODES, SUBSCRIBE, DCMI_VERSION,
    DRIVER_VERSION, FUNCTIONS
};

static const char *const names[FUNCTIONS] = {
    "init", "card-list", "device-num", "device-type", "logic-id", "physical-id", "health", "error-codes", "subscribe",
    "dcmi-version", "driver-version",
};

struct device {
    int card, device, logic;
    unsigned int physical;
    long health; /* -1: derived from the codes */
    int count;
    unsigned int codes[CODES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[DEVICES];
static int device_count;
static int cards_by_script;
static int answers[FUNCTIONS][DEVICES]; /* return codes */
static int hangs[FUNCTIONS], crashes[FUNCTIONS], claims[FUNCTIONS];
static int init_failures, init_code, inits, started;
static char dcmi_version[256] = "24.1.0", driver_version[256] = "25.5.0";
static fault_event_callback handler;
static int thread_ended;
static int serial;
static char script[PATH_MAX];

static void violation(const char *format, ...)
{
    char path[PATH_MAX + 16], line[512];
    va_list arguments;
    snprintf(path, sizeof path, "%s.violations", script);
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) {
        line[length] = '\n';
        if (write(file, line, length + 1) < 0) { /* The error can't be reported. */ }
        close(file);
    }
}

static struct device *by_logic(int logic)
{
    for (int i = 0; i < device_count; i++)
        if (devices[i].logic == logic)
            return &devices[i];
    return NULL;
}

static struct device *by_address(int card, int device)
{
    for (int i = 0; i < device_count; i++)
        if (devices[i].card == card && devices[i].device == device)
            return &devices[i];
    return NULL;
}

static void add_device(int card, int device)
{
    if (device_count == DEVICES)
        return;
    devices[device_count] = (struct device){
        .card = card, .device = device, .logic = device_count, .physical = device_count, .health = -1,
    };
    device_count++;
}

static void update_codes(struct device *device, unsigned int code, int assertion)
{
    if (!device || assertion > 1)
        return;
    for (int i = 0; i < device->count; i++)
        if (device->codes[i] == code) {
            if (assertion == 0)
                device->codes[i] = device->codes[--device->count];
            return;
        }
    if (assertion == 1 && device->count < CODES)
        device->codes[device->count++] = code;
}

/* The driver's thread */

static void deliver(const struct dcmi_event *event)
{
    struct dcmi_event copy = *event;
    if (handler && !thread_ended) {
        fault_event_callback call = handler;
        pthread_mutex_unlock(&lock);
        call(&copy);
        /* A callback that keeps the pointer reads this. */
        memset(&copy, 0xA5, sizeof copy);
        __asm__ volatile("" : : "r"(&copy) : "memory");
        pthread_mutex_lock(&lock);
    }
}

static void send_event(int logic, unsigned int id, int severity, int assertion, const char *name, int live)
{
    struct dcmi_event event = {0};
    struct dcmi_dms_fault_event *fault = &event.event_t.dms_event;
    update_codes(by_logic(logic), id, assertion);
    fault->event_id = id;
    fault->deviceid = logic;
    fault->severity = severity;
    fault->assertion = assertion;
    fault->event_serial_num = serial;
    fault->notify_serial_num = serial++;
    fault->alarm_raised_time = time(NULL);
    snprintf(fault->event_name, sizeof fault->event_name, "%s", name);
    if (live)
        deliver(&event);
}

static void flood(long count, long per_minute, unsigned int first, int live)
{
    if (device_count == 0)
        return;
    long pause = per_minute > 0 ? 60000000000L / per_minute : 0;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (long i = 0; i < count; i++) {
        struct device *device = &devices[i % device_count];
        long round = i / device_count;
        send_event(device->logic, first + round / 2 % 100, 2, round % 2 == 0, "flood", live);
        if (pause && live) {
            next.tv_nsec += pause % 1000000000L;
            next.tv_sec += pause / 1000000000L + next.tv_nsec / 1000000000L;
            next.tv_nsec %= 1000000000L;
            pthread_mutex_unlock(&lock);
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
            pthread_mutex_lock(&lock);
        }
    }
}

static void raw(const char *digits)
{
    union {
        struct dcmi_event event;
        unsigned char bytes[sizeof(struct dcmi_event)];
    } memory = {.bytes = {0}};
    for (size_t i = 0; i < sizeof memory.bytes && sscanf(digits + 2 * i, "%2hhx", &memory.bytes[i]) == 1; i++)
        ;
    deliver(&memory.event);
}

static void segfault(void)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
}

static int function_named(const char *name)
{
    for (int i = 0; i < FUNCTIONS; i++)
        if (name && !strcmp(name, names[i]))
            return i;
    violation("script: no function %s", name ? name : "");
    return -1;
}

static long number(char **rest, int base)
{
    char *text = strtok_r(NULL, " \t", rest);
    return text ? strtol(text, NULL, base) : 0;
}

/* Executes a line. Events and crashes happen only if `live`; the state always changes. */
static void execute(char *line, int live)
{
    char *rest = NULL;
    char *command = strtok_r(line, " \t", &rest);
    if (!command || *command == '#')
        return;
    if (!strcmp(command, "card")) {
        if (!cards_by_script)
            device_count = 0;
        cards_by_script = 1;
        int card = number(&rest, 10), count = number(&rest, 10);
        for (int device = 0; device < count; device++)
            add_device(card, device);
    } else if (!strcmp(command, "logic")) {
        int card = number(&rest, 10);
        struct device *device = by_address(card, number(&rest, 10));
        if (device)
            device->logic = number(&rest, 10);
    } else if (!strcmp(command, "physical")) {
        struct device *device = by_logic(number(&rest, 10));
        if (device)
            device->physical = number(&rest, 10);
    } else if (!strcmp(command, "init")) {
        init_failures = number(&rest, 10);
        init_code = number(&rest, 10);
    } else if (!strcmp(command, "result")) {
        int function = function_named(strtok_r(NULL, " \t", &rest));
        int code = number(&rest, 10);
        char *logic = strtok_r(NULL, " \t", &rest);
        for (int i = 0; function >= 0 && i < DEVICES; i++)
            if (!logic || (i < device_count && devices[i].logic == atoi(logic)))
                answers[function][i] = code;
    } else if (!strcmp(command, "hang") || !strcmp(command, "crash")) {
        char *name = strtok_r(NULL, " \t", &rest);
        int *which = *command == 'h' ? hangs : crashes;
        if (!name && *command == 'c') {
            if (live)
                segfault();
        } else if (name && !strcmp(name, "none")) {
            memset(which, 0, sizeof hangs);
        } else {
            int function = function_named(name);
            if (function >= 0)
                which[function] = 1;
        }
    } else if (!strcmp(command, "claim")) {
        int function = function_named(strtok_r(NULL, " \t", &rest));
        if (function >= 0)
            claims[function] = number(&rest, 10);
    } else if (!strcmp(command, "health")) {
        struct device *device = by_logic(number(&rest, 10));
        if (device)
            device->health = number(&rest, 10);
    } else if (!strcmp(command, "codes")) {
        struct device *device = by_logic(number(&rest, 10));
        char *code;
        if (device)
            device->count = 0;
        while (device && device->count < CODES && (code = strtok_r(NULL, " \t", &rest)))
            device->codes[device->count++] = strtoul(code, NULL, 16);
    } else if (!strcmp(command, "dcmi-version")) {
        snprintf(dcmi_version, sizeof dcmi_version, "%s", rest);
    } else if (!strcmp(command, "driver-version")) {
        snprintf(driver_version, sizeof driver_version, "%s", rest);
    } else if (!strcmp(command, "event")) {
        int logic = number(&rest, 10);
        unsigned int id = number(&rest, 16);
        int severity = number(&rest, 10), assertion = number(&rest, 10);
        send_event(logic, id, severity, assertion, rest, live);
    } else if (!strcmp(command, "flood")) {
        long count = number(&rest, 10), per_minute = number(&rest, 10);
        flood(count, per_minute, number(&rest, 16), live);
    } else if (!strcmp(command, "raw")) {
        if (live)
            raw(rest);
    } else if (!strcmp(command, "null")) {
        if (live && handler && !thread_ended)
            handler(NULL);
    } else if (!strcmp(command, "print")) {
        if (live) {
            puts(rest);
            fflush(stdout);
        }
    } else if (!strcmp(command, "end-thread")) {
        if (live)
            thread_ended = 1;
    } else {
        violation("script: no command %s", command);
    }
}

/* Executes the complete lines after `offset` and returns the offset of the rest. */
static off_t execute_lines(off_t offset, int live)
{
    static char line[4096];
    struct stat status;
    FILE *file = fopen(script, "re");
    if (!file)
        return 0;
    if (fstat(fileno(file), &status) == 0 && status.st_size < offset)
        offset = 0; /* The file was replaced. */
    fseeko(file, offset, SEEK_SET);
    while (fgets(line, sizeof line, file)) {
        char *end = strchr(line, '\n');
        if (!end)
            break;
        offset += end + 1 - line;
        *end = 0;
        execute(line, live);
    }
    fclose(file);
    return offset;
}

static void *watch_script(void *begun)
{
    off_t offset = (off_t)(size_t)begun;
    char changes[4096];
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", script);
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch(watch, dirname(folder), IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE);
    for (;;) {
        pthread_mutex_lock(&lock);
        offset = execute_lines(offset, 1);
        pthread_mutex_unlock(&lock);
        struct pollfd changed = {.fd = watch, .events = POLLIN};
        /* The timeout is for file systems without notification. */
        poll(&changed, 1, 1000);
        while (read(watch, changes, sizeof changes) > 0)
            ;
    }
    return NULL;
}

__attribute__((constructor)) static void load(void)
{
    const char *named = getenv("FAKE_DCMI_SCRIPT");
    Dl_info self;
    if (named) {
        snprintf(script, sizeof script, "%s", named);
    } else if (dladdr((void *)load, &self) && self.dli_fname) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s", self.dli_fname);
        snprintf(script, sizeof script, "%.4000s/libdcmi.script", dirname(path));
    }
    for (int card = 0; card < 8; card++)
        add_device(card, 0);
    off_t offset = execute_lines(0, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, watch_script, (void *)(size_t)offset);
    pthread_detach(thread);
}

/* The functions */

static int enter(enum function function, const struct device *device)
{
    if (crashes[function])
        segfault();
    while (hangs[function]) {
        pthread_mutex_unlock(&lock);
        pause();
        pthread_mutex_lock(&lock);
    }
    if (function != INIT && function != DCMI_VERSION && function != DRIVER_VERSION && !started) {
        violation("%s before init", names[function]);
        return INTERNAL;
    }
    return answers[function][device ? device - devices : 0];
}

#define BEGIN(function) \
    pthread_mutex_lock(&lock); \
    int result = enter(function, NULL); \
    if (result == OK) {

#define BEGIN_AT(function, found) \
    pthread_mutex_lock(&lock); \
    struct device *at = found; \
    int result = at ? enter(function, at) : BAD_DEVICE; \
    if (result == OK) {

#define END \
    } \
    pthread_mutex_unlock(&lock); \
    return result;

#define REQUIRE(condition) \
    if (!(condition)) { \
        violation("%s: %s doesn't hold", __func__, #condition); \
        result = BAD_PARAMETER; \
    } else

static int start(void)
{
    BEGIN(INIT)
        if (init_failures < 0 || inits < init_failures)
            result = init_code;
        else
            started = 1;
        inits++;
    END
}

static unsigned int health_of(const struct device *device)
{
    return device->health >= 0 ? device->health : device->count ? 2 : 0;
}

static void copy_codes(const struct device *device, int *count, unsigned int *codes)
{
    memcpy(codes, device->codes, device->count * sizeof *codes);
    *count = claims[ERROR_CODES] ? claims[ERROR_CODES] : device->count;
}

static int subscribe(int all, const struct dcmi_event_filter *filter, fault_event_callback callback)
{
    static const struct dcmi_event_filter zero;
    BEGIN(SUBSCRIBE)
        REQUIRE(all)
        REQUIRE(callback)
        /* The filter is passed by value, so this detects a wrong calling convention. Its padding isn't compared. */
        REQUIRE(!memcmp(filter, &zero, 46))
        if (handler) {
            violation("subscribed twice");
            result = BUSY;
        } else {
            handler = callback;
        }
    END
}

static int copy_text(enum function function, const char *from, char *text, long room, long least)
{
    BEGIN(function)
        REQUIRE(text)
        REQUIRE(room >= least)
        memcpy(text, from, (long)strlen(from) + 1 < room ? strlen(from) + 1 : (size_t)room);
    END
}

/* v1 */

#ifndef WITHOUT_V1

#ifndef WITHOUT_dcmi_init
int dcmi_init(void)
{
    return start();
}
#endif

static int list_cards(int *count, int *list, int capacity)
{
    BEGIN(CARD_LIST)
        REQUIRE(count)
        REQUIRE(list)
        REQUIRE(capacity == CARDS) {
            *count = 0;
            for (int i = 0; i < device_count; i++)
                if (devices[i].device == 0)
                    list[(*count)++] = devices[i].card;
            if (claims[CARD_LIST])
                *count = claims[CARD_LIST];
        }
    END
}

#ifndef WITHOUT_dcmi_get_card_list
int dcmi_get_card_list(int *count, int *list, int capacity)
{
    return list_cards(count, list, capacity);
}
#endif

#ifndef WITHOUT_dcmi_get_card_num_list
int dcmi_get_card_num_list(int *count, int *list, int capacity)
{
    return list_cards(count, list, capacity);
}
#endif

#ifndef WITHOUT_dcmi_get_device_num_in_card
int dcmi_get_device_num_in_card(int card, int *count)
{
    BEGIN_AT(DEVICE_NUM, by_address(card, 0))
        REQUIRE(count) {
            *count = 0;
            for (int i = 0; i < device_count; i++)
                *count += devices[i].card == card;
            /* The MCU is counted too. */
            ++*count;
        }
    END
}
#endif

#ifndef WITHOUT_dcmi_get_device_type
int dcmi_get_device_type(int card, int device, unsigned int *type)
{
    pthread_mutex_lock(&lock);
    struct device *at = by_address(card, device);
    int result = enter(DEVICE_TYPE, at);
    if (result == OK) {
        REQUIRE(type)
            *type = at ? 0 : 1;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
#endif

#ifndef WITHOUT_dcmi_get_device_logic_id
int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    BEGIN_AT(LOGIC_ID, by_address(card, device))
        REQUIRE(logic)
            *logic = at->logic;
    END
}
#endif

#ifndef WITHOUT_dcmi_get_device_phyid_from_logicid
int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical)
{
    BEGIN_AT(PHYSICAL_ID, by_logic(logic))
        REQUIRE(physical)
            *physical = at->physical;
    END
}
#endif

#ifndef WITHOUT_dcmi_get_device_health
int dcmi_get_device_health(int card, int device, unsigned int *health)
{
    BEGIN_AT(HEALTH, by_address(card, device))
        REQUIRE(health)
            *health = health_of(at);
    END
}
#endif

#ifndef WITHOUT_dcmi_get_device_errorcode_v2
int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned int *codes, unsigned int capacity)
{
    BEGIN_AT(ERROR_CODES, by_address(card, device))
        REQUIRE(count)
        REQUIRE(codes)
        REQUIRE(capacity == CODES)
            copy_codes(at, count, codes);
    END
}
#endif

#ifndef WITHOUT_dcmi_subscribe_fault_event
int dcmi_subscribe_fault_event(int card, int device, struct dcmi_event_filter filter, fault_event_callback callback)
{
    return subscribe(card == -1 && device == -1, &filter, callback);
}
#endif

#ifndef WITHOUT_dcmi_get_dcmi_version
int dcmi_get_dcmi_version(char *text, int room)
{
    return copy_text(DCMI_VERSION, dcmi_version, text, room, 33);
}
#endif

#ifndef WITHOUT_dcmi_get_driver_version
int dcmi_get_driver_version(char *text, unsigned int room)
{
    return copy_text(DRIVER_VERSION, driver_version, text, room, 64);
}
#endif

#endif

/* v2 */

#ifndef WITHOUT_V2

#ifndef WITHOUT_dcmiv2_init
int dcmiv2_init(void)
{
    return start();
}
#endif

#ifndef WITHOUT_dcmiv2_get_device_list
int dcmiv2_get_device_list(int *list, int *count, int capacity)
{
    BEGIN(CARD_LIST)
        REQUIRE(list)
        REQUIRE(count)
        REQUIRE(capacity == CARDS) {
            for (int i = 0; i < device_count; i++)
                list[i] = devices[i].logic;
            *count = claims[CARD_LIST] ? claims[CARD_LIST] : device_count;
        }
    END
}
#endif

#ifndef WITHOUT_dcmiv2_get_device_type
int dcmiv2_get_device_type(int device, unsigned int *type)
{
    BEGIN_AT(DEVICE_TYPE, by_logic(device))
        REQUIRE(type)
            *type = 0;
    END
}
#endif

#ifndef WITHOUT_dcmiv2_get_chip_phy_id_by_dev_id
int dcmiv2_get_chip_phy_id_by_dev_id(unsigned int device, unsigned int *physical)
{
    BEGIN_AT(PHYSICAL_ID, by_logic(device))
        REQUIRE(physical)
            *physical = at->physical;
    END
}
#endif

#ifndef WITHOUT_dcmiv2_get_device_health
int dcmiv2_get_device_health(int device, unsigned int *health)
{
    BEGIN_AT(HEALTH, by_logic(device))
        REQUIRE(health)
            *health = health_of(at);
    END
}
#endif

#ifndef WITHOUT_dcmiv2_get_device_error_code_list
int dcmiv2_get_device_error_code_list(int device, int *count, unsigned int *codes, unsigned int capacity)
{
    BEGIN_AT(ERROR_CODES, by_logic(device))
        REQUIRE(count)
        REQUIRE(codes)
        REQUIRE(capacity == CODES)
            copy_codes(at, count, codes);
    END
}
#endif

#ifndef WITHOUT_dcmiv2_subscribe_fault_event
int dcmiv2_subscribe_fault_event(int device, struct dcmi_event_filter filter, fault_event_callback callback)
{
    return subscribe(device == -1, &filter, callback);
}
#endif

#ifndef WITHOUT_dcmiv2_get_dcmi_version
int dcmiv2_get_dcmi_version(char *text, int room)
{
    return copy_text(DCMI_VERSION, dcmi_version, text, room, 33);
}
#endif

#endif
