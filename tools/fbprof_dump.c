/*
 * The program fbprof-dump: `fbprof dump` by another name.
 */
#include "command.h"

int main(int argc, char **argv)
{
	command_init();
	g_set_prgname("fbprof-dump");
	return command_dump.run(argc, argv);
}
