/*
 * A stand-in for a training process with TaskD and MindIO inside.
 *
 * It says, one fact a line, what a dying checkpoint depends on: which libraries are mapped, the
 * variables, and whether the ranks reach rank 0 through its Service. Rank 0 listens where the
 * MindIO controller (TTP_PORT) and the TaskD Manager (9601) do. The exit status is 0 if all ranks
 * were reached. With --stay it waits for SIGTERM afterwards, so that the pod can be inspected;
 * --timeout SECONDS changes how long it tries.
 *
 * It plays jobs whose rank 0 has NPUs, which is how MindCluster's own examples are.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	TASKD_PORT = 9601,
	/* What MindSpeed-LLM uses; it ignores TTP_PORT. */
	DEFAULT_TTP_PORT = 8000,
	PORTS = 2,
	MAX_RANKS = 1024,
	CONNECT_MS = 1000,
	PAUSE_MS = 100,
	TIMEOUT_SECONDS = 90,
};

/* When to give up, on the clock of now_ms. */
static long deadline;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("swansong-demo: ", stdout);
	vprintf(format, arguments);
	putchar('\n');
	va_end(arguments);
}

static long now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int number(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value && *value ? atoi(value) : otherwise;
}

static void say_variable(const char *name)
{
	const char *value = getenv(name);

	if (value)
		say("env %s=%s", name, value);
	else
		say("unset %s", name);
}

/* Says where the library is mapped, and whether it is. */
static void say_mapped(const char *library)
{
	char line[4096];
	bool found = false;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && !found && fgets(line, sizeof line, maps)) {
		char *path = strchr(line, '/');
		char *name = strrchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (path && name && strcmp(name + 1, library) == 0) {
			say("mapped %s", path);
			found = true;
		}
	}
	if (maps)
		fclose(maps);
	if (!found)
		say("not mapped %s", library);
}

static struct sockaddr_in endpoint(const char *address, int port)
{
	struct sockaddr_in result = {
		.sin_family = AF_INET,
		.sin_port = htons((unsigned short)port),
	};

	if (inet_pton(AF_INET, address, &result.sin_addr) != 1) {
		/* As TaskD does: it takes no names. */
		say("error %s is no address", address);
		exit(1);
	}
	return result;
}

/* Waits until the socket is ready for `events`. */
static bool ready(int fd, short events, int timeout_ms)
{
	struct pollfd wait = { .fd = fd, .events = events };

	return poll(&wait, 1, timeout_ms) == 1;
}

/* One try to reach a port of rank 0 and to get its answer: the name of the port. */
static bool greet(const char *address, int port, int rank)
{
	struct sockaddr_in to = endpoint(address, port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char answer[16] = "";
	int32_t greeting = rank;
	bool reached = false;

	if (fd < 0)
		return false;
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS) {
		/* The last rank that comes ends rank 0, so its answer is what counts. */
		reached = ready(fd, POLLOUT, CONNECT_MS) &&
			  send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting &&
			  ready(fd, POLLIN, CONNECT_MS) &&
			  recv(fd, answer, sizeof answer - 1, 0) > 0;
	}
	close(fd);
	if (reached)
		say("reached %s:%d %s", address, port, answer);
	return reached;
}

static bool reach(const char *address, int port, int rank)
{
	while (!greet(address, port, rank)) {
		if (now_ms() >= deadline) {
			say("not reached %s:%d", address, port);
			return false;
		}
		poll(NULL, 0, PAUSE_MS);
	}
	return true;
}

static int listen_on(const char *address, int port)
{
	struct sockaddr_in at = endpoint(address, port);
	int yes = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
	    bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, SOMAXCONN)) {
		say("error %s:%d %s", address, port, strerror(errno));
		exit(1);
	}
	say("listening %s:%d", address, port);
	return fd;
}

/* Answers one rank and returns its number, or -1. */
static int answer(int listener, const char *name)
{
	int32_t rank = -1;
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		return -1;
	if (!ready(fd, POLLIN, CONNECT_MS) ||
	    recv(fd, &rank, sizeof rank, MSG_WAITALL) != sizeof rank ||
	    send(fd, name, strlen(name), MSG_NOSIGNAL) < 0)
		rank = -1;
	close(fd);
	return rank;
}

/* Rank 0: listens and waits until every other rank has come to both ports. */
static bool serve(int ranks)
{
	static const char *const names[PORTS] = { "ttp-port", "taskd-port" };
	static bool seen[PORTS][MAX_RANKS];
	/* Without POD_IP TaskD listens where no other pod gets to; so does this. */
	const char *own = getenv("POD_IP") ? getenv("POD_IP") : "127.0.0.1";
	const int ports[PORTS] = { number("TTP_PORT", 0), TASKD_PORT };
	struct pollfd listeners[PORTS];
	int missing = PORTS * (ranks - 1);

	for (int i = 0; i < PORTS; i++) {
		/* MindIO's controller doesn't start without TTP_PORT; poll passes over -1. */
		listeners[i].fd = ports[i] ? listen_on(own, ports[i]) : -1;
		listeners[i].events = POLLIN;
	}
	while (missing > 0) {
		long left = deadline - now_ms();

		if (left <= 0 || poll(listeners, PORTS, (int)left) <= 0)
			break;
		for (int i = 0; i < PORTS; i++) {
			if (!(listeners[i].revents & POLLIN))
				continue;
			int rank = answer(listeners[i].fd, names[i]);

			if (rank <= 0 || rank >= MAX_RANKS || seen[i][rank])
				continue;
			seen[i][rank] = true;
			missing--;
			say("accepted rank %d on %d", rank, ports[i]);
		}
	}
	return missing == 0;
}

static void finish(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int count, char **arguments)
{
	bool stay = false;
	int timeout = TIMEOUT_SECONDS;
	bool mindspore = getenv("MS_ROLE") != NULL;
	int rank = number(mindspore ? "MS_NODE_RANK" : "RANK", 0);
	int world = number(mindspore ? "MS_WORKER_NUM" : "WORLD_SIZE", 1);
	int local = number(mindspore ? "MS_LOCAL_WORKER" : "LOCAL_WORLD_SIZE", 1);
	int ranks = local > 0 ? world / local : 1;
	const char *rank_zero = getenv(mindspore ? "MS_SCHED_HOST" : "MASTER_ADDR");
	bool complete;

	for (int i = 1; i < count; i++) {
		if (strcmp(arguments[i], "--stay") == 0)
			stay = true;
		else if (strcmp(arguments[i], "--timeout") == 0 && i + 1 < count)
			timeout = atoi(arguments[++i]);
	}
	deadline = now_ms() + timeout * 1000L;

	/* The first process of a container gets no signal that it doesn't handle. */
	signal(SIGTERM, finish);
	/* Each line appears in the log at once. */
	setvbuf(stdout, NULL, _IOLBF, 0);

	say("rank %d of %d", rank, ranks);
	say_mapped("libmspti.so");
	say_mapped("libtaskd.so");
	say_variable("TTP_PORT");
	say_variable("POD_IP");
	say_variable("TASKD_PROCESS_ENABLE");
	say_variable(mindspore ? "MS_ENABLE_TFT" : "HIGH_AVAILABILITY");

	if (rank == 0) {
		complete = serve(ranks);
	} else if (rank_zero) {
		complete = reach(rank_zero, number("TTP_PORT", DEFAULT_TTP_PORT), rank);
		complete = reach(rank_zero, TASKD_PORT, rank) && complete;
	} else {
		say("error no address of rank 0");
		complete = false;
	}
	say(complete ? "complete" : "incomplete");
	while (stay)
		pause();
	return complete ? 0 : 1;
}
