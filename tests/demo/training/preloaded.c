/*
 * A stand-in for libmspti.so or libtaskd.so: it only says that it was loaded, before main runs.
 * NAME comes from the compiler's command line.
 */
#include <unistd.h>

static const char LINE[] = "swansong-demo: loaded " NAME "\n";

__attribute__((constructor)) static void loaded(void)
{
	/* write, not stdio: the program's own stdio may not be set up yet. */
	if (write(STDOUT_FILENO, LINE, sizeof LINE - 1) < 0) {
		/* Without an output there is no way to report it. */
	}
}
