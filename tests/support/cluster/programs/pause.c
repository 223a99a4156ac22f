// The process that holds a pod's namespaces open: it waits, and reaps what a shared process
// namespace leaves to it. Static and free of anything else, so that its image is one file.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(signal == SIGTERM || signal == SIGINT ? 0 : 1); }

static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction ends = {.sa_handler = end};
  struct sigaction child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGINT, &ends, NULL) || sigaction(SIGTERM, &ends, NULL) ||
      sigaction(SIGCHLD, &child, NULL))
    return EXIT_FAILURE;
  for (;;) pause();
}
